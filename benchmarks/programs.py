"""Other Python processes that a benchmark times: programs that run once, and ones that answer again and again."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.cluster import ROOT


def run_python(*words: str, cwd: Path | None = None, python: str = sys.executable, **environ: str) -> str:
    """Runs a Python program that is no part of the benchmarks; gives what it prints.

    Raises:
        RuntimeError: It ended otherwise than well.
    """
    command = [python, *words]
    env = _environment(environ)
    done = subprocess.run(
        command, cwd=cwd, env=env, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _environment(more: dict[str, str]) -> dict[str, str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    environ.pop("KINETIC_PACKAGE_ROOT", None)  # the benchmarks' own; these programs lie elsewhere
    return environ


class Answering:
    """A program that answers a line with a line, until its standard input ends.

    Args:
        words: The program and its arguments.
        cwd: Where it runs.
    """

    def __init__(self, *words: str, cwd: Path) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end of the block
        self._name = words[0]
        self._process = subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd,
            env=_environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, line: str = "") -> str:
        """Its answer.

        Raises:
            RuntimeError: It has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            raise RuntimeError(f"{self._name} has ended:\n{self._errors.read()[-2000:]}")
        return answer.rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def peak_memory(pid: int | None = None) -> int:
    """The most bytes that a process has had in memory; this one by default. A forked one begins with its parent's.

    Raises:
        OSError: There is no such process.
        ValueError: It has ended, and not been waited for yet.
    """
    lines = Path(f"/proc/{pid or 'self'}/status").read_text().splitlines()
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} has no memory any more")
