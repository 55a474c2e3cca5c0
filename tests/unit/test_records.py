"""The envelope of durable records: what is altered, torn, foreign or newer is refused by name."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinetic_ray.core.records import VERSIONS, canonical, dump_record, load_record
from kinetic_ray.errors import ConfigError, DataError

KINDS = st.sampled_from(sorted(VERSIONS))
# Lone surrogates included: os.fsdecode makes them of file names that aren't UTF-8.
TEXTS = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
BODIES = st.dictionaries(TEXTS, VALUES, max_size=5)


@given(KINDS, BODIES)
def test_a_record_comes_back(kind: str, body: dict[str, Any]) -> None:
    data = dump_record(kind, body)
    assert load_record(kind, data) == body
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1
    assert dump_record(kind, load_record(kind, data)) == data


@given(BODIES)
def test_the_order_of_keys_does_not_show(body: dict[str, Any]) -> None:
    turned = dict(reversed(body.items()))
    assert dump_record("events", turned) == dump_record("events", body)


@given(KINDS, BODIES, st.data())
def test_any_altered_byte_is_refused(kind: str, body: dict[str, Any], data: st.DataObject) -> None:
    good = dump_record(kind, body)
    place = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != good[place]))
    with pytest.raises((DataError, ConfigError)):
        load_record(kind, good[:place] + bytes([byte]) + good[place + 1 :])


def test_every_bit_of_a_record_counts() -> None:
    good = dump_record("outcome", {"rank": 3, "ok": True, "message": "né", "value": {"sha256": "ab", "size": 2.5}})
    for place in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[place] ^= 1 << bit
            with pytest.raises((DataError, ConfigError)):
                load_record("outcome", bytes(bad))


@given(KINDS, BODIES, st.data())
def test_any_torn_record_is_refused(kind: str, body: dict[str, Any], data: st.DataObject) -> None:
    good = dump_record(kind, body)
    length = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(DataError):
        load_record(kind, good[:length])
    with pytest.raises(DataError):
        load_record(kind, good + good)


@given(st.binary() | VALUES.map(canonical))
@example(b"[" * 100_000)  # nested deeper than the parser goes
@example(b"null")
@example(b'"kind"')
@example(b'{"body":{},"kind":"claim","sha256":"","sig":null,"version":' + b"9" * 5000 + b"}")
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"claim\.json"):
        load_record("claim", data, where="jobs/x/claim.json")


def _forged(**changes: Any) -> bytes:
    envelope = json.loads(dump_record("claim", {"pid": 7}))
    envelope.update(changes)
    return (json.dumps(envelope, sort_keys=True, separators=(",", ":")) + "\n").encode()


def test_the_forgery_is_a_record_until_something_changes() -> None:
    assert load_record("claim", _forged()) == {"pid": 7}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "spec"}, "holds a 'spec' record where 'claim' was expected"),
        ({"kind": None}, "holds a None record"),
        ({"version": 0}, "no valid format version: 0"),
        ({"version": -1}, "no valid format version"),
        ({"version": "1"}, "no valid format version: '1'"),
        ({"version": True}, "no valid format version: True"),
        ({"version": 1.0}, "no valid format version: 1.0"),
        ({"sig": "abc"}, "is signed"),
        ({"sig": ""}, "is signed"),
        ({"body": {"pid": 8}}, "differs from its digest"),
        ({"body": None}, "differs from its digest"),
        ({"body": [7]}, "differs from its digest"),
        ({"body": {"pid": float("nan")}}, "differs from its digest"),
        ({"sha256": None}, "differs from its digest"),
        ({"more": 1, "sha256": ""}, "differs from its digest"),
    ],
)
def test_forged_envelopes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_record("claim", _forged(**changes))


def test_a_missing_signature_is_not_a_null_one() -> None:
    envelope = json.loads(dump_record("claim", {"pid": 7}))
    del envelope["sig"]
    with pytest.raises(DataError, match=r"torn or not a kinetic record.*sig"):
        load_record("claim", canonical(envelope) + b"\n")


def test_another_spelling_of_the_same_json_is_refused() -> None:
    envelope = json.loads(dump_record("claim", {"pid": 7}))
    with pytest.raises(DataError, match="differs from its digest"):
        load_record("claim", json.dumps(envelope, indent=2).encode())


@pytest.mark.parametrize("kind", sorted(VERSIONS))
def test_a_newer_version_names_both_and_the_way_out(kind: str) -> None:
    newer = json.loads(dump_record(kind, {}))
    newer |= {"version": VERSIONS[kind] + 1, "body": "of a shape that nobody knows yet", "sig": "signed"}
    with pytest.raises(ConfigError) as error:
        load_record(kind, canonical(newer), where="jobs/x/y.json")
    message = str(error.value)
    for part in ("jobs/x/y.json", f"version {VERSIONS[kind] + 1}", f"up to {VERSIONS[kind]}", "upgrade kinetic-ray"):
        assert part in message


def test_keys_that_are_not_texts_become_texts() -> None:
    body = {"by_rank": {10: "a", 2: "b", 1: "c"}}
    assert load_record("events", dump_record("events", body)) == {"by_rank": {"10": "a", "2": "b", "1": "c"}}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_has_no_word_for_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_record("events", {"loss": value})


def test_an_unknown_kind_is_not_written() -> None:
    with pytest.raises(KeyError):
        dump_record("note", {})
