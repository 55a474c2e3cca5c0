"""What there is to tell about a job, as JSON facts and as cells of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.state import JobState, JobStatus, RankPhase, Stage
from kinetic_ray.errors import KineticError, UsageError
from kinetic_ray.jobs import JobHandle, JobPhase
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import Store
from kinetic_ray.ui.stages import Pace
from kinetic_ray.ui.text import format_duration

HEADERS = ("job", "state", "stage", "function", "accelerator", "age", "duration")


@dataclass(frozen=True, slots=True)
class JobLook:
    """One look at one job; everything printed about it comes from here."""

    handle: JobHandle[Any]
    state: JobState
    phase: JobPhase
    last_heard: float | None = None  # of a job whose driver is lost

    @property
    def seconds(self) -> float | None:
        """How long it ran; needs :meth:`until` while it does."""
        if self.state.started_at is None or self.state.ended_at is None:
            return None
        return max(self.state.ended_at - self.state.started_at, 0.0)

    def until(self, now: float) -> float | None:
        """Seconds of running up to now, to the end, or the last news of a lost job; None before the first attempt."""
        if self.state.started_at is None or self.state.is_terminal:
            return self.seconds
        return max((now if self.last_heard is None else self.last_heard) - self.state.started_at, 0.0)


def look_at(handle: JobHandle[Any], journal: JobJournal) -> JobLook:
    """Reads a job's records, and asks its backend where they don't say that it has ended."""
    phase = handle.phase()
    last_heard = max((event.at for event in handle.events()), default=None) if phase.is_lost else None
    return JobLook(handle, journal.state(), phase, last_heard)


def try_look(handle: JobHandle[Any], store: Store) -> JobLook | KineticError | None:
    """As :func:`look_at`, for lists: a job that can't be read is an error of its own, one cleaned up meanwhile None."""
    try:
        _ = handle.spec
        return look_at(handle, JobJournal(store, handle.job_id))
    except UsageError:
        return None
    except KineticError as error:
        return error


def facts(look: JobLook, now: float) -> dict[str, Any]:
    """The JSON form of a job; docs/cli.md lists the keys, which stay as they are."""
    spec, state, phase = look.handle.spec, look.state, look.phase
    return {
        "job_id": spec.job_id,
        "status": str(phase.status),
        "phase": phase.phase,
        "reason": phase.reason,
        "message": phase.message,
        "function": spec.func_name,
        "name": spec.name,
        "tags": list(spec.tags),
        "accelerator": spec.accelerator,
        "num_slices": spec.num_slices,
        "attempt": phase.attempt,
        "created_at": spec.created_at,
        "started_at": state.started_at,
        "ended_at": state.ended_at,
        "seconds": look.until(now),
        "progress": _progress(state),
        "slices": list(state.slices),
        "hosts": [asdict(rank) for rank in phase.hosts],
        "warnings": list(phase.warnings),
        "owner": spec.owner,
    }


def outputs_folder(look: JobLook) -> str | None:
    """Where the job's files are; None while there are none. A place that can't be listed is told as it is."""
    handle = look.handle
    try:
        if not handle.outputs():
            return None
    except UsageError:
        return handle.spec.output_dir
    return handle.spec.output_dir or handle.store.uri(JobKeys(handle.job_id).outputs)


def _progress(state: JobState) -> dict[str, Any] | None:
    """Progress as JSON can hold it: a metric that is no finite number becomes a text, as in the store."""
    if state.progress is None:
        return None
    metrics = {name: value if math.isfinite(value) else str(value) for name, value in state.progress.metrics.items()}
    return {**asdict(state.progress), "metrics": metrics}


def cells(look: JobLook, now: float) -> tuple[str, ...]:
    """A job's row under :data:`HEADERS`."""
    spec, ran = look.handle.spec, look.until(now)
    return (
        spec.job_id,
        str(look.phase.status),
        _stage(look),
        spec.func_name,
        spec.accelerator + (f" x{spec.num_slices}" if spec.num_slices > 1 else ""),
        format_duration(now - spec.created_at),
        "-" if ran is None else format_duration(ran),
    )


def _stage(look: JobLook) -> str:
    if look.phase.status.is_terminal:
        return "-" if look.phase.status is JobStatus.SUCCEEDED else look.phase.reason or "-"
    progress = look.state.progress
    if look.phase.phase != "run" or progress is None:
        return look.phase.phase
    return f"run {progress.step / progress.total:.0%}" if progress.total else f"run, step {progress.step}"


def lines(look: JobLook, now: float) -> list[tuple[str, str]]:
    """A job in (label, text) lines for people; what doesn't apply is left out."""
    spec, state, phase, ran = look.handle.spec, look.state, look.phase, look.until(now)
    progress = "" if state.progress is None else Pace().line(state.progress)
    ran_label = "ran for" if state.is_terminal or phase.is_lost else "running for"
    found = (
        ("job", spec.job_id),
        ("status", str(phase.status)),
        ("stage", "" if phase.status.is_terminal else _stage_line(phase)),
        ("reason", phase.reason),
        ("message", "" if phase.message.lower() == phase.reason.lower() else phase.message),
        ("function", spec.func_name),
        ("name", spec.name),
        ("tags", ", ".join(spec.tags)),
        ("accelerator", spec.accelerator + (f" x {spec.num_slices} slices" if spec.num_slices > 1 else "")),
        ("attempt", str(phase.attempt) if phase.attempt > 1 else ""),
        ("submitted", f"{format_duration(now - spec.created_at)} ago" + (f" by {spec.owner}" if spec.owner else "")),
        (ran_label, "" if ran is None else format_duration(ran)),
        ("progress", progress),
        ("outputs", outputs_folder(look) or ""),
        *(("warning", warning) for warning in phase.warnings),
    )
    return [(label, text) for label, text in found if text]


def _stage_line(phase: JobPhase) -> str:
    """The stage; where all functions have returned, that it is their processes that it still waits for."""
    late = [host for host in phase.hosts if not host.ended]
    if phase.phase == Stage.RUN and late and all(host.phase == RankPhase.FINISH for host in late):
        return "run (finish: the function has returned, an exit handler or a thread may hold its process)"
    return phase.phase


def host_rows(look: JobLook) -> Sequence[tuple[str, ...]]:
    """A row for every host, under "rank", "slice", "worker", "phase", "end"."""
    return [
        (
            str(rank.rank),
            rank.slice_name or "-",
            str(rank.worker_id),
            rank.phase or "-",
            "-" if not rank.ended else "ok" if rank.ok else rank.reason or "failed",
        )
        for rank in look.phase.hosts
    ]
