"""The job's description survives the store, and names a variable but never a value."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.records import canonical, dump_record, load_record
from kinetic_ray.core.spec import BundleRef, Fingerprint, JobSpec
from kinetic_ray.errors import ConfigError, UsageError

TEXTS = st.text()
SECONDS = st.floats(0, 1e12, allow_nan=False)
BLOBS = st.builds(Blob, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 1 << 50))
TUPLES = st.lists(TEXTS, max_size=3).map(tuple)
SPECS = st.builds(
    JobSpec,
    job_id=st.builds(make_id, st.just("job"), st.integers(0, 1 << 47), st.binary(min_size=10, max_size=10)),
    func_name=TEXTS,
    created_at=SECONDS,
    accelerator=st.sampled_from(["cpu", "tpu-v6e-16", "gpu-l4x4"]),
    payload=BLOBS,
    client=st.builds(Fingerprint, TEXTS, TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3)),
    bundle=st.none() | st.builds(BundleRef, BLOBS, TUPLES, TEXTS),
    chips_per_host=st.none() | st.sampled_from([1, 4, 8]),
    num_slices=st.integers(1, 64),
    hosts=st.integers(1, 64),
    gather=st.sampled_from(["leader", "all"]),
    runtime=st.sampled_from(["jax", "plain"]),
    timeout=st.none() | SECONDS,
    capacity_timeout=st.none() | SECONDS,
    cpus=st.floats(0, 512, allow_nan=False),
    memory=st.none() | st.integers(0, 1 << 50),
    env_names=TUPLES,
    env_id=st.none() | TEXTS,
    secrets=TUPLES,
    output_dir=st.none() | TEXTS,
    name=TEXTS,
    tags=TUPLES,
    priority=st.integers(-9, 9),
    owner=TEXTS,
)

MINIMAL = JobSpec(
    job_id="job-0000000000e008000000000000",
    func_name="train",
    created_at=0.0,
    accelerator="cpu",
    payload=Blob("ab" * 32, 3),
    client=Fingerprint("3.11.9", "2.60.0", "3.1.0", "0.1.0"),
)


@given(SPECS)
def test_a_spec_comes_back(spec: JobSpec) -> None:
    assert JobSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    stored = dump_record("spec", spec.to_dict())
    read = JobSpec.from_dict(load_record("spec", stored))
    assert read == spec
    assert hash(read) == hash(spec)  # frozen through and through: no list got in
    assert dump_record("spec", read.to_dict()) == stored


def test_what_an_older_writer_left_out_has_its_default() -> None:
    required = {"job_id", "func_name", "created_at", "accelerator", "payload", "client"}
    told = {key: value for key, value in MINIMAL.to_dict().items() if key in required}
    assert JobSpec.from_dict(told) == MINIMAL


def test_a_field_of_a_newer_version_is_never_dropped_in_silence() -> None:
    with pytest.raises(TypeError, match="hurry"):
        JobSpec.from_dict(MINIMAL.to_dict() | {"hurry": True})


def test_a_newer_spec_is_refused_by_its_version() -> None:
    envelope: dict[str, Any] = json.loads(dump_record("spec", MINIMAL.to_dict()))
    envelope["version"] += 1
    with pytest.raises(ConfigError, match="format version 4, this kinetic_ray reads up to 3: upgrade"):
        load_record("spec", canonical(envelope) + b"\n", where="jobs/x/spec.json")


def test_reading_leaves_the_record_as_it_was() -> None:
    told = MINIMAL.to_dict()
    before = json.dumps(told)
    JobSpec.from_dict(told)
    assert json.dumps(told) == before


@pytest.mark.parametrize("job_id", ["", "job-1", "../x", "grp-0000000000e008000000000000"])
def test_a_spec_has_a_job_id(job_id: str) -> None:
    with pytest.raises(UsageError, match="id"):
        dataclasses.replace(MINIMAL, job_id=job_id)
