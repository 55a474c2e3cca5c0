"""Backends that say no, for tests of what a client does then."""

from collections.abc import Mapping
from pathlib import Path

from kinetic_ray.backends.base import Liveness, Need, Observation
from kinetic_ray.errors import ConfigError, UsageError


class RefusingBackend:
    """Nothing ever fits."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def check(self, need: Need) -> None:
        raise UsageError(f"{need.accelerator} never fits here")

    def submit(self, store_url: str, job_id: str) -> None:
        raise AssertionError("submitted although refused")

    def observe(self, store_url: str, job_id: str) -> Observation:
        return Observation(Liveness.DOWN)

    def cancel(self, store_url: str, job_id: str) -> None:
        return

    def list(self) -> Mapping[str, Liveness]:
        return {}

    def dashboard_url(self) -> str | None:
        return None


class BrokenBackend(RefusingBackend):
    """Everything fits, nothing starts."""

    def check(self, need: Need) -> None:
        return

    def submit(self, store_url: str, job_id: str) -> None:
        raise ConfigError("the head is dead")


class InterruptedCheck(RefusingBackend):
    """Ctrl-C comes while it looks whether the job fits."""

    def check(self, need: Need) -> None:
        raise KeyboardInterrupt


class InterruptedSubmit(BrokenBackend):
    """Ctrl-C comes while the job is handed over."""

    def submit(self, store_url: str, job_id: str) -> None:
        raise KeyboardInterrupt
