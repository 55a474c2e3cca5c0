"""Credentials for a bucket: found as Google's tools find them, renewed where they are too old, explained."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kinetic_ray import config
from kinetic_ray.errors import ConfigError
from kinetic_ray.store import open_store
from kinetic_ray.store.gcs_objects import Objects
from kinetic_ray.store.gcs_wire import GoogleAccess, Limits, Wire, new_pool


class _Google(ThreadingHTTPServer):
    """Gives tokens, one after the other, and lets only the last one pass."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.tokens = 0
        self.needed = 1
        self.refusal: dict[str, str] | None = None
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: _Google
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refusal is not None:
            self._say(400, self.server.refusal)
            return
        self.server.tokens += 1
        self._say(200, {"access_token": f"token-{self.server.tokens}", "expires_in": 3600, "token_type": "Bearer"})

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.server.seen.append(given)
        fits = given == f"Bearer token-{self.server.needed}"
        self._say(200 if fits else 401, {"size": "7"} if fits else {"error": {"message": "Invalid Credentials"}})

    def _say(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def google() -> Iterator[_Google]:
    server = _Google()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def key_file(google: _Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key file of a service account whose tokens come from that server."""
    key = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {
        "type": "service_account",
        "client_email": "robot@project.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "token_uri": f"{google.url}/token",
    }
    path = tmp_path / "key.json"
    path.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    return path


def objects(google: _Google) -> Objects:
    pool = new_pool(google.url)
    limits = Limits(unreachable=0.2, trouble=0.2)
    return Objects(Wire(GoogleAccess(pool), pool, limits), google.url, "bucket")


def test_requests_carry_a_token_which_is_asked_for_once(google: _Google, key_file: Path) -> None:
    bucket = objects(google)
    assert [bucket.size("a") for _ in range(3)] == [7, 7, 7]
    assert (google.tokens, google.seen) == (1, ["Bearer token-1"] * 3)


def test_a_token_that_is_refused_is_renewed_once(google: _Google, key_file: Path) -> None:
    bucket = objects(google)
    google.needed = 2
    assert bucket.size("a") == 7
    assert google.seen == ["Bearer token-1", "Bearer token-2"]
    google.needed = 99
    with pytest.raises(PermissionError, match=r"credentials are not accepted .*Invalid Credentials"):
        bucket.size("a")
    assert len(google.seen) == 4


def test_a_key_that_is_refused_is_told_with_the_servers_words(google: _Google, key_file: Path) -> None:
    google.refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    with pytest.raises(PermissionError, match=r"credentials are refused: .*invalid_grant.*gcloud auth"):
        objects(google).size("a")


def test_a_log_in_that_cannot_be_reached_is_told(google: _Google, key_file: Path) -> None:
    account = json.loads(key_file.read_text())
    key_file.write_text(json.dumps({**account, "token_uri": "http://127.0.0.1:9/token"}))
    with pytest.raises(ConnectionError, match="log-in can't be reached"):
        objects(google).size("a")


def test_without_credentials_the_way_to_them_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # this machine may be one of Google's
    with pytest.raises(
        ConfigError,
        match=r"no Google credentials .*default credentials were not found.*gcloud auth application-default login",
    ):
        open_store("gs://bucket/x")


def test_a_broken_key_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    (tmp_path / "key.json").write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(ConfigError, match=r"no Google credentials .*key\.json"):
        open_store("gs://bucket/x")


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", None), ("127.0.0.1:4443", "http://127.0.0.1:4443"), ("https://fake:1/", "https://fake:1")],
)
def test_a_server_that_stands_in_is_named_with_or_without_its_scheme(given: str, expected: str | None) -> None:
    assert config.storage_emulator({"STORAGE_EMULATOR_HOST": given}) == expected


def test_a_proxy_of_the_environment_is_used_unless_the_address_is_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert str(new_pool("https://storage.googleapis.com").proxy) == "http://proxy:3128"
    assert new_pool("https://127.0.0.1:4443").proxy is None
