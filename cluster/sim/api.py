"""The few calls to an API server that the plane and its tests need, on plain JSON."""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """The API server refused: its status code and what it said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """An API server as one user.

    Attributes:
        server: Its URL.
        token: What the user shows; "" is nobody.
        tls: How its certificate is checked, and the user's own where there is one.
        timeout: Seconds that one call may take.
    """

    server: str
    token: str = field(repr=False)
    tls: ssl.SSLContext = field(repr=False, compare=False)
    timeout: float = 30

    @classmethod
    def trusting(cls, server: str, token: str, ca: Path) -> Api:
        return cls(server, token, ssl.create_default_context(cafile=str(ca)))

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Api:
        """The current context of a kubeconfig, with a token or a client certificate in it."""
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        authority = cluster.get("certificate-authority-data")
        data = base64.b64decode(authority).decode() if authority else None
        tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=data)
        if "client-certificate-data" in user:
            _load_client_certificate(tls, user)
        return cls(cluster["server"], user.get("token", ""), tls)

    def get(self, path: str) -> dict[str, Any]:
        return self.call("GET", path)

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        found: list[dict[str, Any]] = self.get(path)["items"]
        return found

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.call("POST", path, body)

    def patch(self, path: str, body: object, kind: str = "merge") -> dict[str, Any]:
        return self.call("PATCH", path, body, _PATCHES[kind])

    def delete(self, path: str) -> dict[str, Any]:
        return self.call("DELETE", path)

    def exists(self, path: str) -> bool:
        try:
            self.read(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def call(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """One call whose answer is JSON.

        Raises:
            ApiError: The API server refused.
            OSError: It couldn't be reached.
        """
        answer: dict[str, Any] = json.loads(self.read(path, method, body, content_type))
        return answer

    def read(
        self, path: str, method: str = "GET", body: object = None, content_type: str = "application/json"
    ) -> bytes:
        """As `call`, for answers of any kind: logs, `/readyz`, what a service behind the proxy says."""
        headers = {"Content-Type": content_type}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=self.timeout) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, _message(error.read())) from None


def write_kubeconfig(path: Path, server: str, token: str, ca: Path) -> None:
    """Writes a kubeconfig for one user that only its owner can read; JSON is YAML as well."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plane", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "user"}}],
        "current-context": "plane",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config), encoding="utf-8")


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _load_client_certificate(tls: ssl.SSLContext, user: dict[str, Any]) -> None:
    """OpenSSL reads these only from files, so they lie in one for a moment."""
    both = base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"])
    handle, name = tempfile.mkstemp()
    try:
        os.write(handle, both)
        tls.load_cert_chain(name)
    finally:
        os.close(handle)
        Path(name).unlink()


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")[:500]
