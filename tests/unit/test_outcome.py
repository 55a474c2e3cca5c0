"""A rank's outcome survives the store."""

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.outcome import Blob, ErrorInfo, Outcome
from kinetic_ray.core.records import dump_record, load_record
from kinetic_ray.core.state import RankPhase, Reason

TEXTS = st.text(st.characters(exclude_categories=()))  # an exception's message may hold lone surrogates
BLOBS = st.builds(Blob, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 1 << 50))
ERRORS = st.builds(ErrorInfo, TEXTS, TEXTS, TEXTS, TEXTS, st.none() | BLOBS, st.none() | TEXTS)
OUTCOMES = st.builds(
    Outcome,
    rank=st.integers(0, 99_999),
    ok=st.booleans(),
    reason=st.just("") | st.sampled_from([str(reason) for reason in Reason]),
    phase=st.just("") | st.sampled_from([str(phase) for phase in RankPhase]),
    message=TEXTS,
    value=st.none() | BLOBS,
    error=st.none() | ERRORS,
    exit_code=st.none() | st.integers(-64, 255),
    log_tail=TEXTS,
)


@given(OUTCOMES)
def test_an_outcome_comes_back(outcome: Outcome) -> None:
    assert Outcome.from_dict(outcome.to_dict()) == outcome
    stored = dump_record("outcome", outcome.to_dict())
    assert Outcome.from_dict(load_record("outcome", stored)) == outcome


@given(OUTCOMES)
def test_to_dict_shares_nothing_with_the_outcome(outcome: Outcome) -> None:
    told = outcome.to_dict()
    if told["error"] is not None:
        told["error"]["message"] = "changed"
        assert outcome.error == Outcome.from_dict(outcome.to_dict()).error


def test_what_an_older_writer_left_out_has_its_default() -> None:
    assert Outcome.from_dict({"rank": 0, "ok": False}) == Outcome(0, False)
