"""Ways to reach a bucket, against a real server on this machine: `python -m benchmarks.stores`.

Needs the extra `dev`; gcsfs, google-cloud-storage and obstore join in where they are installed.
"""

import argparse
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from benchmarks.harness import Contender, interleave, machine, table, timed
from kinetic_ray.testing.fake_gcs import FakeGcs, fake_gcs

BUCKET = "benchmark"
SMALL, LARGE = b"x" * 1024, os.urandom(64 << 20)
KEYS, WRITERS = 10_000, 8
# Else it asks Google itself, by gRPC, whether the bucket has folders, and waits for up to a minute at every put.
GCSFS_OFFLINE = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


class Client(Protocol):
    """What a store needs of a bucket; `create` tells whether it was this call that made the object."""

    def create(self, key: str, data: bytes) -> bool: ...
    def put(self, key: str, data: bytes) -> None: ...
    def get(self, key: str) -> bytes: ...
    def part(self, key: str, start: int, size: int) -> bytes: ...
    def names(self, prefix: str) -> Sequence[str]: ...
    def delete(self, key: str) -> None: ...


class Ours:
    """The JSON interface by urllib3, as the `gs://` store uses it."""

    imports = "urllib3, google.auth"

    def __init__(self, url: str) -> None:
        import urllib3

        self._pool: Any = urllib3.PoolManager(maxsize=WRITERS)
        self._objects = f"{url}/storage/v1/b/{BUCKET}/o"
        self._upload = f"{url}/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart"

    def create(self, key: str, data: bytes) -> bool:
        return self._send(key, data, "&ifGenerationMatch=0") == 200

    def put(self, key: str, data: bytes) -> None:
        self._send(key, data, "")

    def _send(self, key: str, data: bytes, condition: str) -> int:
        head = f'--cut\r\nContent-Type: application/json\r\n\r\n{{"name": "{key}"}}\r\n--cut\r\n\r\n'.encode()
        kind = {"Content-Type": "multipart/related; boundary=cut"}
        answer = self._pool.request("POST", self._upload + condition, body=head + data + b"\r\n--cut--", headers=kind)
        return int(answer.status)

    def get(self, key: str) -> bytes:
        return bytes(self._pool.request("GET", self._object(key) + "?alt=media").data)

    def part(self, key: str, start: int, size: int) -> bytes:
        wanted = {"Range": f"bytes={start}-{start + size - 1}"}
        return bytes(self._pool.request("GET", self._object(key) + "?alt=media", headers=wanted).data)

    def names(self, prefix: str) -> Sequence[str]:
        query = urllib.parse.urlencode({"prefix": prefix, "fields": "items(name),nextPageToken"})
        answer = self._pool.request("GET", f"{self._objects}?{query}").json()
        return [item["name"] for item in answer["items"]]

    def delete(self, key: str) -> None:
        self._pool.request("DELETE", self._object(key))

    def _object(self, key: str) -> str:
        return f"{self._objects}/{urllib.parse.quote(key, safe='')}"


class Google:
    """google-cloud-storage."""

    imports = "google.cloud.storage"

    def __init__(self, url: str) -> None:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        options = {"api_endpoint": url}
        client = storage.Client(project="kinetic", credentials=AnonymousCredentials(), client_options=options)
        self._bucket: Any = client.bucket(BUCKET)

    def create(self, key: str, data: bytes) -> bool:
        from google.api_core.exceptions import PreconditionFailed

        try:
            self._bucket.blob(key).upload_from_string(data, if_generation_match=0)
        except PreconditionFailed:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        self._bucket.blob(key).upload_from_string(data)

    def get(self, key: str) -> bytes:
        return bytes(self._bucket.blob(key).download_as_bytes())

    def part(self, key: str, start: int, size: int) -> bytes:
        return bytes(self._bucket.blob(key).download_as_bytes(start=start, end=start + size - 1))

    def names(self, prefix: str) -> Sequence[str]:
        return [blob.name for blob in self._bucket.list_blobs(prefix=prefix, fields="items(name),nextPageToken")]

    def delete(self, key: str) -> None:
        self._bucket.blob(key).delete()


class Gcsfs:
    """gcsfs."""

    imports = "gcsfs"

    def __init__(self, url: str) -> None:
        os.environ.update(GCSFS_OFFLINE)  # read when it is imported
        import gcsfs

        self._fs: Any = gcsfs.GCSFileSystem(token="anon", endpoint_url=url, use_listings_cache=False)

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._fs.pipe_file(f"{BUCKET}/{key}", data, mode="create")
        except FileExistsError:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        self._fs.pipe_file(f"{BUCKET}/{key}", data)

    def get(self, key: str) -> bytes:
        return bytes(self._fs.cat_file(f"{BUCKET}/{key}"))

    def part(self, key: str, start: int, size: int) -> bytes:
        return bytes(self._fs.cat_file(f"{BUCKET}/{key}", start, start + size))

    def names(self, prefix: str) -> Sequence[str]:
        return list(self._fs.find(f"{BUCKET}/{prefix}"))

    def delete(self, key: str) -> None:
        self._fs.rm_file(f"{BUCKET}/{key}")


