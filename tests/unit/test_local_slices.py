"""Which simulated slices make room for others, with hosts that start at once and do nothing."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kinetic_ray.backends.local import pool
from kinetic_ray.backends.local.hub import Hub
from kinetic_ray.backends.local.slices import Slices
from kinetic_ray.core.accelerators import parse_accelerator

V6E, V5E = parse_accelerator("tpu-v6e-4"), parse_accelerator("tpu-v5e-4")  # of one host each


class Machine:
    """Launcher, head and nursery in one."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def start(self, *_args: Any) -> tuple[Any, dict[str, str]]:
        number = next(self._numbers)
        launched = SimpleNamespace(pid=number, ended=asyncio.get_running_loop().create_future())
        return launched, {"node_id": f"node-{number}"}

    async def stop(self, _launched: Any) -> None: ...

    async def end_orphans(self) -> None: ...

    async def report(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:1", runtime_env_port=1)

    def begin(self) -> None: ...


def run(
    scenario: Callable[[Slices], Coroutine[Any, Any, None]],
    folder: Path,
    max_hosts: int = 1,
    *,
    told: list[str] | None = None,
) -> None:
    class Telling(Hub):
        def publish(self, event: str, **fields: object) -> None:
            if told is not None:
                told.append(event)

    async def main() -> None:
        runtime = SimpleNamespace(hosts=folder, sockets=folder, nursery=folder / "nursery")
        machine = cast(Any, Machine())
        limits = pool.Limits(max_hosts=max_hosts)
        slices = Slices(cast(Any, runtime), machine, machine, Telling(), limits, machine)
        await scenario(slices)
        await slices.close()

    asyncio.run(main())


def test_one_that_was_handed_out_is_kept_for_who_is_on_the_way(tmp_path: Path) -> None:
    async def scenario(slices: Slices) -> None:
        assert len((await slices.request(V6E, 1, ()))["slices"]) == 1
        assert "in use" in (await slices.request(V5E, 1, ()))["wait"]

    run(scenario, tmp_path)


def test_one_that_was_given_back_makes_room_at_once(tmp_path: Path) -> None:
    async def scenario(slices: Slices) -> None:
        await slices.request(V6E, 1, ())
        slices.lease(["tpu-v6e-4-0"])
        assert "in use" in (await slices.request(V5E, 1, ["tpu-v6e-4-0"]))["wait"]
        slices.lease([])
        answer = await slices.request(V5E, 1, ())
        assert [one["name"] for one in answer["slices"]] == ["tpu-v5e-4-0"]

    run(scenario, tmp_path)


def test_one_who_does_not_know_what_is_in_use_changes_nothing_of_that(tmp_path: Path) -> None:
    async def scenario(slices: Slices) -> None:
        await slices.request(V6E, 1, ())
        slices.lease(["tpu-v6e-4-0"])
        answer = await slices.request(V6E, 1, None)
        assert [one["name"] for one in answer["slices"]] == ["tpu-v6e-4-1"]
        assert "in use" in (await slices.request(V5E, 1, None))["wait"]

    run(scenario, tmp_path, max_hosts=2)


def test_however_many_ask_in_vain_they_are_told_once_to_ask_again(tmp_path: Path) -> None:
    """Each word of room has all of them ask, so one word for each answer would have them ask without end."""

    async def scenario(slices: Slices) -> None:
        slices.held_s = 0.3
        await slices.request(V6E, 1, ())
        for _ in range(100):
            assert "in use" in (await slices.request(V5E, 1, ["tpu-v6e-4-0"]))["wait"]
        all_told = asyncio.Event()
        asyncio.get_running_loop().call_later(slices.held_s, all_told.set)
        await all_told.wait()
        assert 1 <= told.count("room") < 5

    told: list[str] = []
    run(scenario, tmp_path, told=told)
