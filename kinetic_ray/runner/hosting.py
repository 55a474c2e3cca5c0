"""What any agent does on its host: says which host it is, and keeps a zygote."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from kinetic_ray.bundle import hand_over
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.runner.births import Way, ways_to_begin
from kinetic_ray.runner.link import ZygoteLink
from kinetic_ray.runner.task import CODE, RUNTIMES, HostPlan

_LOG = logging.getLogger(__name__)


class ZygoteKeeper:
    """One zygote at a time. Not thread-safe."""

    def __init__(self) -> None:
        self._zygote: ZygoteLink | None = None

    @property
    def plan(self) -> HostPlan | None:
        """What the zygote was made for; None where there is none."""
        return None if self._zygote is None else self._zygote.plan

    def zygote_for(self, plan: HostPlan) -> ZygoteLink:
        """The one that is there if it lives and its plan is equal, else a new one; an older one ends.

        Raises:
            UsageError: An unknown runtime.
            ConfigError: The runtime can't be imported here, or the host lacks what the plan names.
            OSError: No process can be started here.
        """
        if plan.runtime not in RUNTIMES:
            raise UsageError(f"unknown runtime {plan.runtime!r}: one of {', '.join(RUNTIMES)}")
        if self._zygote is None or not self._zygote.alive or self._zygote.plan != plan:
            self.drop()
            self._zygote = _new_zygote(plan)
        return self._zygote

    def drop(self) -> None:
        """Ends the zygote and its child."""
        if self._zygote is not None:
            self._zygote.close()
            shutil.rmtree(self._zygote.scratch, ignore_errors=True)
            self._zygote = None


def fresh_folder(zygote: ZygoteLink, name: str, *, with_code: bool) -> Path:
    """The working folder of a zygote's next child; that of the last one, which must have ended with all its own, goes.

    Args:
        zygote: Whose scratch folder it lies in.
        name: Its name, never used before.
        with_code: Whether the child will place a bundle: most of it may be there already.
    """
    before = [old for old in zygote.scratch.iterdir() if old.is_dir()]  # the zygote's own words stay
    folder = zygote.scratch / name
    folder.mkdir()
    for old in before:
        if with_code and sys.platform == "linux":  # elsewhere a process may be left that writes there
            hand_over(old / CODE, folder / CODE)
        shutil.rmtree(old, ignore_errors=True)
    return folder


def describe_host() -> dict[str, Any]:
    """Which host this is, by its environment and Ray's."""
    return {
        "node_id": node_id(),
        "slice_name": os.environ.get("TPU_NAME", ""),
        "worker_id": int(os.environ.get("TPU_WORKER_ID") or 0),
        "chips": chips(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
    }


def _new_zygote(plan: HostPlan) -> ZygoteLink:
    *others, last = ways_to_begin(plan, os.environ)
    for way in others:
        try:
            return _begin(plan, way)
        except (OSError, ConfigError) as exc:
            _LOG.warning("no zygote by way of the %s, so by %s: %s", way.name, last.name, exc)
    return _begin(plan, last)


def _begin(plan: HostPlan, way: Way) -> ZygoteLink:
    """A folder for each try: a zygote that comes too late removes its own."""
    # In the folder of a simulated cluster, whose end is also the end of what a killed host has left.
    scratch = Path(tempfile.mkdtemp(prefix="kinetic-", dir=os.environ.get("RAY_TMPDIR")))
    try:
        return ZygoteLink(plan, scratch, way.begin, way.patience)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def node_id() -> str:
    """The Ray node that this process belongs to; "" outside of Ray."""
    if "ray" not in sys.modules:
        return ""
    import ray

    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else ""


def ray_address() -> str:
    """Where this process's Ray cluster is; "" outside of Ray."""
    if not node_id():
        return ""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def chips() -> int:
    """Chips that Ray assigned to the node; 0 where there are none."""
    if not node_id():
        return 0
    import ray

    mine = next((node for node in ray.nodes() if node["NodeID"] == node_id()), None)
    return int(mine["Resources"].get("TPU", 0)) if mine else 0
