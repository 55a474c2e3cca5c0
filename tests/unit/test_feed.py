"""What an agent keeps for its driver."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.feed import REPORTS_KEPT, Feed, Message

ENDED: Message = {"t": "ended", "ok": True}


def _report(step: int) -> Message:
    return {"t": "report", "step": step}


def test_messages_come_once_and_the_end_again_and_again() -> None:
    feed = Feed()
    feed.put({"t": "phase", "phase": "fetch"})
    assert feed.take(0) == [{"t": "phase", "phase": "fetch"}]
    assert feed.take(0) == []
    feed.put(ENDED)
    feed.put(_report(1))
    assert feed.take(0) == [ENDED]
    assert feed.take(0) == [ENDED]
    assert feed.ended


def test_taking_waits_for_the_next_message() -> None:
    feed = Feed()
    taken: list[Message] = []
    asking = threading.Thread(target=lambda: taken.extend(feed.take(30)))
    asking.start()
    feed.put(ENDED)
    asking.join(30)
    assert taken == [ENDED]


@given(st.integers(min_value=0, max_value=40), st.lists(st.booleans(), max_size=60))
def test_only_the_oldest_reports_are_dropped(surplus: int, phases: list[bool]) -> None:
    feed = Feed()
    for step in range(REPORTS_KEPT + surplus):
        feed.put(_report(step))
        if step < len(phases) and phases[step]:
            feed.put({"t": "phase", "phase": str(step)})
    taken = feed.take(0)
    assert [m["step"] for m in taken if m["t"] == "report"] == [*range(surplus, REPORTS_KEPT + surplus)]
    assert sum(m["t"] == "phase" for m in taken) == sum(phases)
