"""What a process has died of, by its exit code and its last words."""

from __future__ import annotations

import signal
from pathlib import Path

from kinetic_ray.core.causes import aborted_for_peer
from kinetic_ray.core.state import Reason

TAIL_LINES = 20


def cause_of_death(code: int | None, words: str, when: str, oom_before: int) -> tuple[Reason, str]:
    """The reason, and a sentence for people.

    Args:
        code: The exit code, negative for a signal; None if unknown.
        words: The end of its log.
        when: What it was doing, e.g. "before the function returned".
        oom_before: What :func:`oom_kills` gave when it began.
    """
    if aborted_for_peer(words):
        return Reason.PEER_LOST, f"it lost a peer, and JAX aborted it ({_how(code)})"
    if code == -signal.SIGKILL and oom_kills() > oom_before:
        text = "killed by the kernel because the host ran out of memory: use less of it, or hosts with more"
        return Reason.OUT_OF_MEMORY, text
    hint = "; often the memory limit, or someone's `kill -9`" if code == -signal.SIGKILL else ""
    return Reason.PROCESS_DIED, f"the process {_how(code)} {when}{hint}"


def last_lines(text: str) -> str:
    """As many as a failure carries. Only a newline ends a line: a progress bar is one, however often it was drawn."""
    return "\n".join(text.removesuffix("\n").split("\n")[-TAIL_LINES:])


def _how(code: int | None) -> str:
    if code is None:
        return "ended with its zygote"
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def oom_kills() -> int:
    """How often the kernel has killed for memory on this machine, 0 where it doesn't say."""
    counters = Path("/proc/vmstat")
    if not counters.exists():
        return 0
    words = counters.read_text().split()
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
