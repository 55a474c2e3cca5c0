"""Arguments of keras-team/kinetic's handle methods, taken under their own names."""

from __future__ import annotations

import codecs
import logging
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypedDict

from kinetic_ray.core.state import JobState, JobStatus
from kinetic_ray.jobs.logs import LogPump

_LOG = logging.getLogger("kinetic_ray")


class CancelKwargs(TypedDict, total=False):
    """Of `cancel()`."""

    cleanup_timeout: float | None
    cleanup_poll_interval: float | None


class CleanupKwargs(TypedDict, total=False):
    """Of `cleanup()`."""

    k8s: bool
    gcs: bool
    cleanup_timeout: float | None
    cleanup_poll_interval: float | None


class ResultKwargs(TypedDict, total=False):
    """Of `result()`."""

    cleanup: bool | None
    cleanup_timeout: float | None
    cleanup_poll_interval: float | None
    stream_logs: bool | None
    on_status_change: Callable[[JobStatus], object] | None


def check_names(method: str, given: Mapping[str, Any], known: Any) -> None:
    """Refuses names that neither we nor upstream have, as Python would.

    Raises:
        TypeError: With the nearest name.
    """
    for name in given:
        if name not in known.__annotations__:
            near = get_close_matches(name, known.__annotations__, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{hint}")


def shower(given: ResultKwargs, pump: LogPump) -> Callable[[JobState], None] | None:
    """What `stream_logs` and `on_status_change` ask to be done at every look; None for nothing."""
    told: JobStatus | None = None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a look may end in the middle of a character
    callback = given.get("on_status_change")
    if not given.get("stream_logs") and callback is None:
        return None

    def show(state: JobState) -> None:
        nonlocal told
        if given.get("stream_logs"):
            sys.stdout.write(decoder.decode(pump.read(state), final=state.is_terminal))
            sys.stdout.flush()
        if callback is not None and state.status is not told:
            _call(callback, state.status)
        told = state.status

    return show


def _call(callback: Callable[[JobStatus], object], status: JobStatus) -> None:
    try:
        callback(status)
    except Exception:  # noqa: BLE001 - the user's code: as upstream, it can't end the waiting
        _LOG.warning("on_status_change(%s) raised", status, exc_info=True)
