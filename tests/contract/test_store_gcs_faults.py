"""A bucket whose server is slow, busy, restarted or gone: nothing is lost, nothing is done twice, all ends in time."""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinetic_ray.errors import ConfigError, StoreError
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.gcs import open_bucket
from kinetic_ray.store.gcs_wire import Limits
from kinetic_ray.testing.fake_gcs import FakeGcs, fake_gcs
from tests.contract.conftest import BUCKET
from tests.contract.storage_proxy import Fault, Proxy, proxy_before

LARGE = os.urandom(3_000_000)
SHORT = Limits(connect=30.0, silence=0.5, unreachable=0.3, trouble=0.3)


@pytest.fixture
def proxy(storage: FakeGcs) -> Iterator[Proxy]:
    with proxy_before(storage.url) as proxy:
        yield proxy


@pytest.fixture
def address(proxy: Proxy, storage: FakeGcs) -> Iterator[str]:
    """Of a store behind the proxy."""
    with storage.active(proxy.url):
        yield f"{BUCKET}/{uuid.uuid4()}"


@pytest.fixture
def store(address: str, proxy: Proxy) -> Store:
    store = open_store(f"gs://{address}")
    store.put("there", LARGE)
    proxy.clear()
    return store


@pytest.fixture
def hasty(address: str, store: Store) -> Store:
    """The same with little patience."""
    return Store(open_bucket(address, SHORT))


ACTS: dict[str, tuple[str, Callable[[Store], object], object]] = {
    "create": ("POST", lambda store: store.create("new", LARGE), True),
    "create what is there": ("POST", lambda store: store.create("there", b"x"), False),
    "put": ("POST", lambda store: store.put("there", b"x"), None),
    "find": ("GET", lambda store: store.find("there"), LARGE),
    "range": ("GET", lambda store: store.read_range("there", 7, 100_000), LARGE[7:100_007]),
    "size": ("GET", lambda store: store.size("there"), len(LARGE)),
    "exists": ("GET", lambda store: store.exists("none"), False),
    "walk": ("GET", lambda store: store.walk(""), ["format.json", "there"]),
    "delete": ("DELETE", lambda store: store.delete("there"), None),
}
FAULTS = {
    "busy before": Fault("refuse", "", 2),
    "too many": Fault("refuse", "", 2, 429),
    "busy after": Fault("busy", "", 2),
    "cut off": Fault("cut", "", 2),
    "half an answer": Fault("half", "", 2),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("act", ACTS)
def test_trouble_that_passes_is_not_noticed(store: Store, proxy: Proxy, act: str, fault: str) -> None:
    method, do, expected = ACTS[act]
    kind = FAULTS[fault]
    proxy.add(Fault(kind.how, method, kind.times, kind.status))
    assert do(store) == expected
    proxy.clear()
    if act == "create":
        assert store.get("new") == LARGE
    if act in ("create what is there", "find"):
        assert store.get("there") == LARGE


def test_a_request_that_arrived_in_half_makes_nothing(store: Store, proxy: Proxy) -> None:
    proxy.add(Fault("torn", "POST", 2))
    assert store.create("new", LARGE) is True
    assert store.get("new") == LARGE


def test_who_lost_a_race_is_told_so_also_after_trouble(store: Store, proxy: Proxy) -> None:
    """That a creation is repeated, and finds an object, doesn't make that object its own."""
    other = open_store(store.url)
    proxy.add(Fault("refuse", "POST", 1))
    waiting = threading.Thread(target=store.create, args=("probe", b"x"))
    waiting.start()
    waiting.join()
    assert other.create("claim", b"theirs") is True
    proxy.add(Fault("busy", "POST", 1))
    assert store.create("claim", b"ours") is False
    assert store.get("claim") == b"theirs"


@pytest.mark.parametrize("how", ["refuse", "cut", "hang", "half"])
def test_trouble_that_stays_ends_in_time_and_says_so(hasty: Store, proxy: Proxy, how: str) -> None:
    proxy.add(*(Fault(how, method, -1) for method in ("GET", "POST", "DELETE")))
    for act in (lambda: hasty.get("there"), lambda: hasty.create("new", b"x"), lambda: hasty.delete("there")):
        with pytest.raises(StoreError, match=r"the store gs://.* refused .*(told so|broke|does not answer)"):
            act()


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (401, "Invalid Credentials", r"credentials are not accepted \(HTTP 401: Invalid Credentials\)"),
        (
            403,
            "a@b does not have storage.objects.get access",
            r"no permission: roles/storage.objectUser .*a@b does not",
        ),
        (400, "odd", r"refuses the request \(HTTP 400: odd\)"),
        (302, "", r"refuses the request \(HTTP 302"),
    ],
)
def test_a_refusal_is_told_at_once_with_its_words(
    store: Store, proxy: Proxy, status: int, message: str, expected: str
) -> None:
    body = f'{{"error":{{"code":{status},"message":"{message}"}}}}'.encode()
    proxy.add(*(Fault("refuse", method, -1, status, body) for method in ("GET", "POST", "DELETE")))
    for act in (lambda: store.get("there"), lambda: store.put("x", b""), lambda: store.list(""), store.require):
        with pytest.raises(StoreError, match=expected):
            act()
    assert len(proxy.asked) <= 8  # twice where credentials may have been too old
    with pytest.raises(ConfigError, match=expected):
        open_store(store.url)


