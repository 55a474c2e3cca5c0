"""The desk as the broker's client: a broker that is away is waited for, one that fails is not."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError, RayTaskError

from kinetic_ray.runner.calls.asks import TRIES, Asks, Refused
from kinetic_ray.runner.queue import Ticket

TICKET = Ticket("call-a", 1, "cpu")
GRANTED = {"state": "granted", "slices": []}


class Method:
    """A method of a Ray actor: gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, ...]] = []

    def remote(self, *args: Any) -> "asyncio.Future[Any]":
        self.calls.append(args)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        ref: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(answer, Exception):
            ref.set_exception(answer)
        else:
            ref.set_result(answer)
        return ref


class Broker:
    """Stands in for the broker's handle."""

    def __init__(self, acquire: Method | None = None, release: Method | None = None) -> None:
        self.acquire = acquire or Method(GRANTED)
        self.release = release or Method(None)


def asks(broker: Broker) -> Asks:
    return Asks("socket", lambda _: broker, again=0.0)


def fault() -> RayError:
    """What the broker's own exception is for whoever called it."""
    raised: RayError = RayTaskError("acquire", "Traceback ...", ValueError("no such pool")).as_instanceof_cause()
    return raised


def away() -> RayError:
    return ActorUnavailableError("the actor restarts", None)


def told(_: str) -> None:
    """A reason."""


def test_a_broker_that_fails_again_and_again_refuses_with_its_words() -> None:
    broker = Broker(Method(fault()))
    with pytest.raises(Refused, match="the slice broker fails: ValueError: no such pool"):
        asyncio.run(asks(broker).acquire(TICKET, told))
    assert len(broker.acquire.calls) == TRIES


@pytest.mark.parametrize("gone", [ActorDiedError, away])
def test_a_broker_that_is_away_is_waited_for(gone: Callable[[], RayError]) -> None:
    broker = Broker(Method(*[gone() for _ in range(5 * TRIES)], GRANTED))
    assert asyncio.run(asks(broker).acquire(TICKET, told)).ticket == TICKET


def test_faults_between_which_it_answers_or_restarts_are_no_end() -> None:
    waiting = {"state": "waiting", "reason": "all are busy"}
    few = [fault() for _ in range(TRIES - 1)]
    broker = Broker(Method(*few, waiting, *few, away(), *few, GRANTED))
    assert asyncio.run(asks(broker).acquire(TICKET, told)).ticket == TICKET


def test_what_cannot_be_given_back_is_left_to_the_broker() -> None:
    failing, restarting = Broker(release=Method(fault())), Broker(release=Method(*[away()] * (5 * TRIES), None))
    asyncio.run(asks(failing).release("call-a", 1))
    asyncio.run(asks(restarting).release("call-a", 1))
    assert len(failing.release.calls) == TRIES
    assert len(restarting.release.calls) == 5 * TRIES + 1