class Obstore:
    """obstore."""

    imports = "obstore"

    def __init__(self, url: str) -> None:
        from obstore.store import GCSStore

        fields = ("client_email", "private_key", "private_key_id")
        account = json.dumps({"gcs_base_url": url, "disable_oauth": True, **dict.fromkeys(fields, "")})
        options, once = {"allow_http": True}, {"max_retries": 0}
        config = {"service_account_key": account}
        self._store: Any = GCSStore(BUCKET, config=config, client_options=options, retry_config=once)

    def create(self, key: str, data: bytes) -> bool:
        import obstore

        try:
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        import obstore

        obstore.put(self._store, key, data, use_multipart=False)

    def get(self, key: str) -> bytes:
        import obstore

        return bytes(obstore.get(self._store, key).bytes())

    def part(self, key: str, start: int, size: int) -> bytes:
        import obstore

        return bytes(obstore.get_range(self._store, key, start=start, length=size))

    def names(self, prefix: str) -> Sequence[str]:
        import obstore

        return [item["path"] for batch in obstore.list(self._store, prefix) for item in batch]

    def delete(self, key: str) -> None:
        import obstore

        obstore.delete(self._store, key)


CLIENTS: dict[str, Callable[[str], Client]] = {
    "kinetic_ray": Ours,
    "google-cloud-storage": Google,
    "gcsfs": Gcsfs,
    "obstore": Obstore,
}


def acts(client: Client, name: str) -> dict[str, Callable[[], object]]:
    """What is measured; every call on keys of its own where it makes some."""
    fresh = (f"{name}/{number}" for number in itertools.count())
    threads = ThreadPoolExecutor(WRITERS)

    def create_and_delete() -> None:
        client.create(key := next(fresh), SMALL)
        client.delete(key)

    def create_together() -> None:
        list(threads.map(lambda key: client.create(key, SMALL), [next(fresh) for _ in range(100)]))

    return {
        "create 1 KB": lambda: client.create(next(fresh), SMALL),
        "create 1 KB that is there": lambda: client.create("there", SMALL),
        "create and delete 1 KB": create_and_delete,
        "put 1 KB": lambda: client.put(f"{name}/one", SMALL),
        "get 1 KB": lambda: client.get("there"),
        "range of 1 KB in 64 MB": lambda: client.part("large", 12345, 1024),
        f"create 100 x 1 KB in {WRITERS} threads": create_together,
        f"list {KEYS:,}": lambda: client.names("many/"),
        "put 64 MB": lambda: client.put(f"{name}/large", LARGE),
        "get 64 MB": lambda: client.get("large"),
    }


def run(rounds: int) -> str:
    """Compares the clients that are installed; faults of theirs stand above the tables."""
    with fake_gcs() as server:
        server.make_bucket(BUCKET)
        fill(server)
        clients = {name: make(server.url) for name, make in CLIENTS.items() if is_installed(name)}
        found = {name: acts(client, name) for name, client in clients.items()}
        lines = []
        for act in found["kinetic_ray"]:
            contenders, broken = usable(act, {name: each[act] for name, each in found.items()})
            count = max(3, rounds // 10) if act.endswith(("MB", f"{KEYS:,}", "threads")) else rounds
            lines += [*broken, table(act, interleave(contenders, count)), ""]
        races = {name: race(client, name) for name, client in clients.items() if name != "obstore"}
    lines += [f"{name}: {won} of 800 creations of 100 keys were told to be the first" for name, won in races.items()]
    return "\n".join([*lines, "", table("import", interleave(imports(), max(3, rounds // 10)))])


def is_installed(name: str) -> bool:
    return name == "kinetic_ray" or _module(name) is not None


def _module(name: str) -> object:
    try:
        return importlib.util.find_spec({"google-cloud-storage": "google.cloud.storage"}.get(name, name))
    except ModuleNotFoundError:
        return None


def fill(server: FakeGcs) -> None:
    """What is read and listed."""
    client = Ours(server.url)
    client.put("there", SMALL)
    client.put("large", LARGE)
    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(lambda number: client.put(f"many/{number % 100:02d}/{number}", b"x"), range(KEYS)))


def usable(act: str, ways: dict[str, Callable[[], object]]) -> tuple[list[Contender], list[str]]:
    """Those that can do it, and what became of the others."""
    contenders, broken = [], []
    for name, way in ways.items():
        try:
            way()
        except Exception as error:  # noqa: BLE001 - whatever another client raises is the finding
            text = " ".join(str(error).split())[:150]
            broken.append(f"{name} can't {act}: {type(error).__name__}: {text}")
        else:
            contenders.append(Contender(name, timed(way)))
    return contenders, broken


def race(client: Client, name: str) -> int:
    """Lets threads race for 100 keys; how many of them were told that they had made an object."""
    keys = [f"race/{name}/{number}" for number in range(100)]
    with ThreadPoolExecutor(WRITERS) as threads:
        won = threads.map(lambda _: sum(client.create(key, SMALL) for key in keys), range(WRITERS))
        return sum(won)


def imports() -> list[Contender]:
    """A process that imports what the client needs."""

    def process(modules: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)

    modules = {name: str(getattr(kind, "imports", "")) for name, kind in CLIENTS.items() if is_installed(name)}
    return [Contender(name, timed(process(needed))) for name, needed in modules.items()]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="samples of what is small (default 50)")
    rounds = parser.parse_args().rounds
    print(machine(), flush=True)
    print(run(rounds))


if __name__ == "__main__":
    main()
