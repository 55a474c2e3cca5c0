"""Ray's errors about actors that users have never heard of, in words about their calls."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, RayTaskError

from kinetic_ray.calls.attaching import check_desk
from kinetic_ray.calls.explaining import explained, misunderstood
from kinetic_ray.errors import ConfigError, JobFailed
from kinetic_ray.runner.calls.desk import Desk
from kinetic_ray.runner.calls.failures import CallFailure
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


def task_error(actor: bytes, cause: Exception) -> Any:
    """As Ray makes it in an actor."""
    name = f"{type(cause).__module__}.{type(cause).__name__}"
    text = f"ray::Desk.call() (pid=1, ip=127.0.0.1, actor_id={actor.hex()}, repr=x)\n  File ...\n{name}: {cause}"
    return RayTaskError("Desk.call", text, cause, "ray::Desk.call()", 1, "127.0.0.1").as_instanceof_cause()


@pytest.mark.parametrize(
    "cause", [TypeError("Order() got an unexpected keyword argument"), KeyError("ancestors"), AttributeError("x")]
)
def test_a_desk_that_breaks_off_over_a_call_is_one_of_other_code(cause: Exception) -> None:
    error = task_error(DESK, cause)
    told = misunderstood(error, place())
    assert isinstance(told, ConfigError)
    assert str(cause) in str(told) and "kinetic local stop --force" in str(told)
    assert told.__cause__ is error
    assert misunderstood(error, None) is None


@pytest.mark.parametrize(
    "error",
    [task_error(DESK, CallFailure("UserError", "it raised", traceback="TypeError")), task_error(OTHER, KeyError("x"))],
)
def test_what_calls_and_the_user_s_own_actors_raise_is_theirs(error: Any) -> None:
    assert misunderstood(error, place()) is None


def test_a_desk_whose_class_can_t_be_imported_is_refused() -> None:
    class Temporary:
        """As Ray's `_create_fake_actor_class`."""

        def call(*args: Any, **kwargs: Any) -> None: ...

    for kind, is_right in ((Desk, True), (Temporary, False)):
        takes = [*inspect.signature(kind.call).parameters.values()][1:]
        desk = SimpleNamespace(_ray_method_signatures={"call": takes})
        if is_right:
            check_desk(desk)
        else:
            with pytest.raises(ConfigError, match="kinetic local stop --force"):
                check_desk(desk)
