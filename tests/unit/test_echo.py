"""Rank 0's log on the driver's output: every line once, in order, complete at the end, whoever reads."""

import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kinetic_ray.core.names import JobKeys
from kinetic_ray.errors import StoreError
from kinetic_ray.runner.echo import Echo
from kinetic_ray.store import Store, open_store
from tests.waiting import wait_until

KEYS = JobKeys("job-0000000000e008000000000000")


@dataclass
class Bench:
    """A store to write logs to, and an echo that writes to a file."""

    store: Store
    out: Path
    echo: Echo

    def write(self, text: bytes, attempt: int = 1) -> None:
        key = KEYS.log(1, attempt, 0)
        self.store.put(key, (self.store.find(key) or b"") + text)

    def shown(self) -> str:
        return self.out.read_text(encoding="utf-8")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self.shown() == text, 20, f"{text!r} to be shown")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = open_store(f"memory://{uuid.uuid4()}")
    with (tmp_path / "out").open("wb") as out:
        bench = Bench(store, tmp_path / "out", Echo(store, KEYS, 1, out.fileno()))
        yield bench
        bench.echo.close()


def test_lines_come_while_the_rank_runs_and_all_are_there_at_the_end(bench: Bench) -> None:
    with bench.echo.attempt(1):
        bench.write(b"first\n")
        bench.wait_for("first\n")
        bench.write(b"second\n")
        bench.wait_for("first\nsecond\n")
        bench.write(b"last words")
    bench.echo.say("train SUCCEEDED")
    bench.echo.close()
    assert bench.shown() == "first\nsecond\nlast words\nkinetic: train SUCCEEDED\n"


def test_attempts_follow_each_other_each_to_its_end(bench: Bench) -> None:
    with bench.echo.attempt(1):
        bench.write(b"one\n")
    bench.echo.say("attempt 1 failed, attempt 2 follows. NodeLost: gone")
    with bench.echo.attempt(2):
        bench.write(b"two\n", attempt=2)
    with bench.echo.attempt(3):  # ends before its rank has begun
        pass
    bench.echo.close()
    assert bench.shown() == "one\nkinetic: attempt 1 failed, attempt 2 follows. NodeLost: gone\ntwo\n"


def test_a_job_that_never_ran_has_only_its_end(bench: Bench) -> None:
    bench.echo.say("train FAILED, Unschedulable: no room")
    bench.echo.close()
    bench.echo.close()
    assert bench.shown() == "kinetic: train FAILED, Unschedulable: no room\n"


@pytest.mark.parametrize(
    "end", [b"\n", b"", b"\xe6\x97", b"\xff"], ids=["whole", "open", "half a character", "no text"]
)
def test_what_is_shown_is_text_that_ends_its_last_line(bench: Bench, end: bytes) -> None:
    """Ray decodes what it shows, strictly: one wrong byte would cost all of the log."""
    with bench.echo.attempt(1):
        bench.write(b"\x1b[31m\xfe\x00 progress 1\rprogress 2" + end)
    bench.echo.close()
    text = (b"\x1b[31m\xfe\x00 progress 1\rprogress 2" + end).decode("utf-8", "replace").removesuffix("\n")
    assert bench.out.read_bytes().decode("utf-8") == text + "\n"


def test_a_character_that_comes_in_two_parts_is_shown_once_it_is_whole(bench: Bench) -> None:
    with bench.echo.attempt(1):
        bench.write("ab\n日".encode()[:-1])
        bench.wait_for("ab\n")
        bench.write("日".encode()[-1:])
        bench.wait_for("ab\n日")


def test_a_log_larger_than_a_look_is_shown_whole(bench: Bench) -> None:
    text = "".join(f"line {number}\n" for number in range(200_000))
    with bench.echo.attempt(1):
        bench.write(text.encode())
    bench.echo.close()
    assert bench.shown() == text


def test_a_reader_that_takes_nothing_holds_nothing_up() -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    read, write = os.pipe()
    echo = Echo(store, KEYS, 1, write, patience=0.2)
    with echo.attempt(1):
        store.put(KEYS.log(1, 1, 0), b"x" * (1 << 20))
    echo.say("the end")
    echo.close()  # which returns
    with os.fdopen(read, "rb") as pipe:  # now somebody reads, and gets all of it
        threading.Thread(target=_close_when_done, args=(echo, write)).start()
        assert pipe.read() == b"x" * (1 << 20) + b"\nkinetic: the end\n"


def _close_when_done(echo: Echo, write: int) -> None:
    wait_until(lambda: not echo.is_busy, 20, "the echo to end")
    os.close(write)


def test_a_reader_that_has_gone_is_no_error() -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    read, write = os.pipe()
    os.close(read)
    echo = Echo(store, KEYS, 1, write)
    with echo.attempt(1):
        store.put(KEYS.log(1, 1, 0), b"to nobody\n")
    echo.say("the end")
    echo.close()
    os.close(write)
    assert not echo.is_busy


class _Away:
    """A store that is out of reach, as often as is said."""

    pace = 0.0

    def __init__(self, store: Store, times: int) -> None:
        self._store = store
        self._left = times

    def read_range(self, key: str, offset: int, limit: int | None = None) -> bytes:
        if self._left > 0:
            self._left -= 1
            raise StoreError("out of reach")
        return self._store.read_range(key, offset, limit)

    def list(self, prefix: str) -> list[str]:
        return self._store.list(prefix)


def test_a_store_that_is_away_for_a_moment_costs_no_line(tmp_path: Path) -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    store.put(KEYS.log(1, 1, 0), b"all of it\n")
    with (tmp_path / "out").open("wb") as out:
        echo = Echo(_Away(store, 3), KEYS, 1, out.fileno())  # type: ignore[arg-type] # all that an echo asks of one
        with echo.attempt(1):
            pass
        echo.close()
    assert (tmp_path / "out").read_text() == "all of it\n"


def test_a_store_that_stays_away_holds_nothing_up(tmp_path: Path) -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    with (tmp_path / "out").open("wb") as out:
        away = _Away(store, 4)
        echo = Echo(away, KEYS, 1, out.fileno(), patience=0.05)  # type: ignore[arg-type]
        with echo.attempt(1):
            pass
        echo.close()
        assert echo.is_busy
        wait_until(lambda: not echo.is_busy, 20, "it to end all the same once the store is back")
