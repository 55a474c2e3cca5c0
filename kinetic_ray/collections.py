"""`map`, under the module's name that keras-team/kinetic has for it."""

from __future__ import annotations

from typing import Any

from kinetic_ray.batch import BatchHandle, refuse_batches


def map(submit_fn: Any, inputs: Any, **_options: Any) -> BatchHandle:  # noqa: A001, ARG001
    """Runs a function for each of many inputs. Not there yet.

    Args:
        submit_fn: A decorated function's `run_async`.
        inputs: An input a job.

    Raises:
        UsageError: Always, in this version.
    """
    refuse_batches("kinetic.collections.map(...)")
