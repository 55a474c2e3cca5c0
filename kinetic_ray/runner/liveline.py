"""The driver's line to the supervisor: while it is open the driver lives; cancels and news of hosts come down it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from kinetic_ray import wire
from kinetic_ray.errors import KineticError
from kinetic_ray.runner.inbox import HostGoing, HostLost, Inbox, Stop, StopAsked

_LOG = logging.getLogger(__name__)


class Liveline:
    """An open line. Its end, also by the driver's death, tells the supervisor that the driver is gone."""

    def __init__(self, supervisor: str, job_id: str, epoch: int) -> None:
        """Says hello.

        Raises:
            OSError: Nobody listens.
        """
        self._peer = wire.connect(supervisor)
        self._peer.send({"op": "driver", "job_id": job_id, "epoch": epoch, "pid": os.getpid()})

    def follow(self, inbox: Inbox, cancel_requested: Callable[[], bool]) -> None:
        """Passes on what comes, from a thread of its own.

        Args:
            inbox: Where to.
            cancel_requested: Whether the cancel record exists; without one a cancel is no more than a rumour.
        """
        listener = threading.Thread(target=self._listen, args=(inbox, cancel_requested), daemon=True)
        listener.name = "kinetic-liveline"
        listener.start()

    def close(self) -> None:
        """Says goodbye."""
        self._peer.close()

    def _listen(self, inbox: Inbox, cancel_requested: Callable[[], bool]) -> None:
        try:
            while (message := self._peer.recv()) is not None:
                match message.get("event"):
                    case "cancel" if _is_true(cancel_requested):
                        inbox.put(StopAsked(Stop.CANCEL))
                    case "host_lost":
                        inbox.put(_host_lost(message))
                    case "host_going":
                        inbox.put(HostGoing(message["node_id"], float(message.get("grace") or 0.0)))
        except (OSError, wire.WireError) as exc:
            _LOG.warning("the line to the supervisor broke: %s", exc)


def _is_true(cancel_requested: Callable[[], bool]) -> bool:
    try:
        return cancel_requested()
    except (KineticError, OSError) as exc:  # the recorder sees the record once the store is back
        _LOG.warning("a cancel can't be looked up just now: %s", exc)
        return False


def _host_lost(message: wire.Message) -> HostLost:
    worker_id = int(message.get("worker_id") or 0)
    return HostLost(message["node_id"], str(message.get("slice", "")), worker_id, str(message.get("reason", "")))
