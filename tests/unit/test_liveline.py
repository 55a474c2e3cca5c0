"""The driver's line to the supervisor: a store that is away doesn't break it."""

import socket
import threading
from pathlib import Path

import pytest

from kinetic_ray.errors import StoreError
from kinetic_ray.runner.inbox import HostLost, Inbox, Stop, Stopped
from kinetic_ray.runner.liveline import Liveline

TIMEOUT = 60.0


def test_a_cancel_that_can_not_be_looked_up_is_not_the_end_of_the_line(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        answers: list[bool | Exception] = [StoreError("away"), OSError(5, "Input/output error"), False, True]

        def cancel_requested() -> bool:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        inbox = Inbox()
        line = Liveline(str(tmp_path / "s"), "job-1", 1)
        line.follow(inbox, cancel_requested)
        ours, _ = listener.accept()
        with ours:
            for _ in range(4):
                ours.sendall(b'{"event":"cancel"}\n{"event":"host_lost","node_id":"n"}\n')
            for _ in range(3):
                assert isinstance(inbox.take(), HostLost)
            with pytest.raises(Stopped) as caught:
                inbox.take()
            assert caught.value.asked.stop is Stop.CANCEL
        line.close()
    for thread in threading.enumerate():
        if thread.name == "kinetic-liveline":
            thread.join(TIMEOUT)
