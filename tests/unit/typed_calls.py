"""Not run, but checked by mypy: signatures go through decorators, calls, handles and `await` unchanged."""

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
    assert_type(kinetic.context().rank, int)

    train("3")  # type: ignore[arg-type]
    train.run_async()  # type: ignore[call-arg]
    show.options(acelerator="cpu")  # type: ignore[call-arg]
    kinetic.run(timout=3)  # type: ignore[call-overload]
    Trainer().go.run("3")  # type: ignore[arg-type]
    train.run_async(3).result(clean_up=True)  # type: ignore[call-arg]
