"""Errors that Python gives a meaning of their own: a loop, a coroutine or a process ends with them, but not here."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

import pytest

import kinetic_ray as kinetic

#: What stands for themselves, being errors.
ERRORS: dict[str, Callable[[], Exception]] = {
    "StopIteration": lambda: StopIteration(7),
    "StopAsyncIteration": lambda: StopAsyncIteration(7),
    "a future's CancelledError": lambda: concurrent.futures.CancelledError("c"),
    "TimeoutError": lambda: TimeoutError("the user's own"),
    "OSError": lambda: OSError(28, "No space left on device"),
    "a group": lambda: ExceptionGroup("g", [StopIteration(1), ValueError(2)]),
}
#: What would end, or cancel, whoever reads the job: it is told in words.
ENDS: dict[str, Callable[[], BaseException]] = {
    "GeneratorExit": lambda: GeneratorExit("x"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("x"),
    "SystemExit": lambda: SystemExit(3),
    "CancelledError": lambda: asyncio.CancelledError("x"),
    "BaseException": lambda: BaseException("x"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError(1)]),
}


@kinetic.remote(backend="kinetic_ray.testing.thread_backend:ThreadBackend")
def fail(kind: str) -> None:
    error = {**ERRORS, **ENDS}[kind]()
    raise error


async def awaited(job: "kinetic.JobHandle[Any]") -> Any:
    return await asyncio.ensure_future(_one(job))  # in a task of its own, whose end it must not fake


async def _one(job: "kinetic.JobHandle[Any]") -> Any:
    return await job


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_are_raised_as_themselves(kinetic_home: object, kind: str) -> None:
    expected = ERRORS[kind]()
    job = fail.run_async(kind)
    told = job.exception(60)
    assert (type(told), str(told)) == (type(expected), str(expected))
    with pytest.raises(type(expected)) as caught:
        job.result(60)
    assert caught.value.args == expected.args or isinstance(expected, ExceptionGroup)
    assert job.job_id in "".join(caught.value.__notes__)


@pytest.mark.parametrize("kind", ERRORS)
def test_awaiting_raises_what_a_coroutine_can(kinetic_home: object, kind: str) -> None:
    expected = ERRORS[kind]()
    job = fail.run_async(kind)
    if not isinstance(expected, StopIteration):
        with pytest.raises(type(expected)):
            asyncio.run(awaited(job))
        return
    with pytest.raises(RuntimeError, match="StopIteration") as caught:  # as Python has it of a local one
        asyncio.run(awaited(job))
    assert isinstance(caught.value.__cause__, StopIteration)
    assert job.job_id in "".join(caught.value.__cause__.__notes__)


@pytest.mark.parametrize("kind", ENDS)
def test_what_ends_a_process_over_there_ends_none_here(kinetic_home: object, kind: str) -> None:
    job = fail.run_async(kind)
    for ask in (lambda: job.result(60), lambda: asyncio.run(awaited(job))):
        with pytest.raises(kinetic.JobFailed) as caught:
            ask()
        assert caught.value.error_type == kind
        assert f"{kind}: {ENDS[kind]()}" in str(caught.value)
    assert isinstance(job.exception(), kinetic.JobFailed)
    assert job.status() == "FAILED"


def test_a_loop_over_results_does_not_end_early(kinetic_home: object) -> None:
    jobs = [fail.run_async("StopIteration"), fail.run_async("TimeoutError")]
    with pytest.raises(RuntimeError, match="StopIteration"):  # PEP 479, as with a local call
        list(job.result(60) for job in jobs)  # noqa: C400 - a generator is the point
