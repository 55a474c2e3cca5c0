"""Which reported step counts, and who is named for holding it up."""

import math

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.records import dump_record, load_record
from kinetic_ray.core.state import Event, EventKind, fold
from kinetic_ray.runner.progress import SILENCE, Progress


def report(step: int, **metrics: float) -> dict[str, object]:
    return {"t": "report", "step": step, "total": 10, "metrics": metrics}


def test_a_step_counts_once_every_rank_has_reached_it() -> None:
    progress = Progress(3)
    assert progress.add(0, report(1, loss=3.0), 0.0) == []
    assert progress.add(0, report(2, loss=2.0), 0.0) == []
    assert progress.add(1, report(2), 0.0) == []
    assert progress.add(2, report(1), 0.0) == [{"step": 1, "total": 10, "metrics": {"loss": 3.0}}]
    assert progress.add(2, report(5), 0.0) == [{"step": 2, "total": 10, "metrics": {"loss": 2.0}}]


def test_a_single_rank_waits_for_nobody() -> None:
    assert Progress(1).add(0, report(4, acc=0.5), 0.0) == [{"step": 4, "total": 10, "metrics": {"acc": 0.5}}]


def test_a_loss_that_is_no_number_survives_the_trip_through_the_store() -> None:
    bad = {"loss": math.nan, "up": math.inf, "down": -math.inf, "well": 1.0}
    (fields,) = Progress(1).add(0, report(1, **bad), 0.0)
    event = Event(EventKind.PROGRESSED, 1.0, fields)
    stored = load_record("events", dump_record("events", {"first": 1, "events": [event.to_dict()]}))
    state = fold([(1, Event.from_dict(stored["events"][0]))])
    assert state.progress is not None
    assert math.isnan(state.progress.metrics["loss"])
    assert {name: value for name, value in state.progress.metrics.items() if name != "loss"} == {
        "up": math.inf,
        "down": -math.inf,
        "well": 1.0,
    }


def test_a_rank_that_is_behind_for_a_minute_is_named_once() -> None:
    progress = Progress(2)
    progress.add(0, report(3), 100.0)
    assert progress.next_look() == 100.0 + SILENCE
    assert progress.silent(100.0 + SILENCE - 1) == []
    (sentence,) = progress.silent(100.0 + SILENCE)
    assert sentence.startswith("rank 1 has reported nothing while others reported step 3")
    assert progress.silent(500.0) == []
    assert progress.next_look() is None
    assert progress.at_the_end() == []


def test_a_rank_that_only_lags_is_not_named_while_it_reports() -> None:
    progress = Progress(2)
    for step in range(5):
        progress.add(0, report(step + 1), 50.0 * step)
        progress.add(1, report(step), 50.0 * step)
        assert progress.silent(50.0 * step + 49.0) == []


def test_at_the_end_who_never_reported_is_named() -> None:
    progress = Progress(3)
    progress.add(0, report(3), 1.0)
    progress.add(2, report(1), 1.0)
    (sentence,) = progress.at_the_end()
    assert sentence.startswith("rank 1 has reported nothing")


def test_nobody_is_named_where_nobody_reports() -> None:
    progress = Progress(2)
    assert progress.next_look() is None
    assert progress.silent(1e9) == []
    assert progress.at_the_end() == []


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=60)


@given(STEPS)
def test_only_reached_steps_count_and_none_of_rank_0_is_lost(arrivals: list[tuple[int, int]]) -> None:
    progress = Progress(3)
    newest = [-1, -1, -1]
    counted: list[int] = []
    for rank, step in arrivals:
        newest[rank] = max(newest[rank], step)
        for fields in progress.add(rank, report(step), 0.0):
            assert fields["step"] <= min(newest)
            counted.append(fields["step"])
    reached = [step for rank, step in arrivals if rank == 0 and step <= min(newest)]
    assert sorted(counted) == sorted(reached)
