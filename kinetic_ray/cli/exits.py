"""Exit codes, and what a person or a program is told when a command fails."""

from __future__ import annotations

import json
import traceback
from enum import IntEnum
from typing import Any

import click

from kinetic_ray.core.terminal import sanitize
from kinetic_ray.errors import JobError, KineticError, UsageError


class ExitCode(IntEnum):
    """What a command's end says to a script."""

    OK = 0
    NO = 1  # the job failed, or the answer is no
    USAGE = 2
    NOT_FOUND = 3
    TROUBLE = 4  # configuration, store or cluster
    BUG = 70  # in kinetic itself
    TIMEOUT = 124
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.NO: "the job failed, or the answer is no",
    ExitCode.USAGE: "wrong usage",
    ExitCode.NOT_FOUND: "no such job",
    ExitCode.TROUBLE: "trouble with the configuration, the store or the cluster",
    ExitCode.BUG: "a fault of kinetic itself",
    ExitCode.TIMEOUT: "--timeout ran out; the job goes on",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
}


class Refusal(Exception):
    """Ends a command with a message and an exit code of its own.

    Attributes:
        code: The exit code.
        facts: Further keys of the error's JSON form, e.g. `job_id`.
    """

    def __init__(self, message: str, code: ExitCode, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.facts = facts


def code_of(error: BaseException) -> ExitCode:
    """The exit code that an error stands for."""
    if isinstance(error, Refusal):
        return error.code
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code
    return ExitCode.BUG


_CODES: tuple[tuple[tuple[type[BaseException], ...], ExitCode], ...] = (
    ((click.Abort, KeyboardInterrupt), ExitCode.INTERRUPTED),
    ((click.ClickException, UsageError), ExitCode.USAGE),
    ((JobError,), ExitCode.NO),
    ((TimeoutError,), ExitCode.TIMEOUT),
    ((KineticError, OSError), ExitCode.TROUBLE),
)


def describe(error: BaseException, *, as_json: bool, debug: bool) -> str:
    """What standard error gets: one document with `--json`, else a line or two.

    Args:
        error: What ended the command.
        as_json: Whether the command was asked for JSON.
        debug: Whether the traceback is wanted (KINETIC_DEBUG=1).
    """
    code = code_of(error)
    trace = "".join(traceback.format_exception(error)) if debug else ""
    if as_json:
        facts: dict[str, Any] = {"type": _kind(error), "message": _message(error), "exit_code": int(code)}
        facts |= {"job_id": error.job_id, "reason": error.reason} if isinstance(error, JobError) else {}
        facts |= error.facts if isinstance(error, Refusal) else {}
        facts |= {"traceback": trace} if debug else {}
        return json.dumps({"error": facts}, ensure_ascii=False)
    if code is ExitCode.INTERRUPTED:
        return f"{trace}kinetic: interrupted"
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"\n  see: {error.ctx.command_path} --help"
    elif code is ExitCode.BUG and not debug:
        hint = f"\n  this is a fault of kinetic itself ({_kind(error)}); KINETIC_DEBUG=1 shows where"
    return f"{trace}kinetic: error: {_message(error)}{hint}"


def _kind(error: BaseException) -> str:
    if isinstance(error, Refusal):
        return {ExitCode.NO: "Failed", ExitCode.NOT_FOUND: "NotFound"}.get(error.code, "Refused")
    if isinstance(error, click.ClickException):
        return "UsageError"
    return "Interrupted" if isinstance(error, click.Abort) else type(error).__name__


def _message(error: BaseException) -> str:
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    lines = [sanitize(line, color=False) for line in (text or type(error).__name__).splitlines()]
    return "\n".join(lines)
