"""The agent of a host that serves `.remote()` calls: keeps a zygote and one warm child, and hands calls to it.

A plain class; the desk makes a Ray actor of it. It never unpickles anything of the user's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import ray

from kinetic_ray.runner.calls.packing import Packed, keep_packed

#: Gets lines of a child: client, rank, lines.
Say = Callable[[str, int, Sequence[str]], None]
#: Gives a call that came too late to the desk: the order's bytes and the packed arguments; gives its value.
Forward = Callable[[bytes, Packed], Packed]

Method = TypeVar("Method", bound=Callable[..., Any])


def _control(method: Method) -> Method:
    """Of those that have threads of their own, so that no call holds them up."""
    return cast(Method, ray.method(concurrency_group="control")(method))


class CallHost:
    """One host of call gangs. Thread-safe.

    Make a Ray actor of it with `concurrency_groups={"control": 8}` and `max_concurrency=8`.
    """

    def __init__(
        self,
        title: str = "",
        say: Say | None = None,
        forward: Forward | None = None,
        *,
        in_actor: bool = False,
    ) -> None:
        """Does nothing yet.

        Args:
            title: What Ray shows for this actor.
            say: Gets the children's output, in batches, from a thread of its own.
            forward: Gets calls of gangs of one rank for which this host is not open (any more).
            in_actor: Says that this process is the actor's own, in which values stay packed.
        """
        if in_actor:
            keep_packed()
        self._title = title
        self._say = say
        self._forward = forward

    def __repr__(self) -> str:
        return self._title or f"CallHost({os.getpid()})"

    @_control
    def describe(self) -> dict[str, Any]:
        """Which host this is, by its environment and Ray's; as :meth:`HostAgent.describe`."""
        raise NotImplementedError

    @_control
    def free_port(self) -> int:
        """A port that stays free for a coordinator of this host, and that no earlier gang here has used."""
        raise NotImplementedError

    @_control
    def hold(self) -> None:
        """Never returns before :meth:`stop`: whoever waits for it hears of this actor's death."""
        raise NotImplementedError

    @_control
    def open(self, seat: dict[str, Any], bundle: bytes | None = None) -> dict[str, Any]:
        """Makes this host ready for a gang's calls, and says whose they are.

        Args:
            seat: {"gang": id, "client": id, "wish": a Wish's dict, "task": a RankTask's dict}.
            bundle: The project's archive; not needed where this host had it before.

        Returns:
            {"pid": the child's, "warm": whether it was there already}; its set-up may still be going on.

        Raises:
            CallFailure: SetupError: the zygote or the child can't be started.
        """
        raise NotImplementedError

    def learn(self, digest: str, function: Packed) -> None:
        """Remembers a function or class by its digest; a call of it that came earlier waits for this."""
        raise NotImplementedError

    def call(self, head: bytes, packed: Packed) -> Packed:
        """Runs a call in the child, after those that came before it; gives its value.

        Raises:
            CallFailure: It has no value.
        """
        raise NotImplementedError

    @_control
    def retire(self, gang: str) -> None:
        """Waits for a running call; from then on the gang is not open here any more, and its child stays warm."""
        raise NotImplementedError

    @_control
    def end(self, gang: str, reason: str = "", message: str = "") -> None:
        """Ends the gang's child with all below it; a running call fails for the reason given (else: cancelled)."""
        raise NotImplementedError

    @_control
    def stop(self) -> None:
        """Ends everything on this host: the child, the zygote, the working folder."""
        raise NotImplementedError
