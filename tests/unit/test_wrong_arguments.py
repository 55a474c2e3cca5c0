"""What handles and what finds them are asked for in a wrong way is refused by the argument's name."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import kinetic_ray as kinetic
from kinetic_ray.errors import UsageError
from kinetic_ray.jobs.handle import JobHandle
from kinetic_ray.store import open_store
from tests.unit.cli_jobs import Recorder

_NO_NUMBERS: tuple[Any, ...] = ("0", 1.5, None, True, [0], -1, b"1", float("nan"))


@pytest.fixture
def job(kinetic_home: Any) -> JobHandle[Any]:
    journal = Recorder(open_store(kinetic_home / "store")).succeeded()
    return kinetic.attach(journal.job_id)


async def _first(job: JobHandle[Any], rank: Any) -> None:
    async for _ in job.stream(rank=rank):
        return


def _ask(job: JobHandle[Any], method: str, given: dict[str, Any]) -> object:
    if method == "stream":
        return asyncio.run(_first(job, **given))
    where: Any = kinetic if method in ("list_jobs", "get") else job
    return getattr(where, method)(**given)


def _asks() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What the error must tell, the method, its arguments."""
    for wrong in _NO_NUMBERS:
        yield "rank=", "logs", {"rank": wrong}
        yield "rank=", "logs", {"follow": True, "rank": wrong}
        yield "rank=", "tail", {"rank": wrong}
        yield "n=", "tail", {"n": wrong}
        if wrong is not None:
            yield "attempt=", "logs", {"attempt": wrong}
            yield "rank=", "stream", {"rank": wrong}
    for wrong in (float("nan"), float("inf"), -1, "soon", [1], 10**400):
        yield "since=", "list_jobs", {"since": wrong}
    for wrong in (["a"], 1, b"a", True):
        for name in ("tag", "name", "state"):
            yield f"{name}=", "list_jobs", {name: wrong}
    for wrong in ("soon", float("nan"), [1], b"1"):
        for method in ("result", "wait", "exception"):
            yield "timeout=", method, {"timeout": wrong}
    for method in ("logs", "tail"):
        yield "attempt=5", method, {"attempt": 5}
    for wrong in ("x", "../x", "job-", "latest"):
        yield repr(wrong), "from_dict", {"data": {"job_id": wrong}}
    yield "no ref", "get", {"refs": kinetic.remote(len)}
    yield "no ref", "get", {"refs": [kinetic.remote(len)]}


@pytest.mark.parametrize(("told", "method", "given"), [*_asks()], ids=lambda part: repr(part)[:40])
def test_it_is_refused_by_name(told: str, method: str, given: dict[str, Any], job: JobHandle[Any]) -> None:
    with pytest.raises(UsageError) as caught:
        _ask(job, method, given)
    assert told in str(caught.value)


def test_a_job_is_no_ref(job: JobHandle[Any]) -> None:
    refs: Any = [job]
    with pytest.raises(UsageError, match=r"job\.result\(\)"):
        kinetic.get(refs)


def test_numbers_of_other_libraries_are_numbers(job: JobHandle[Any]) -> None:
    import numpy as np

    rank: Any = np.int64(0)
    assert job.logs(rank=rank, attempt=rank + 1) == job.logs()
    assert job.tail(rank) == ""
