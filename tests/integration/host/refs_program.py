"""Run as a script, in a Ray of its own: a call host as an actor, and calls with refs, handles and arrays.

Its own functions and classes go by value, as those of a user's script. The folder for Ray is its only argument.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import ray

from kinetic_ray.errors import JobFailed
from kinetic_ray.runner.calls.heads import call_head
from kinetic_ray.runner.calls.host import CallHost
from kinetic_ray.runner.calls.packing import pack_arguments, pack_function
from kinetic_ray.runner.calls.wish import Order, Wish
from kinetic_ray.runner.task import RankTask

WISH = Wish()


class Odd(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


class Answering:
    def answer(self) -> int:
        return 42


def goes_by_value(module: str) -> bool:
    return module == "__main__"


class Caller:
    """Calls through one host."""

    def __init__(self) -> None:
        actor = ray.remote(concurrency_groups={"control": 8})(CallHost)
        self.agent = actor.options(num_cpus=0, max_concurrency=8).remote(in_actor=True)
        task = RankTask("", "call-1", 1, 1, 0, 1, None).to_dict()
        ray.get(self.agent.open.remote({"gang": "call-1", "client": "c", "wish": WISH.to_dict(), "task": task}))

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        name = function.__name__
        self.agent.learn.remote(name, pack_function(function, goes_by_value)[0])
        head = call_head(gang="call-1", client="c", order=Order(WISH, name, name, "c"))
        return self.agent.call.remote(head, pack_arguments(args, kwargs, goes_by_value).light())

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return ray.get(self.start(function, *args, **kwargs), timeout=120)


def add(a: Any, b: Any) -> Any:
    return a + b


def numbers(count: int) -> Any:
    return np.arange(float(count))


def x_of(point: Any) -> Any:
    return point.x


def same(value: Any) -> Any:
    return value


def has_ray() -> bool:
    return "ray" in sys.modules


def first_of(refs: Any) -> Any:
    return ray.get(refs[0])


def put_two() -> Any:
    return [ray.put("mine"), {"deep": ray.put(np.ones(500_000))}, ray.put([ray.put("inner")])]


def ask(actors: Any) -> Any:
    return ray.get(actors[0].answer.remote())


def fail() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise Odd(code=3) from error


def die() -> None:
    import os

    os._exit(4)


def error_of(ref: Any) -> BaseException:
    try:
        ray.get(ref, timeout=120)
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("it has a value")


def values_of_refs(calls: Caller) -> None:
    assert calls.run(add, 1, b=2) == 3
    assert calls.run(add, ray.put(1), ray.put(2)) == 3
    assert calls.run(add, calls.start(add, [1], [2]), b=calls.start(add, [3], [4])) == [1, 2, 3, 4]
    large = calls.run(add, calls.start(numbers, 300_000), 1.0)
    assert large[5] == 6.0 and not large.flags.writeable  # as Ray's arrays
    assert calls.run(add, ray.put([1, np.ones(3)]), [2])[2] == 2
    assert (calls.run(add, ray.put(np.ones(300_000)), 1) == 2).all()
    assert not calls.run(has_ray), "none of that needs Ray in the child"
    assert calls.run(x_of, ray.put(Point(7))) == 7


def refs_inside(calls: Caller) -> None:
    kept = ray.put("kept")
    assert calls.run(first_of, [kept]) == "kept"
    assert ray.get(calls.run(same, {"a": [kept]})["a"][0]) == "kept"
    assert ray.get(calls.run(add, ray.put([kept]), [])[0]) == "kept"
    mine, deep, nested = calls.run(put_two)
    assert ray.get(mine) == "mine" and ray.get(deep["deep"]).shape == (500_000,)
    error_of(calls.start(die))
    assert ray.get(ray.get(nested)[0]) == "inner", "its child is gone, and the value is not"
    answering = ray.remote(Answering).options(num_cpus=0).remote()
    assert calls.run(ask, [answering]) == 42
    assert ray.get(calls.run(same, [answering])[0].answer.remote()) == 42


def errors(calls: Caller) -> None:
    error = error_of(calls.start(fail))
    assert isinstance(error, Odd) and isinstance(error, ray.exceptions.RayTaskError), type(error)
    assert error.cause.code == 3 and isinstance(error.cause.__cause__, KeyError)
    assert "Raised in fail on cpu: rank 0" in error.cause.__notes__[0]
    through = error_of(calls.start(add, calls.start(fail), 1))
    assert isinstance(through, Odd) and through.code == 3
    gone = error_of(calls.start(die))
    assert isinstance(gone, JobFailed) and "exited with code 4" in str(gone)
    assert isinstance(error_of(calls.start(add, ray.remote(divide).remote(1, 0), 1)), ZeroDivisionError)


def divide(a: int, b: int) -> float:
    return a / b


def main(folder: str) -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    calls = Caller()
    values_of_refs(calls)
    refs_inside(calls)
    errors(calls)
    ray.get(calls.agent.stop.remote())
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
