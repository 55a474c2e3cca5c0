"""A Kubernetes cluster of this machine's own, for tests: `with Plane(PlaneSpec(...)) as plane: plane.api.get(...)`."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.sim import images, kuberay
from cluster.sim.api import Api, ApiError, write_kubeconfig
from cluster.sim.certificates import Keys, make_keys
from cluster.sim.components import INNER_SERVER, USERS, Component, components_of
from cluster.sim.control import Control, ControlError
from cluster.sim.folder import write_secret
from cluster.sim.housing import Housing, HousingError
from cluster.sim.nodes import is_usable, nodes_of
from cluster.sim.programs import Programs
from cluster.sim.spec import NodePool, PlaneSpec, named_apart

_READY = 180.0  # seconds; a busy machine needs a multiple of the ten that a quiet one needs
_POLL = 0.1
_CONTROLLERS = ("kube-controller-manager", "kube-scheduler", "kubelet")


class PlaneError(Exception):
    """A plane didn't come up; the message ends with what its components said last."""


class Plane:
    """One plane, from `up` to `down`. As a context manager it is up inside.

    It ends with the process that made it, however that ends, unless it is told to `stay`.
    """

    def __init__(self, spec: PlaneSpec, programs: Programs, root: Path | None = None, name: str = "") -> None:
        """Makes no plane yet.

        Args:
            spec: What it is made of.
            programs: As `build_programs` gave them.
            root: Where its folder is made; by default where all of the user's planes have theirs.
            name: Of the folder, by default a new one.
        """
        self.spec = spec
        self.programs = programs
        self.housing = Housing(root, name, spec.port)
        self._nodes = 0

    # From up to down.

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.down)
            self.up()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Starts everything; returns when nodes are ready and KubeRay's kinds are served.

        Raises:
            PlaneError: It didn't come up. `down` is still to be called.
        """
        try:
            self._start()
        except (OSError, ApiError, ControlError, HousingError, ValueError) as error:
            raise PlaneError(f"{error}\n{self.housing.last_words()}".strip()) from error

    def down(self) -> None:
        """Ends everything and removes the folder; does nothing where that has happened."""
        self.housing.end()

    def stay(self) -> None:
        """Lets the plane live on when this process ends; `existing.end_plane` ends it."""
        self.housing.stay()

    # What is there.

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, for the host."""
        return self.housing.folder.kubeconfig

    @property
    def api(self) -> Api:
        """The API server as an administrator, from the host."""
        return Api.of_kubeconfig(self.kubeconfig)

    @property
    def gcs_url(self) -> str:
        """Where the host finds Cloud Storage; pods find the same at `images.GCS_URL`."""
        return f"http://127.0.0.1:{self.housing.facts.gcs_port}"

    @property
    def control(self) -> Control:
        return self.housing.control

    # What may happen to it.

    def add_pool(self, pool: NodePool) -> None:
        """Adds the nodes of a pool; the kubelet makes them ready."""
        for body in nodes_of(pool, self._nodes + 1, self.programs.version):
            self.api.create("/api/v1/nodes", body)
        self._nodes += pool.hosts

    def restart(self, component: str) -> None:
        """Kills a component and starts it anew, without waiting for it to be ready."""
        self.control.stop(component)
        self.control.start(component)

    def is_ready(self) -> bool:
        """Whether the API server says so of itself."""
        return self.api.read("/readyz") == b"ok"

    def nodes_ready(self) -> bool:
        """Whether all nodes are, and the scheduler may use them."""
        return all(map(is_usable, self.api.items("/api/v1/nodes")))

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = _READY) -> None:
        """Waits until something holds; an API server that can't be reached is waited for.

        Raises:
            TimeoutError: It didn't; the message names `what`.
        """
        deadline = time.monotonic() + seconds
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
                problem = None
            except (OSError, ApiError) as error:
                problem = error
            if not self.housing.lives():
                raise TimeoutError(f"the plane ended while waiting for {what}")
            time.sleep(_POLL)
        raise TimeoutError(f"waited {seconds:.0f} s for {what}" + (f": {problem}" if problem else ""))

    # Its parts.

    def _start(self) -> None:
        self.housing.prepare()
        self.housing.start(self._fill_folder())
        self.wait_for(self.is_ready, "the API server to be ready")
        for name in _CONTROLLERS:
            self.control.start(name)
        for pool in named_apart((self.spec.cpu_pool, *self.spec.pools)):
            self.add_pool(pool)
        if self.spec.kuberay:
            self._start_operator()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.wait_for(lambda: self.api.exists(account), "the default service account")
        self.wait_for(self.nodes_ready, "the nodes to be ready")

    def _fill_folder(self) -> tuple[Component, ...]:
        folder = self.housing.folder
        folder.keys.mkdir(mode=0o700)
        keys = make_keys(folder.keys)
        self._write_users(keys)
        folder.images.write_text(json.dumps(images.entries(self.spec.images)), encoding="utf-8")
        folder.spec.write_text(json.dumps(asdict(self.spec)), encoding="utf-8")
        return components_of(self.spec, folder, keys, self.programs)

    def _write_users(self, keys: Keys) -> None:
        folder = self.housing.folder
        tokens = {name: secrets.token_hex(16) for name in USERS}
        rows = [f'{tokens[name]},{user},{user},"{group}"\n' for name, (user, group) in USERS.items()]
        write_secret(folder.tokens, "".join(rows))
        for name, token in tokens.items():
            write_secret(folder.token(name), token)
            write_kubeconfig(folder.inner_kubeconfig(name), INNER_SERVER, token, keys.ca)
        server = f"https://127.0.0.1:{self.housing.facts.api_port}"
        write_kubeconfig(folder.kubeconfig, server, tokens["admin"], keys.ca)

    def _start_operator(self) -> None:
        folder = self.housing.folder
        token = kuberay.install(self.api, self.programs.kuberay_objects, self.wait_for)
        write_kubeconfig(folder.inner_kubeconfig("operator"), INNER_SERVER, token, folder.keys / "ca.crt")
        self.control.start("operator")
