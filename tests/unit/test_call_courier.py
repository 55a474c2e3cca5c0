"""Lines on their way to the desk: one batch at a time, each until it has arrived, and none in silence that doesn't."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from kinetic_ray.runner.calls.courier import Courier, Source
from tests.waiting import wait_until

ONE, OTHER = Source("a", "f", 0, "host 0"), Source("b", "g", 1, "host 1")


class Desk:
    """Takes what arrives; fails as often as it is told before that."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.batches: list[tuple[int, Source, list[str]]] = []
        self.open: list[Future[None]] = []
        self.answers_at_once = True

    def say(self, number: int, source: Source, lines: Sequence[str]) -> Future[None]:
        self.batches.append((number, source, list(lines)))
        self.open.append(Future())
        if self.failures:
            self.failures -= 1
            self.open[-1].set_exception(ConnectionError("out of reach"))
        elif self.answers_at_once:
            self.open[-1].set_result(None)
        return self.open[-1]


def test_whoever_has_lines_waits_until_they_have_arrived_and_nobody_overtakes() -> None:
    desk = Desk()
    desk.answers_at_once = False
    courier = Courier(desk.say)
    threads = [threading.Thread(target=courier.carry, args=(source, ["x"])) for source in (ONE, OTHER)]
    for arrived, thread in enumerate(threads):
        thread.start()
        wait_until(lambda: desk.batches, what="the first")
        assert len(desk.batches) == 1, arrived
    desk.open[0].set_result(None)
    wait_until(lambda: len(desk.batches) == 2, what="the second")
    desk.open[1].set_result(None)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert desk.batches == [(1, ONE, ["x"]), (2, OTHER, ["x"])]


def test_what_may_not_have_arrived_is_said_again_under_its_number() -> None:
    desk = Desk(failures=2)
    courier = Courier(desk.say, retry=0.0)
    courier.carry(ONE, ["x", "y"])
    courier.carry(ONE, ["z"])
    assert desk.batches == [(1, ONE, ["x", "y"])] * 3 + [(2, ONE, ["z"])]


def test_what_cannot_be_said_is_counted_and_told_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(failures=2)
    courier = Courier(desk.say, patience=0.0)
    courier.carry(ONE, ["x", "y"])
    courier.carry(ONE, ["z"])
    assert [record.args[:2] for record in caplog.records if record.args] == [(2, "f"), (1, "f")]
    courier.carry(OTHER, ["of another"])
    courier.carry(ONE, ["after"])
    courier.carry(ONE, ["that"])
    assert [lines for _, _, lines in desk.batches[2:]] == [
        ["of another"],
        ["[kinetic: 3 earlier lines could not be passed on]", "after"],
        ["that"],
    ]
