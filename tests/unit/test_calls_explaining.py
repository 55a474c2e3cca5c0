"""Ray's errors about actors that users have never heard of, in words about their calls."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError

from kinetic_ray.calls.explaining import explained
from kinetic_ray.errors import JobFailed
from tests.unit.cluster_of_calls import connection

DESK, OTHER = b"d" * 16, b"o" * 16


def place() -> Any:
    return connection(SimpleNamespace(_actor_id=ray.ActorID(DESK)))


def test_a_desk_that_died_is_told_of_as_the_loss_of_the_call() -> None:
    error = ActorUnavailableError("it is away", DESK)
    told = explained(error, place())
    assert isinstance(told, JobFailed)
    assert told.reason == "DriverLost"
    assert "isn't known whether the call has run" in str(told)
    assert told.__cause__ is error


@pytest.mark.parametrize("actor", [OTHER, None])
def test_outside_of_a_cluster_and_of_nobody_it_stays_what_it_is(actor: bytes | None) -> None:
    error = ActorUnavailableError("it is away", actor)
    assert explained(error, None) is error
    if actor is None:
        assert explained(error, place()) is error