def test_a_bucket_that_is_not_there_is_named(storage: FakeGcs) -> None:
    for create in (True, False):
        with pytest.raises(ConfigError, match=r"there is no bucket 'kinetic-none': make it, or name another"):
            open_store("gs://kinetic-none/x", create=create)


def test_an_address_that_nobody_answers_is_named(storage: FakeGcs) -> None:
    with storage.active("http://127.0.0.1:9"):
        store = Store(open_bucket("kinetic-none/x", SHORT))
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:9 can't be reached .*: is this machine online\?"):
            store.get("a")


def test_a_server_that_is_killed_and_started_again_loses_nothing(tmp_path: Path) -> None:
    """Killed between two requests: in the middle of one this server leaves files that it can't list any more."""
    with fake_gcs(tmp_path) as server, server.active():
        server.make_bucket(BUCKET)
        open_store(f"gs://{BUCKET}/run")
        store = Store(open_bucket(f"{BUCKET}/run", Limits(unreachable=120.0, trouble=120.0)))
        for number in range(150):
            returning = threading.Thread(target=server.restart)
            if number in (50, 100):
                server.kill()
                returning.start()
            assert store.create(f"events/{number}", b"%d" % number * 1000) is True
            if returning.ident is not None:
                returning.join()
        assert len(store.list("events")) == 150
        assert store.get("events/149") == b"149" * 1000


def test_connections_are_used_again(store: Store, proxy: Proxy) -> None:
    place = open_bucket(store.url.removeprefix("gs://"))
    again = Store(place)
    for number in range(20):
        again.create(f"a/{number}", b"x")
        assert again.exists(f"a/{number}")
    pool = place._objects._wire._pool.connection_from_url(proxy.url)
    assert pool.num_connections == 1


@pytest.mark.parametrize(
    "url",
    [
        "gs://",
        "gs:///x",
        "gs://B",
        "gs://bucket/../x",
        "gs://bucket//x",
        "gs://user:pw@bucket/x",
        f"gs://bucket/{'x' * 201}",
        "gs://bucket/a\nb",
    ],
)
def test_addresses_of_no_bucket_are_refused(storage: FakeGcs, url: str) -> None:
    with pytest.raises(ConfigError, match="can't be a store"):
        open_store(url)


def test_a_whole_bucket_is_a_store_and_folders_of_other_programs_are_none(storage: FakeGcs) -> None:
    storage.make_bucket("kinetic-whole")
    store = open_store("gs://kinetic-whole/")
    assert (store.url, store.uri("a"), open_store("gs://kinetic-whole").url) == (
        "gs://kinetic-whole",
        "gs://kinetic-whole/a",
        "gs://kinetic-whole",
    )
    place = open_bucket("kinetic-whole")
    staged = place.stage()
    staged.publish("jobs/", replace=True, durable=True)  # as a browser makes a folder
    staged.discard()
    store.create("jobs/a", b"")
    assert (store.walk(""), store.list("jobs")) == (["format.json", "jobs/a"], ["jobs/a"])
    store.delete_tree("jobs")
    assert store.walk("") == ["format.json"]
