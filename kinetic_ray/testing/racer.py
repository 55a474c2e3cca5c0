"""One of several writers that race to create the same objects; a process of its own where the store allows it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence

from kinetic_ray.store import Store, open_store

_DEADLINE = 120.0  # seconds; a hung writer fails the test instead of holding it up


def race_in_threads(store: Store, keys: Sequence[str], writers: int) -> list[set[str]]:
    """Lets threads race.

    Returns:
        For each writer, the keys that it was told to have created.
    """
    won: list[set[str]] = [set() for _ in range(writers)]
    start = threading.Barrier(writers)

    def write(number: int) -> None:
        start.wait(_DEADLINE)
        won[number] = create_all(store, keys, number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_DEADLINE)
    return won


def race_in_processes(url: str, keys: Sequence[str], writers: int) -> list[set[str]]:
    """Lets processes race, which open the store by its address; see :func:`race_in_threads`."""
    command = [sys.executable, "-m", "kinetic_ray.testing.racer", url]
    racers: list[subprocess.Popen[str]] = []
    try:
        for number in range(writers):
            racer_command = [*command, str(number), *keys]
            racers.append(subprocess.Popen(racer_command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return [set(racer.communicate(timeout=_DEADLINE)[0].split()) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def create_all(store: Store, keys: Sequence[str], number: int) -> set[str]:
    """Tries to create every key, in order, with content that names the writer; gives those it created."""
    return {key for key in keys if store.create(key, content(key, number))}


def content(key: str, number: int) -> bytes:
    """What a writer stores under a key: large enough to be torn, were it written in place."""
    return f"{key} by {number};".encode() * 1000


def _main(url: str, number: str, *keys: str) -> None:
    store = open_store(url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write("\n".join(create_all(store, keys, int(number))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
