"""One Ray node in one process: `python -m kinetic_ray.backends.local.node PLAN` builds the head or a simulated host.

Nothing here chooses a port: everything binds to port 0 on loopback and says afterwards what it got. When the node is
up, this process reports so on a pipe and becomes its guard (:mod:`kinetic_ray.backends.local.guard`).

Three things are unlike `ray start`. The head's dashboard, which takes jobs, starts beside its raylet and not before it.
A simulated host has no agents of its own: the head's runtime-env agent, on the same machine, serves it too, and the
dashboard agent's place is held by a process that sleeps. That makes a host of 25 MB out of one of 190, in a third of
the time. Nothing listens that would answer without the token: no metrics are exported.
"""

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray._private.services as ray_services
import ray._private.utils as ray_utils
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._raylet import persist_port  # type: ignore[attr-defined]

from kinetic_ray.backends.local import guard
from kinetic_ray.backends.local.plan import NodePlan

#: A busy host must not be declared dead, a silent one be noticed within 8 s: two pings in a row, 2.5 s each.
_HEALTH = {
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2500,
    "health_check_failure_threshold": 2,
}
#: The exporter of metrics would answer everybody, without the token.
_METRICS = {"enable_metrics_collection": False}
_PRESTARTED = 2  # the broker, and the agent of the first job
_ABSENT_AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")


class ChildDied(Exception):
    """A process of the node ended while the node was being built."""


class _Head(Node):  # type: ignore[misc]
    """The head, with its dashboard started last: it takes two seconds that the raylet's agents need as well."""

    def start_api_server(self, **_options: Any) -> None:
        self._webui_url = ""  # not yet, see below

    def start_ray_processes(self) -> None:
        # Ray's job agent, told "auto", takes the address in this file when it sees more than one cluster.
        ray_utils.write_ray_address(self.gcs_address, self.temp_dir)
        self._ray_params.env_vars = {"RAY_ADDRESS": self.gcs_address, "KINETIC_RAY_ADDRESS": self.gcs_address}
        super().start_ray_processes()
        # It keeps a socket in the folder for temporary files, and is killed at the end: so that lies in ours.
        with _changed({}, {"TMPDIR": self.temp_dir}):
            super().start_api_server(include_dashboard=True, raise_on_failure=True)

    def start_raylet(self, *args: Any, **kwargs: Any) -> None:
        _fail_fast(self)
        # Ray would start a worker a CPU, before anybody has asked for one: seconds of work and most of the memory.
        with _changed({"--num_prestart_python_workers": str(_PRESTARTED)}):
            super().start_raylet(*args, **kwargs)


class _Host(Node):  # type: ignore[misc]
    """A simulated host: its raylet finds all of its agents' ports written down, and keeps two sleepers as agents."""

    def start_raylet(self, *args: Any, **kwargs: Any) -> None:
        _fail_fast(self)
        for name in _ABSENT_AGENT_PORTS:
            persist_port(self.get_session_dir_path(), self.node_id, name, -1)
        sleeper = shlex.join([sys.executable, "-I", "-S", guard.__file__, "rest"])
        with _changed({"--dashboard_agent_command": sleeper, "--runtime_env_agent_command": sleeper}):
            super().start_raylet(*args, **kwargs)


@contextmanager
def _changed(flags: Mapping[str, str], environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Starts a process with other flags and variables than Ray would; there is no way to ask it for them."""
    original = ray_services.start_ray_process

    def edited(command: Sequence[str], *args: Any, env_updates: dict[str, str] | None = None, **kwargs: Any) -> Any:
        updates = {**(env_updates or {}), **(environ or {})}
        return original([_edit(word, flags) for word in command], *args, env_updates=updates, **kwargs)

    ray_services.start_ray_process = edited
    try:
        yield
    finally:
        ray_services.start_ray_process = original


def _edit(word: str, values: Mapping[str, str]) -> str:
    flag = word.partition("=")[0]
    return f"{flag}={values[flag]}" if flag in values else word


def _fail_fast(node: Node) -> None:
    """Has the death of one of the node's processes end the building of it; Ray would wait for half a minute."""

    def check(_signum: int, _frame: object) -> None:
        if dead := [kind for kind, _process in node.dead_processes()]:
            raise ChildDied(f"{', '.join(dead)} ended while the node was starting; see {node.get_logs_dir_path()}")

    signal.signal(signal.SIGCHLD, check)


def build(plan: NodePlan) -> Node:
    """Starts the node's processes and returns when the cluster knows it."""
    sockets = [Path(plan.socket_dir) / f"{plan.name}.{end}" for end in ("r", "p")]
    for stale in sockets:
        stale.unlink(missing_ok=True)  # a raylet aborts on one
    shared = {
        "temp_dir": plan.temp_dir,
        "num_cpus": plan.cpus,
        "num_gpus": 0,
        "object_store_memory": plan.object_store or None,
        "raylet_socket_name": str(sockets[0]),
        "plasma_store_socket_name": str(sockets[1]),
        "include_log_monitor": False,
        "dashboard_agent_listen_port": 0,
        "min_worker_port": 0,
        "max_worker_port": 0,
    }
    if plan.gcs_address:
        joins = {"gcs_address": plan.gcs_address, "redis_address": plan.gcs_address}
        params = RayParams(
            **shared,
            **joins,
            resources={"TPU": plan.chips},
            runtime_env_agent_port=plan.runtime_env_port,
            env_vars={"RAY_ADDRESS": plan.gcs_address, "KINETIC_RAY_ADDRESS": plan.gcs_address},
        )
        return _Host(params, head=False, shutdown_at_exit=False)
    params = RayParams(
        **shared, include_dashboard=True, dashboard_port=0, no_monitor=True, _system_config={**_HEALTH, **_METRICS}
    )
    return _Head(params, head=True, shutdown_at_exit=False)


def report(node: Node) -> dict[str, Any]:
    """What the supervisor needs to know about a node that is up."""
    return {
        "node_id": node.node_id,
        "gcs_address": node.gcs_address,
        "dashboard": node.webui_url or "",
        "runtime_env_port": node.runtime_env_agent_port,
        "session_dir": node.get_session_dir_path(),
    }


def main(argv: Sequence[str]) -> None:
    """Builds the node of the plan in `argv`, reports it, becomes its guard. Never returns."""
    plan = NodePlan.parse(argv[0])
    guard.die_with_parent(plan.parent, signal.SIGTERM)
    guard.adopt_orphans()
    os.set_inheritable(plan.report_fd, False)
    guard.on_ending(guard.stop)
    try:
        node = build(plan)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, guard.ENDING)  # until the guard has its handlers
    except (guard.Stopped, Exception) as error:  # noqa: BLE001 - the edge of a process: it says why and leaves nothing
        sys.stderr.write(f"{plan.name}: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        guard.end_descendants(os.getpid())
        os._exit(1)  # Ray's threads may hang in an orderly end
    pids = [str(process.pid) for _kind, process in node.live_processes()]
    os.write(plan.report_fd, json.dumps(report(node)).encode() + b"\n")
    grace = "1.5" if plan.gcs_address else "0"
    os.execv(sys.executable, [sys.executable, "-I", "-S", guard.__file__, "watch", grace, *pids])


if __name__ == "__main__":
    main(sys.argv[1:])
