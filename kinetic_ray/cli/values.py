"""A job's value on the command line: its repr, its JSON, its bytes; or why there is none."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.cli.output import print_json, say
from kinetic_ray.cli.select import Held
from kinetic_ray.errors import JobError
from kinetic_ray.jobs import JobHandle
from kinetic_ray.jobs.results import Ended

_LONGEST_REPR = 100_000


def failure_of(handle: JobHandle[Any]) -> Exception:
    """What to raise for a job that ended without a value: exit code 1, the user's exception in words."""
    error = handle.exception()
    if isinstance(error, JobError):
        return error
    return raised(handle, error)


def raised(handle: JobHandle[Any], error: BaseException | None) -> Refusal:
    """The user's own exception as an end of the command; its note holds the remote traceback."""
    words = "".join(traceback.format_exception_only(error)).rstrip()
    return Refusal(
        f"{handle.job_id} ({handle.func_name}) failed: {words}",
        ExitCode.NO,
        job_id=handle.job_id,
        reason=handle.phase().reason,
        exception=type(error).__name__,
    )


def print_value(held: Held, *, as_json: bool) -> None:
    """Prints the value's repr; with JSON also the value itself, where JSON can hold it."""
    value = held.handle.result()
    if value is None and not as_json:
        return  # as Python's prompt does
    shown = repr(value)
    if not as_json:
        say(shown)
        return
    print_json({"job_id": held.job_id, "status": "SUCCEEDED", "value": _plain(value), "repr": shown[:_LONGEST_REPR]})


def _plain(value: object) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None


def write_value(held: Held, output: str, *, as_json: bool) -> None:
    """Writes the pickled value; a file appears whole or not at all."""
    data = Ended(held.journal, held.handle.spec, held.journal.state()).pickled()
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        _write_whole(Path(output), data)
    except OSError as error:
        raise Refusal(f"can't write {output}: {error.strerror or error}", ExitCode.TROUBLE) from error
    if as_json:
        print_json({"job_id": held.job_id, "status": "SUCCEEDED", "output": output, "bytes": len(data)})
    else:
        say(f"{len(data)} bytes in {output}: read them with cloudpickle.load")


def _write_whole(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
