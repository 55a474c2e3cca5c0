"""Batches: one function over many inputs. They come with a later version; the names are here and say so."""

from __future__ import annotations

from typing import Any, NoReturn

from kinetic_ray.errors import KineticError, UsageError

_INSTEAD = (
    "Until then: jobs = [f.run_async(x) for x in inputs], then [job.result() for job in jobs]; "
    "or kinetic.get([f.remote(x) for x in inputs]) for short calls"
)


class BatchError(KineticError):
    """Some jobs of a batch failed. Nothing raises it yet; `except kinetic.BatchError` may stand in programs already."""


class BatchHandle:
    """The handle of a batch. Not there yet: making one is an error."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        refuse_batches("kinetic.BatchHandle")


def attach_batch(group_id: str, *_args: Any, **_kwargs: Any) -> BatchHandle:
    """The handle of a batch by its id. Not there yet.

    Raises:
        UsageError: Always, in this version.
    """
    refuse_batches(f"kinetic.attach_batch({group_id!r})")


def refuse_batches(what: str) -> NoReturn:
    """Says that batches aren't there yet, and what is.

    Raises:
        UsageError: Always.
    """
    raise UsageError(f"{what}: batches come with a later version of kinetic_ray. {_INSTEAD}")
