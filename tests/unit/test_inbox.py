"""The driver's one queue: everything arrives, nothing blocks, a stop breaks any wait."""

import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from kinetic_ray.runner.inbox import (
    Answer,
    HostGoing,
    HostLost,
    HostsGone,
    Inbox,
    Stop,
    StopAsked,
    Stopped,
    TimedOut,
)


class Ref:
    """Stands for an object ref."""

    def __init__(self, value: Any = None, error: BaseException | None = None, *, pending: bool = False) -> None:
        self.done: Future[Any] = Future()
        if error is not None:
            self.done.set_exception(error)
        elif not pending:
            self.done.set_result(value)

    def future(self) -> Future[Any]:
        return self.done


LOST = HostLost("node-1", "tpu-v6e-16-0", 1, "NodeLost")


def soon() -> float:
    return time.monotonic() + 0.05


def test_answers_and_errors_arrive_with_their_tags() -> None:
    inbox = Inbox()
    failure = ValueError("bad")
    inbox.watch("a", Ref(1))
    inbox.watch("b", Ref(error=failure))
    assert inbox.take() == Answer("a", 1)
    assert inbox.take() == Answer("b", error=failure)


def test_an_answer_from_another_thread_wakes_the_taker() -> None:
    inbox = Inbox()
    ref = Ref(pending=True)
    inbox.watch("a", ref)
    threading.Timer(0.05, ref.done.set_result, [7]).start()
    assert inbox.take(time.monotonic() + 20.0) == Answer("a", 7)


def test_take_gives_up_at_its_deadline() -> None:
    assert Inbox().take(soon()) is None


def test_a_deadline_may_lie_centuries_away() -> None:
    inbox = Inbox()
    inbox.watch("a", Ref(1))
    assert inbox.take(time.monotonic() + 1e12) == Answer("a", 1)


def test_gather_takes_its_own_answers_only() -> None:
    inbox = Inbox()
    inbox.watch("stray", Ref("stray"))
    assert inbox.gather({"x": Ref(1), "y": Ref(2)}) == {"x": 1, "y": 2}


def test_gather_raises_the_first_error() -> None:
    with pytest.raises(ValueError, match="bad"):
        Inbox().gather({0: Ref(1), 1: Ref(error=ValueError("bad"))})


def test_gather_gives_up_at_its_deadline() -> None:
    with pytest.raises(TimedOut):
        Inbox().gather({0: Ref(pending=True)}, soon())


def test_gather_ends_with_a_host_that_it_needs_and_not_with_another() -> None:
    inbox = Inbox()
    inbox.put(LOST)
    assert inbox.gather({0: Ref(1)}, needed=frozenset({"node-2"})) == {0: 1}
    with pytest.raises(HostsGone, match="host 1 of tpu-v6e-16-0 was lost: NodeLost"):
        inbox.gather({0: Ref(pending=True)}, needed=frozenset({"node-1"}))


def test_a_loss_is_remembered_and_can_be_waited_for() -> None:
    inbox = Inbox()
    assert inbox.await_loss(frozenset({"node-1"}), soon()) is None
    inbox.put(LOST)
    assert inbox.await_loss(frozenset({"node-1"}), soon()) == LOST
    assert inbox.lost_among(frozenset({"node-1"})) == LOST


def test_a_notice_is_heard_once_and_remembered() -> None:
    inbox = Inbox()
    going = HostGoing("node-1", 25.0)
    inbox.put(going)
    assert inbox.gather({0: Ref(1)}, needed=frozenset({"node-1"})) == {0: 1}  # the host is still there
    assert inbox.take(soon()) is None
    assert inbox.going == (going,)


@pytest.mark.parametrize("wait", ["take", "gather", "pause", "await_loss"])
def test_a_stop_breaks_every_wait(wait: str) -> None:
    inbox = Inbox()
    inbox.put(StopAsked(Stop.CANCEL))
    waits = {
        "take": inbox.take,
        "gather": lambda: inbox.gather({0: Ref(pending=True)}),
        "pause": lambda: inbox.pause(20.0),
        "await_loss": lambda: inbox.await_loss(frozenset(), time.monotonic() + 20.0),
    }
    with pytest.raises(Stopped) as caught:
        waits[wait]()
    assert caught.value.asked.stop is Stop.CANCEL
