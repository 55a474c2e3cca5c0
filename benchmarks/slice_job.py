"""The part of the slice benchmarks that runs inside the embedded cluster: `slice_job start|repeat|raw STORE N OUT`."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.gang import AgentGang, GangFailed, Slice, attach, raw_gang
from benchmarks.harness import Contender, interleave
from benchmarks.slices import COLD, RAW, TRAINER, WARM
from benchmarks.trainer import LEFT_OUT, is_installed, train_once, trainer_hosts


def compare_starts(store: str, rounds: int) -> dict[str, object]:
    """Seconds from the start of a gang to its first all-reduce, contender by contender."""
    place = Slice()
    standing = AgentGang(place, store)

    def since_now(act: Callable[[], float]) -> Callable[[], float]:
        def sample() -> float:
            start = time.time()
            return act() - start

        return sample

    def cold() -> float:
        gang = AgentGang(place, store)
        try:
            return gang.run()
        finally:
            gang.stop()

    contenders = [
        Contender(WARM, since_now(standing.run)),
        Contender(COLD, since_now(cold)),
        Contender(RAW, since_now(lambda: raw_gang(place))),
    ]
    notes = []
    with ExitStack() as hosts:
        if is_installed():
            hosts.enter_context(trainer_hosts(place.name))
            contenders.append(Contender(TRAINER, since_now(train_once)))
        else:
            notes.append(LEFT_OUT)
        samples = interleave(contenders, rounds)
    standing.stop()
    place.release()
    return {"samples": samples, "notes": notes}


def repeat_gangs(store: str, count: int) -> dict[str, object]:
    """Clean gangs in a row in one driver: how long each took, and what went wrong."""
    place = Slice()
    gang = AgentGang(place, store)
    seconds: list[float] = []
    failures: list[str] = []
    for number in range(1, count + 1):
        start = time.time()
        try:
            gang.run()
        except GangFailed as failure:
            failures.append(f"gang {number}: {failure}")
        seconds.append(time.time() - start)
        if number % 25 == 0:
            print(f"{number} gangs, {len(failures)} failed", flush=True)
    gang.stop()
    place.release()
    return {"samples": {"a clean gang, start to end": seconds}, "notes": failures}


def new_raw_gangs(_store: str, count: int) -> dict[str, object]:
    """Seconds from the creation of four plain actors to the first all-reduce of their devices."""
    place = Slice()
    seconds = []
    for _ in range(count):
        start = time.time()
        seconds.append(raw_gang(place) - start)
    place.release()
    return {"samples": {RAW: seconds}, "notes": []}


def main() -> None:
    """Runs one of the three and leaves its figures in the file OUT."""
    what, store, count, out = sys.argv[1:]
    attach()
    found = {"start": compare_starts, "repeat": repeat_gangs, "raw": new_raw_gangs}[what](store, int(count))
    half = Path(out).with_suffix(".half")
    half.write_text(json.dumps(found), encoding="utf-8")
    half.rename(out)


if __name__ == "__main__":
    main()
