"""A process that calls the desk itself, with nothing of the client's in between: for scenes, which run in processes of
their own, since a process can be in one Ray cluster only."""

import hashlib
import os
import platform
import re
from collections.abc import Callable
from typing import Any

import pytest
import ray

from kinetic_ray.calls.requests import request_of
from kinetic_ray.calls.seats import Seat
from kinetic_ray.runner.calls.desk import find_desk
from kinetic_ray.runner.calls.packing import pack_arguments, pack_function
from kinetic_ray.runner.calls.wish import Order, Wish

PYTHON = platform.python_version()
CPU = Wish(cpus=0.5, python=PYTHON)
FOUR_CPUS = Wish(hosts=4, cpus=0.25, python=PYTHON)
SLICE = Wish("tpu-v6e-16", chips_per_host=4, num_slices=1, hosts=4, cpus=0.0, python=PYTHON)
SMALL = Wish("tpu-v6e-4", chips_per_host=4, num_slices=1, hosts=1, cpus=0.0, python=PYTHON)
PATIENCE = 100.0


def _by_value(module: str) -> bool:
    return module.startswith(("tests.", "__main__"))


class Caller:
    """This process, as the desk knows it."""

    def __init__(self) -> None:
        ray.init(address=os.environ["RAY_ADDRESS"], namespace="scene", log_to_driver=False, logging_level="error")
        self.desk = find_desk(os.environ["KINETIC_SUPERVISOR"])
        self.client = ray.get_runtime_context().get_job_id()
        self._codes: dict[Any, tuple[str, Any]] = {}

    def order(self, function: Callable[..., Any], wish: Wish = CPU, **more: Any) -> tuple[Order, list[Any]]:
        """What the desk is told, and the code."""
        if function not in self._codes:
            packed, _ = pack_function(function, _by_value)
            self._codes[function] = hashlib.sha256(packed.data).hexdigest(), ray.put(packed)
        digest, ref = self._codes[function]
        return Order(wish, digest, function.__name__, self.client, **more), [ref, None]

    def call(self, function: Callable[..., Any], *args: Any, wish: Wish = CPU, **more: Any) -> Any:
        """A ref of its value."""
        order, code = self.order(function, wish, **more)
        return self.desk.call.remote(order.to_bytes(), code, pack_arguments(args, {}, _by_value))

    def run(self, function: Callable[..., Any], *args: Any, wish: Wish = CPU, **more: Any) -> Any:
        """Its value."""
        return ray.get(self.call(function, *args, wish=wish, **more), timeout=PATIENCE)

    def borrow(self, function: Callable[..., Any], wish: Wish = CPU) -> Callable[..., Any]:
        """Calls the host itself, which the desk has lent to this process."""
        order, code = self.order(function, wish)
        lent = ray.get(self.desk.lend.remote(order.to_bytes()), timeout=PATIENCE)
        assert lent is not None
        seat, request = Seat(lent["gang"], lent["agent"], self.client), request_of(order, code)
        return lambda *args: seat.send(request, pack_arguments(args, {}, _by_value))

    def fails(self, call: Callable[[], Any], kind: type[Exception], words: str) -> Exception:
        """What it fails with, which says these words."""
        with pytest.raises(kind) as raised:
            call()
        assert re.search(words, str(raised.value), re.DOTALL), f"{words!r} is not in: {raised.value}"
        return raised.value

    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = ray.get(self.desk.snapshot.remote(), timeout=PATIENCE)
        return found

    def phases(self) -> list[str]:
        """What the gangs do that served this process last."""
        return [one["phase"] for one in self.snapshot()["gangs"] if one["client"] == self.client]
