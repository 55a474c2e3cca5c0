"""Ray-style calls: a warm call, large arguments, and the call after a killed rank, each against plain Ray."""

import contextlib
import hashlib
import os
import signal
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import kinetic_ray as kinetic
from benchmarks.harness import Aim, Contender, Samples, interleave, table, timed
from benchmarks.peers import peers
from benchmarks.slices import RAW, in_the_cluster
from kinetic_ray.errors import JobFailed

ACCELERATOR, HOSTS, ONE_HOST = "tpu-v6e-16", 4, "tpu-v6e-4"
BIG = 100 << 20  # bytes
NEXT = "kinetic, the next call"


@kinetic.remote
def no_op() -> int:
    """Does nothing, on CPUs."""
    return 1


@kinetic.remote(accelerator=ONE_HOST)
def no_op_on_a_slice() -> int:
    """Does nothing, on the one host of a slice."""
    return 1


@kinetic.remote(accelerator=ONE_HOST)
def node_of_a_slice() -> str:
    """Which Ray node the one host of a slice is."""
    return os.environ["KINETIC_NODE_ID"]


@kinetic.remote(accelerator=ACCELERATOR)
def no_op_on_four_hosts() -> int:
    """Does nothing, on all hosts of a slice."""
    return 1


@kinetic.remote
def size_of(data: Any) -> int:
    """Takes something large."""
    return len(data)


@kinetic.remote
def give(size: int) -> Any:
    """Gives something large."""
    import numpy as np

    return np.ones(size, dtype=np.uint8)


def warm(rounds: int) -> str:
    """A blocking call of a function that does nothing, everything warm."""
    one = table("a warm call, one host", *_one_host(rounds))
    four = table("a warm call, all of 4 hosts", *_four_hosts(rounds))
    return f"{one}\n\n{four}"


def _one_host(rounds: int) -> tuple[Samples, list[Aim]]:
    # Each against an actor on the very node that it runs on itself: a call to another one takes Ray longer.
    here, there = _raw_actor(), _raw_actor(kinetic.get(node_of_a_slice.remote()))
    contenders = [
        Contender("raw Ray actor", timed(_raw_getter(here.call.remote))),
        Contender("kinetic, cpu", timed(_getter(no_op.remote))),
        Contender(f"raw Ray actor, {ONE_HOST}", timed(_raw_getter(there.call.remote))),
        Contender(f"kinetic, {ONE_HOST}", timed(_getter(no_op_on_a_slice.remote))),
    ]
    samples = interleave(contenders, rounds, warm_up=20)
    with peers() as others:
        samples |= interleave(others, min(rounds, 20), warm_up=2)
    names = [contender.name for contender in contenders]
    aims = [Aim(ours, theirs, 1.25) for theirs, ours in zip(names[::2], names[1::2], strict=True)]
    return samples, aims + [Aim(aim.ours, aim.theirs, 1.5, percentile=99) for aim in aims]


def _four_hosts(rounds: int) -> tuple[Samples, list[Aim]]:
    raw = _raw_fan_out()
    ours = Contender("kinetic", timed(_getter(no_op_on_four_hosts.remote)))
    theirs = Contender("4 raw Ray actors through one", timed(_raw_getter(raw.call.remote)))
    return interleave([theirs, ours], rounds, warm_up=20), [Aim(ours.name, theirs.name, 2.0)]


def _getter(call: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: kinetic.get(call())


def _raw_getter(call: Callable[[], Any]) -> Callable[[], Any]:
    import ray

    return lambda: ray.get(call())


def _raw_actor(node: str | None = None) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Raw:
        def call(self) -> int:
            return 1

    kinetic.init()
    where = "DEFAULT" if node is None else NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(Raw).options(num_cpus=0, scheduling_strategy=where).remote()
    ray.get(actor.call.remote())
    return actor


def _raw_fan_out() -> Any:
    import ray

    class Fan:
        def __init__(self, actors: list[Any]) -> None:
            self._actors = actors

        def call(self) -> int:
            return int(ray.get([actor.call.remote() for actor in self._actors])[0])

    fan = ray.remote(Fan).options(num_cpus=0).remote([_raw_actor() for _ in range(HOSTS)])
    ray.get(fan.call.remote())
    return fan


def large(rounds: int) -> str:
    """100 MB as an argument, in a closure and as a value."""
    import numpy as np
    import ray

    raw = _raw_giver()
    data = np.random.default_rng(0).integers(0, 255, BIG, dtype=np.uint8)
    digest = Contender("sha256 of it", timed(lambda: hashlib.sha256(data).digest()))
    argument = Contender("as an argument, until the ref is there", lambda: _until_ref(lambda: size_of.remote(data)))
    closure = Contender("in a closure, until the ref is there", lambda: _until_ref(_closure(data).remote))
    sending = interleave([digest, argument, closure], rounds)
    ours = Contender("kinetic.get", lambda: _until_fetched(give.remote(BIG)))
    theirs = Contender("ray.get from a raw actor", lambda: _until_fetched(raw.give.remote(BIG)))
    getting = interleave([ours, theirs], rounds)
    aims = [Aim(argument.name, digest.name, 1.3), Aim(closure.name, digest.name, 1.3)]
    ray.kill(raw)
    lines = [
        table("100 MB sent", sending, aims),
        f"  largest extra memory of Python while it was sent: {_extra_memory(data) / 1e6:.1f} MB (aim < 10 MB)",
        "",
        table("100 MB as a value, once it is there", getting, [Aim(ours.name, theirs.name, 1.2)]),
    ]
    return "\n".join(lines)


def _closure(data: Any) -> Any:
    def length() -> int:
        return len(data)

    return kinetic.remote(length)


def _until_ref(call: Callable[[], Any]) -> float:
    """Seconds until the call has its ref; what happens then is waited for, but not counted."""
    start = time.perf_counter()
    ref = call()
    seconds = time.perf_counter() - start
    kinetic.get(ref)
    return seconds


def _until_fetched(ref: Any) -> float:
    kinetic.wait([ref])
    start = time.perf_counter()
    kinetic.get(ref)
    return time.perf_counter() - start


def _extra_memory(data: Any) -> int:
    """Bytes that Python had allocated at most beyond what there was, over a call with an argument and a closure."""
    tracemalloc.start()
    try:
        for call in (lambda: size_of.remote(data), _closure(data).remote):
            kinetic.get(call())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _raw_giver() -> Any:
    import ray

    class Giver:
        def give(self, size: int) -> Any:
            import numpy as np

            return np.ones(size, dtype=np.uint8)

    kinetic.init()
    return ray.remote(Giver).options(num_cpus=0).remote()


@kinetic.remote(accelerator=ACCELERATOR)
def sum_up(*, dies: int | None) -> None:
    """A collective on all devices; one rank may be killed before it."""
    from benchmarks.all_reduce import first_all_reduce

    if kinetic.context().rank == dies:
        os.kill(os.getpid(), signal.SIGKILL)
    first_all_reduce()


def revived(rounds: int) -> str:
    """The first all-reduce of a gang after one of its ranks was killed, against four new Ray actors."""
    found = in_the_cluster("raw", rounds, timeout=120 + 60 * (rounds + 1))
    samples = {NEXT: [_after_a_kill() for _ in range(rounds)], **found["samples"]}
    return table("16 devices again after a killed rank", samples, [Aim(NEXT, RAW, 0.25)])


def _after_a_kill() -> float:
    with contextlib.suppress(JobFailed):
        kinetic.get(sum_up.remote(dies=2))
    start = time.perf_counter()
    kinetic.get(sum_up.remote(dies=None))
    return time.perf_counter() - start
