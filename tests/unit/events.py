"""Any events, not only sensible ones, for property tests."""

from typing import Any

from hypothesis import strategies as st

from kinetic_ray.core.state import Event, EventKind, RankPhase

TEXTS = st.text(max_size=6)
RANKS = st.integers(0, 2)
FIELDS: dict[EventKind, st.SearchStrategy[dict[str, Any]]] = {
    EventKind.DRIVER_STARTED: st.just({}),
    EventKind.QUEUED: st.fixed_dictionaries({}, optional={"message": TEXTS}),
    EventKind.GRANTED: st.fixed_dictionaries({"slices": st.lists(TEXTS, max_size=2)}),
    EventKind.PLACED: st.fixed_dictionaries({"hosts": st.sampled_from([[], [{"rank": 0}, {"rank": 1}]])}),
    EventKind.ATTEMPT_STARTED: st.fixed_dictionaries({"attempt": st.integers(1, 9)}),
    EventKind.RANK_PHASE: st.fixed_dictionaries({"rank": RANKS, "phase": st.sampled_from([str(p) for p in RankPhase])}),
    EventKind.RANK_ENDED: st.fixed_dictionaries({"rank": RANKS, "ok": st.booleans()}, optional={"reason": TEXTS}),
    EventKind.PROGRESSED: st.fixed_dictionaries(
        {"step": st.integers()},
        optional={"total": st.integers(), "metrics": st.dictionaries(TEXTS, st.floats(allow_nan=False))},
    ),
    EventKind.ATTEMPT_FAILED: st.fixed_dictionaries({}, optional={"reason": TEXTS, "rank": RANKS}),
    EventKind.WARNED: st.fixed_dictionaries({"message": TEXTS}),
    EventKind.ENDED: st.fixed_dictionaries(
        {"status": st.sampled_from(["SUCCEEDED", "FAILED", "STOPPED"])}, optional={"reason": TEXTS, "rank": RANKS}
    ),
}
EVENTS = st.sampled_from(EventKind).flatmap(
    lambda kind: st.builds(Event, st.just(kind), st.floats(0, 1e10, allow_nan=False), FIELDS[kind])
)
HISTORIES = st.lists(EVENTS, max_size=30)
