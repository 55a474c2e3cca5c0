"""A job that was made with other versions than the cluster has, on a real embedded cluster."""

from dataclasses import replace
from typing import Any

import pytest

from kinetic_ray.core.state import EventKind, JobStatus
from kinetic_ray.payload.versions import fingerprint, fingerprint_like
from tests.integration.driver import programs
from tests.integration.driver.clusters import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("client", "told"),
    [
        ({"python": "3.9.1"}, "the call was made with Python 3.9.1, and the host has Python 3."),
        ({"ray": "1.0.0"}, "the call was made with Ray 1.0.0, and the host has Ray "),
        ({"packages": {"kinetic_none": "1.2"}}, "with kinetic_none 1.2, and the host has no kinetic_none: install"),
    ],
)
def test_what_can_not_run_is_refused_before_a_slice_is_taken(
    cluster: Cluster, client: dict[str, Any], told: str
) -> None:
    job = cluster.submit(programs.give, 1, **cluster.slice(), client=replace(fingerprint(), **client))
    state = job.wait()
    assert (state.status, state.reason, state.attempt) == (JobStatus.FAILED, "SetupError", 0)
    assert told in state.message
    kinds = {event.kind for log in job.journal.epochs() for event in log.events}
    assert kinds == {EventKind.DRIVER_STARTED, EventKind.ENDED}


def test_what_may_run_does_with_a_warning(cluster: Cluster) -> None:
    here = fingerprint_like(replace(fingerprint(), packages={"filelock": ""}))
    major = int(here.packages["filelock"].split(".")[0])
    job = cluster.submit(programs.give, 1, client=replace(here, packages={"filelock": f"{major}.9999"}))
    assert job.value() == 1
    [line] = job.wait().warnings
    assert line.startswith(f"the call was made with filelock {major}.9999, and the host has {major}.")
