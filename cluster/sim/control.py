"""Starts and stops the components of a running plane, over the socket in its folder."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOCKET = "control"
_TIMEOUT = 30.0


class ControlError(Exception):
    """The plane's first process refused, or there is none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One component: its process id inside the plane, 0 where it doesn't run, and how often it was started again."""

    pid: int
    restarts: int


@dataclass(frozen=True, slots=True)
class Control:
    """Talks to the first process of the plane in `folder`."""

    folder: Path

    def start(self, name: str) -> None:
        """Starts a component that doesn't run."""
        self._ask({"do": "start", "name": name})

    def stop(self, name: str) -> None:
        """Kills a component; when this returns it is gone, and stays so until it is started."""
        self._ask({"do": "stop", "name": name})

    def components(self) -> dict[str, Seen]:
        return {name: Seen(**seen) for name, seen in self._ask({"do": "list"})["components"].items()}

    def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_TIMEOUT)
            self._connect(link)
            with link.makefile("rwb") as stream:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
                line = stream.readline()
        if not line:
            raise ControlError("the plane ended meanwhile")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ControlError(f"{request}: {answer['error']}")
        return answer

    def _connect(self, link: socket.socket) -> None:
        """By way of an open folder: the path of a socket must be short, that of the folder may be long."""
        try:
            handle = os.open(self.folder, os.O_PATH)
            try:
                link.connect(f"/proc/self/fd/{handle}/{SOCKET}")
            finally:
                os.close(handle)
        except OSError as error:
            raise ControlError(f"no plane runs in {self.folder}: {error}") from None
