"""Ids sort by time and refuse everything hostile; keys are spelled in one place."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.names import (
    KINDS,
    IndexEntry,
    JobKeys,
    check_id,
    epoch_of,
    id_unix_ms,
    make_id,
    newest_entries,
    parse_index,
)
from kinetic_ray.core.state import JobStatus
from kinetic_ray.errors import UsageError

JOB = "job-0000000000e008000000000000"
MS = st.integers(0, (1 << 48) - 1)
RANDOM = st.binary(min_size=10, max_size=10)


@given(st.sampled_from(KINDS), MS, RANDOM)
def test_an_id_is_a_uuid7_that_keeps_its_time(kind: str, ms: int, random: bytes) -> None:
    made = make_id(kind, ms, random)
    assert check_id(made, kind) == made
    assert id_unix_ms(made) == ms
    value = uuid.UUID(int=_number(made))
    assert value.version == 7
    assert value.variant == uuid.RFC_4122
    assert value.int >> 80 == ms


@given(MS, MS, RANDOM, RANDOM)
def test_ids_sort_by_time(early: int, late: int, one: bytes, other: bytes) -> None:
    first, second = make_id("job", early, one), make_id("job", late, other)
    if early != late:
        assert (first < second) == (early < late)


@given(MS, RANDOM, RANDOM)
def test_all_random_bits_count(ms: int, one: bytes, other: bytes) -> None:
    used = 0xFFF << 68 | (1 << 62) - 1
    differs = (_bits(one) ^ _bits(other)) & used
    assert (make_id("job", ms, one) != make_id("job", ms, other)) == bool(differs)


def test_make_id_refuses_an_unknown_kind() -> None:
    with pytest.raises(UsageError, match=r"'run'.*job, grp, swp"):
        make_id("run", 0, bytes(10))


HOSTILE = [
    "",
    "job-",
    "../../etc/passwd",
    "job-../../../../../../../../../x",
    "job-0000000000e00800000000000",  # one short
    "job-0000000000e0080000000000000",  # one long
    "job-0000000000E008000000000000",  # upper case
    "job-0000000000e00800000000000w",  # past the alphabet
    "job-0000000000e008000000000000\n",
    " job-0000000000e008000000000000",
    "job-0000000000e00800000000000/",
    "job-0000000000e00800000000000\0",
    "job-" + "\u0660" * 26,  # digits, but not of the alphabet
    "run-0000000000e008000000000000",
    "x" * 100_000,
    None,
    7,
    b"job-0000000000e008000000000000",
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: repr(value)[:30])
def test_hostile_ids_are_refused(hostile: object) -> None:
    for attempt in (check_id, JobKeys, id_unix_ms):
        with pytest.raises(UsageError, match="is not a kinetic id") as error:
            attempt(hostile)  # type: ignore[operator]
        assert len(str(error.value)) < 250


@given(st.text())
def test_only_well_formed_ids_pass(text: str) -> None:
    accepted = True
    try:
        check_id(text)
    except UsageError:
        accepted = False
    well_formed = (
        text[:4] in ("job-", "grp-", "swp-")
        and len(text) == 30
        and set(text[4:]) <= set("0123456789abcdefghijklmnopqrstuv")
    )
    assert accepted == well_formed


def test_an_id_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a grp id"):
        check_id(JOB, "grp")
    with pytest.raises(UsageError, match="is not a job id"):
        JobKeys(JOB.replace("job", "swp"))


def test_keys() -> None:
    keys = JobKeys(JOB)
    assert keys.root == f"jobs/{JOB}"
    spelled = {
        keys.spec: "spec.json",
        keys.cancel: "cancel.json",
        keys.env("ab12"): "env/ab12.json",
        keys.claim(1): "drivers/000001/claim.json",
        keys.adopted(1): "drivers/000001/adopted.json",
        keys.heartbeat(12): "drivers/000012/heartbeat.json",
        keys.segment(2, 7): "drivers/000002/events/0000000007.json",
        keys.outcome(1, 3, 15): "drivers/000001/outcomes/0003/00015.json",
        keys.value(1, 3, 15): "drivers/000001/outcomes/0003/00015.value",
        keys.error(1, 3, 15): "drivers/000001/outcomes/0003/00015.error",
        keys.log(1, 3, 15): "logs/000001.0003/00015.log",
        keys.outputs: "outputs",
    }
    assert {key: f"jobs/{JOB}/{rest}" for key, rest in spelled.items()} == {key: key for key in spelled}
    assert keys.env("ab12").startswith(keys.env_folder + "/")
    assert keys.segment(2, 7).startswith(keys.events(2) + "/")
    assert keys.value(1, 3, 15).startswith(keys.outcomes(1, 3) + "/")
    assert keys.log(1, 3, 15).startswith(keys.attempt_logs(1, 3) + "/")


@given(st.integers(0, 999_999))
def test_epochs_are_read_back(epoch: int) -> None:
    assert epoch_of(JobKeys(JOB).epoch(epoch)) == epoch
    assert epoch_of(JobKeys(JOB).epoch(epoch) + "/") == epoch


@given(st.lists(st.integers(1, 999_999), unique=True), st.lists(st.integers(1, 99_999_999), unique=True))
def test_keys_sort_as_their_numbers(epochs: list[int], segments: list[int]) -> None:
    keys = JobKeys(JOB)
    assert sorted(map(keys.epoch, epochs)) == [keys.epoch(n) for n in sorted(epochs)]
    assert sorted(keys.segment(1, n) for n in segments) == [keys.segment(1, n) for n in sorted(segments)]


@pytest.mark.parametrize(
    "name", ["", "drivers", "00001", "0000001", "-00001", "\u0660" * 6, "000001.tmp", "claim.json"]
)
def test_other_folders_are_no_epochs(name: str) -> None:
    assert epoch_of(f"jobs/{JOB}/drivers/{name}") is None


@given(st.sampled_from(JobStatus), st.text())
def test_index_entries(status: JobStatus, func_name: str) -> None:
    key = IndexEntry(JOB, status, func_name).key()
    assert key.startswith("index/")
    assert key.count("/") == 1
    assert len(key.encode()) < 200
    read = parse_index(key)
    assert read is not None
    assert (read.job_id, read.state) == (JOB, status)
    assert read.key() == key  # the name is shortened once, and stays so


@pytest.mark.parametrize(
    "key",
    [
        "index/",
        "index/.keep",
        f"index/{JOB}",
        f"index/{JOB}~PENDING",
        f"index/{JOB}~PENDING~f~g",
        f"index/{JOB}~BOGUS~f",
        f"index/{JOB[:-1]}~PENDING~f",
        "index/../../x~PENDING~f",
    ],
)
def test_other_objects_are_no_index_entries(key: str) -> None:
    assert parse_index(key) is None


@given(st.permutations(["PENDING", "RUNNING", "FAILED"]))
def test_of_two_index_entries_the_later_state_stands(states: list[str]) -> None:
    entries = [IndexEntry(JOB, state, "f") for state in states]
    newest = newest_entries(entries, ["PENDING", "RUNNING", "FAILED"])
    assert newest == {JOB: IndexEntry(JOB, "FAILED", "f")}


def test_every_job_has_its_own_entry() -> None:
    other = make_id("job", 1, bytes(10))
    entries = [IndexEntry(JOB, "RUNNING", "f"), IndexEntry(other, "PENDING", "g")]
    assert newest_entries(entries, ["PENDING", "RUNNING"]) == {entry.job_id: entry for entry in entries}
    assert newest_entries([], []) == {}


def _number(identifier: str) -> int:
    return int(identifier[4:], 32)


def _bits(data: bytes) -> int:
    return int.from_bytes(data, "big")
