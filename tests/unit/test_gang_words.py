"""What is told of an agent that could not do what it was asked."""

from ray.exceptions import RayTaskError

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.gang import words_of


def _of_a_task(cause: Exception) -> RayTaskError:
    return RayTaskError("start", "Traceback (most recent call last):\n  File ...\nlast line", cause)


def test_all_that_the_cause_says_and_nothing_of_ray() -> None:
    told = "this host can't prepare the runtime 'jax'; it said:\n  no jax\n  here"
    assert words_of(_of_a_task(ConfigError(told))) == told
    assert words_of(ConfigError(told)) == told
    assert words_of(_of_a_task(KeyError())) == "KeyError"
