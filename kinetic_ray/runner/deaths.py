"""What a process has died of, by its exit code and its last words."""

from __future__ import annotations

import re
import signal

from kinetic_ray.core.causes import aborted_for_peer
from kinetic_ray.core.state import Reason

TAIL_LINES = 20


#: How Ray says that its own monitor has ended a process. Of any that died it says that the OOM killer may have been it.
_RAYS_WORDS = re.compile(r"\b(running|ran) low on memory\b")

#: Of the stack that a crash leaves in the log, the lines that say nothing of user code: there are some fifteen, which
#: would take the place of what was printed last.
_OUR_FRAMES = re.compile(
    r'^(  File "([^"]*[/\\]kinetic_ray[/\\]runner[/\\][^"]*|<frozen runpy>)", line \d+ in .*|Extension modules: .*)\n?',
    re.MULTILINE,
)


def cause_of_death(code: int | None, words: str, when: str, shortage: str) -> tuple[Reason, str]:
    """The reason, and a sentence for people.

    Args:
        code: The exit code, negative for a signal; None if unknown.
        words: The end of its log.
        when: What it was doing, e.g. "before the function returned".
        shortage: What memory had to do with it, as :meth:`MemoryGuard.cause` tells.
    """
    if shortage:
        return Reason.OUT_OF_MEMORY, shortage
    if aborted_for_peer(words):
        return Reason.PEER_LOST, f"it lost a peer, and JAX aborted it ({_how(code)})"
    hint = "; often the memory limit, or someone's `kill -9`" if code == -signal.SIGKILL else ""
    return Reason.PROCESS_DIED, f"the process {_how(code)} {when}{hint}"


def ended_by_ray_for_memory(words: str) -> str:
    """What is told of an agent that Ray has ended because its host ran out of memory; "" where it says no such thing.

    Ray knows no process but its own workers, so it may well have ended another than the one that had all the memory.

    Args:
        words: What its error says, which goes on for pages.
    """
    if not _RAYS_WORDS.search(words):
        return ""
    return "Ray ended its host agent because the host ran low on memory: use less of it, or hosts with more"


def last_lines(text: str) -> str:
    """As many as a failure carries. Only a newline ends a line: a progress bar is one, however often it was drawn."""
    return "\n".join(_OUR_FRAMES.sub("", text).removesuffix("\n").split("\n")[-TAIL_LINES:])


def _how(code: int | None) -> str:
    if code is None:
        return "ended with its zygote"
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
