"""Kills processes that use a folder store, and looks at what they leave; a script, since it forks.

Before every call to the operating system that an operation makes, and at seeded moments of a busy writer.
"""

import itertools
import os
import random
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kinetic_ray.store import Store, open_store

OLD = {
    "format.json": b'{"format":"kinetic-store","version":1}\n',
    "jobs/old/spec.json": b"spec",
    "jobs/old/heartbeat": b"1",
    "jobs/doomed/spec.json": b"spec",
    "jobs/doomed/events/1": b"one",
    "jobs/doomed/events/2": b"two",
}
NEW = b"new " * 100_000
KILLS = 40


@dataclass(frozen=True)
class Case:
    """An operation, the object that it makes or changes (or the tree that it removes), and the result."""

    act: Callable[[Store, Path], object]
    key: str
    after: bytes | None


CASES = {
    "create": Case(lambda s, _: s.create("jobs/new/spec.json", NEW), "jobs/new/spec.json", NEW),
    "put": Case(lambda s, _: s.put("jobs/old/heartbeat", NEW), "jobs/old/heartbeat", NEW),
    "put_blob": Case(lambda s, _: s.put_blob(NEW), "blobs/", NEW),
    "put_file": Case(lambda s, above: s.put_blob(above / "source"), "blobs/", NEW),
    "write_object": Case(lambda s, _: s.write_object("jobs/old/value", [NEW[:9], NEW[9:]]), "jobs/old/value", NEW),
    "delete": Case(lambda s, _: s.delete("jobs/old/spec.json"), "jobs/old/spec.json", None),
    "delete_tree": Case(lambda s, _: s.delete_tree("jobs/doomed"), "jobs/doomed/", None),
}


def main(base: Path, seed: int) -> None:
    for name, case in CASES.items():
        steps = next(step for step in itertools.count() if not killed_at(step, base / name, case))
        assert steps > 5, f"{name} has only {steps} steps: nothing was counted"
        say(f"{name}: killed before each of {steps} steps")
    steps = next(step for step in itertools.count() if not killed_while_opening(step, base / "open"))
    say(f"open: killed before each of {steps} steps")
    steps = next(step for step in itertools.count() if not killed_while_fetching(step, base / "fetch"))
    say(f"fetch_blob: killed before each of {steps} steps")
    kill_busy_writers(base / "busy", random.Random(seed))
    say(f"a busy writer: killed {KILLS} times")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def killed_at(step: int, above: Path, case: Case) -> bool:
    """Lets a process do the operation, kills it before one step, checks the store; False once it comes through."""
    shutil.rmtree(above, ignore_errors=True)
    store = open_store(above / "store")
    (above / "source").write_bytes(NEW)
    for key, data in OLD.items():
        store.put(key, data)
    killed = run_killed(step, lambda: case.act(store, above))
    check(store, case, finished=not killed)
    case.act(open_store(above / "store"), above)
    check(store, case, finished=True)
    return killed


def check(store: Store, case: Case, *, finished: bool) -> None:
    """Nothing but the operation's own object differs, and that is as before or as after."""
    found = {key: store.get(key) for key in store.walk("")}
    changed = {key: data for key, data in found.items() if key.startswith(case.key)}
    before = {key: data for key, data in OLD.items() if key.startswith(case.key)}
    rest = {key: data for key, data in OLD.items() if key not in before}
    assert {key: data for key, data in found.items() if key not in changed} == rest
    done = list(changed.values()) == ([] if case.after is None else [case.after])
    assert done or (not finished and changed == before), f"neither before nor after: {sorted(changed)}"


def killed_while_opening(step: int, folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    killed = run_killed(step, lambda: open_store(folder))
    assert open_store(folder).walk("") == ["format.json"]
    return killed


def killed_while_fetching(step: int, above: Path) -> bool:
    shutil.rmtree(above, ignore_errors=True)
    store = open_store(above / "store")
    blob, target = store.put_blob(NEW), above / "target"
    killed = run_killed(step, lambda: store.fetch_blob(blob, target))
    assert target.read_bytes() == NEW if target.exists() else killed, "the target is torn"
    store.fetch_blob(blob, target)
    return killed


def run_killed(step: int, act: Callable[[], object]) -> bool:
    """Forks a process that acts, and kills itself before its call number `step` to the operating system."""
    process = os.fork()
    if process == 0:
        left = step

        def count(frame: object, event: str, function: object) -> None:
            nonlocal left
            if event == "c_call" and getattr(function, "__module__", None) in {"posix", "_io"}:
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

        sys.setprofile(count)
        exit_after(act)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the operation failed"
    return os.WIFSIGNALED(status)


def exit_after(act: Callable[[], object]) -> NoReturn:
    """Acts and ends this forked process without its parent's clean-up."""
    code = 1
    try:
        act()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def content(number: int) -> bytes:
    """What the busy writer stores: its size and every byte follow from the first eight."""
    return f"{number:08d}".encode() * random.Random(number).randrange(1, 100_000)


def kill_busy_writers(folder: Path, dice: random.Random) -> None:
    store = open_store(folder)
    for run in range(KILLS):
        process = os.fork()
        if process == 0:
            exit_after(lambda run=run: write_busily(store, run * 1000))
        select.select([], [], [], dice.uniform(0, 0.06))  # that long, then whatever it is doing ends
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        for key in open_store(folder).walk(""):
            data = store.get(key)
            assert key == "format.json" or data == content(int(data[:8])), f"{key} is torn: {len(data)} bytes"
        store.delete_tree("jobs")
        store.delete_tree("blobs")


def write_busily(store: Store, start: int) -> None:
    for number in itertools.count(start):
        data = content(number)
        store.create(f"jobs/{number}/spec", data)
        store.put("jobs/hot", data)
        store.write_object(f"jobs/{number}/value", [data[:1000], data[1000:]])
        store.put_blob(data)
        store.delete_tree(f"jobs/{number - 2}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
