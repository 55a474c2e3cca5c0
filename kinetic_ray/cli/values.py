"""A job's value on the command line: its repr, its JSON, its bytes; or why there is none."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO, Any

from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.cli.output import print_json, say
from kinetic_ray.cli.select import Held
from kinetic_ray.errors import JobError
from kinetic_ray.jobs import JobHandle
from kinetic_ray.jobs.results import Ended

_LONGEST_REPR = 100_000
_PIECE = 1 << 20


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
    with Ended(held.journal, held.handle.spec, held.journal.state()).opened() as value:
        if output == "-":
            shutil.copyfileobj(value, sys.stdout.buffer, _PIECE)
            return
        try:
            size = _write_whole(Path(output), value)
        except OSError as error:
            raise Refusal(f"can't write {output}: {error.strerror or error}", ExitCode.TROUBLE) from error
    if as_json:
        print_json({"job_id": held.job_id, "status": "SUCCEEDED", "output": output, "bytes": size})
    else:
        say(f"{size} bytes in {output}: read them with cloudpickle.load")


def _write_whole(path: Path, value: IO[bytes]) -> int:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(value, file, _PIECE)
            size = file.tell()
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return size
