"""Not run, but checked by mypy and pyright: signatures go through decorators, calls, handles and `await` unchanged."""

from typing import Any, assert_type

import kinetic_ray as kinetic


@kinetic.run(accelerator="tpu-v6e-16", timeout="1h")
def train(steps: int, *, lr: float = 0.1) -> float:
    return steps * lr


@kinetic.remote
def show(x: int) -> str:
    return str(x)


class Trainer:
    @kinetic.run("cpu")
    def go(self, a: int) -> bytes:
        return bytes(a)


class Plain:
    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, n: int) -> int:
        return self.value + n


Remote = kinetic.remote(Plain)
OnSlices = kinetic.remote(accelerator="tpu-v6e-16")(Plain)


async def what_type_checkers_see_of_calls() -> None:
    ref = show.remote(1)
    assert_type(kinetic.get(ref), str)
    assert_type(kinetic.get(ref, timeout=3), str)
    assert_type(kinetic.get([ref, show.remote(2)]), list[str])
    assert_type(kinetic.get(Trainer().go.remote(3)), bytes)
    assert_type(kinetic.get(train.options(timeout=3).remote(3, lr=0.1)), float)
    assert_type(await ref, str)
    assert_type(kinetic.get(kinetic.put(3.5)), float)
    ready, _ = kinetic.wait([ref], num_returns=1)
    assert_type(kinetic.get(ready), list[str])

    assert_type(Remote, kinetic.RemoteClass[Plain])
    assert_type(Remote.options(hosts=2).remote(3), kinetic.ActorHandle[Plain])
    assert_type(OnSlices.local(3), Plain)
    assert_type(kinetic.get(OnSlices.remote(3).add.options(gather="all").remote(1)), Any)

    show.remote("3")  # type: ignore[arg-type]
    show.remote()  # type: ignore[call-arg]
    kinetic.get(3)  # type: ignore[call-overload]
    Remote.remote(3).add.options(gahter="all")  # type: ignore[call-arg]


async def what_type_checkers_see() -> None:
    assert_type(train(3, lr=0.2), float)
    assert_type(train.run(3), float)
    assert_type(train.run_async(3).result(timeout=1), float)
    assert_type(train.options(accelerator="cpu", hosts=2).local(2), float)
    assert_type(await train.run_async(3), float)
    assert_type(show.run(3), str)
    assert_type(Trainer().go(3), bytes)
    assert_type(Trainer().go.run_async(3).result(), bytes)
    assert_type(kinetic.attach("job").result(), Any)
    assert_type(kinetic.attach("job", "project", "cluster").result(5, False), Any)
    assert_type(kinetic.JobHandle.from_dict({"job_id": "job"}), Any)
    assert_type(kinetic.run("cpu", "bundled", None, "zone", spot=True)(str.upper)("a"), str)
    assert_type(kinetic.jobs.JobStatus("FAILED"), kinetic.JobStatus)
    assert_type(kinetic.context().rank, int)

    assert_type(train.manifest("rayjob"), str)

    train("3")  # type: ignore[arg-type]
    train.manifest("pod")  # type: ignore[arg-type]
    train.run_async()  # type: ignore[call-arg]
    show.options(acelerator="cpu")  # type: ignore[call-arg]
    kinetic.run(timout=3)  # type: ignore[call-overload]
    Trainer().go.run("3")  # type: ignore[arg-type]
    train.run_async(3).result(clean_up=True)  # type: ignore[call-arg]
