"""The agent of a host that serves `.remote()` calls: keeps a zygote and one warm child, and hands calls to it.

A plain class; the desk makes a Ray actor of it. It never unpickles anything of the user's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import ray

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls import fetching
from kinetic_ray.runner.calls.courier import Source
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.functions import Functions
from kinetic_ray.runner.calls.heads import Head, read_head, split
from kinetic_ray.runner.calls.packing import Packed, keep_packed
from kinetic_ray.runner.calls.tenancy import Seat, Tenancy
from kinetic_ray.runner.calls.warm import WarmChild
from kinetic_ray.runner.hosting import describe_host
from kinetic_ray.runner.ports import PortKeeper

#: Gets lines of a child; returns when it can take more.
Say = Callable[[Source, Sequence[str]], None]
#: Gives a call that came too late to the desk: the order's bytes and the packed arguments; gives its value.
Forward = Callable[[bytes, Packed], Any]

#: Seconds that a call waits for its function, which is sent beside it.
_LEARNING = 60.0

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
            say: Gets the children's output, in batches, from threads of their own, which wait for it.
            forward: Gets calls of gangs of one rank for which this host is not open (any more).
            in_actor: Says that this process is the actor's own, in which values stay packed.
        """
        if in_actor:
            keep_packed()
        self._title = title
        self._forward = forward
        self._ports = PortKeeper()
        self._tenancy = Tenancy(say or _hear_nothing)
        self._learned = Functions()
        self._turn = threading.Lock()  # of the call that runs
        self._stopped = threading.Event()

    def __repr__(self) -> str:
        return self._title or f"CallHost({os.getpid()})"

    @_control
    def describe(self) -> dict[str, Any]:
        """Which host this is, by its environment and Ray's; as :meth:`HostAgent.describe`."""
        return describe_host()

    @_control
    def free_port(self) -> int:
        """A port that stays free for a coordinator of this host, and that no earlier gang here has used."""
        return self._ports.take()

    @_control
    def hold(self) -> None:
        """Never returns before :meth:`stop`: whoever waits for it hears of this actor's death."""
        self._stopped.wait()

    @_control
    def open(self, seat: dict[str, Any], bundle: bytes | None = None) -> dict[str, Any]:
        """Makes this host ready for a gang's calls, and says whose they are.

        Args:
            seat: {"gang": id, "client": id, "wish": a Wish's dict, "task": a RankTask's dict}.
            bundle: The project's archive; not needed where this host had it just before.

        Returns:
            {"pid": the child's, "warm": whether it was there already}; its set-up may still be going on.

        Raises:
            CallFailure: SetupError: the zygote or the child can't be started.
        """
        child, warm = self._tenancy.open(Seat.from_dict(seat), bundle, busy=self._turn.locked())
        return {"pid": child.pid, "warm": warm}

    def learn(self, digest: str, function: Packed) -> None:
        """Remembers a function or class by its digest; a call of it that came earlier waits for this."""
        self._learned.add(digest, function)

    def call(self, head: bytes, packed: Packed | bytes | None = None) -> Any:
        """Runs a call in the child, after those that came before it.

        Args:
            head: What is called, see :func:`call_head`.
            packed: Its arguments, :meth:`Packed.light` or not; None where they stand behind the head already, see
                :func:`before_data`.

        Returns:
            The value, packed unless it is a simple one: None, a number, a short text.

        Raises:
            CallFailure: It has no value.
        """
        if packed is None:
            head, packed = split(head)
        return self.serve(read_head(head), packed)

    def serve(self, head: Head, packed: Packed | bytes) -> Any:
        """As :meth:`call`, of a head that has been read."""
        arguments = packed
        if not isinstance(packed, bytes) and packed.live:
            if not self._tenancy.is_open_for(head):
                return self._hand_on(head, packed)
            arguments = fetching.resolve(packed)
        with self._turn:
            child = self._tenancy.child_for(head)
            if child is not None:
                value = child.call(head, arguments, self._function_for(head, child))
        if child is None:
            return self._hand_on(head, Packed(packed) if isinstance(packed, bytes) else packed)
        return fetching.adopt(value) if isinstance(value, Packed) else value

    @_control
    def retire(self, gang: str) -> None:
        """Waits for a running call; from then on the gang is not open here any more, and its child stays warm."""
        self._tenancy.retire(gang)
        with self._turn:
            return

    @_control
    def end(self, gang: str, reason: str = "", message: str = "") -> None:
        """Ends the gang's child with all below it; a running call fails for the reason given (else: cancelled)."""
        self._tenancy.end(gang, reason, message, busy=self._turn.locked())

    @_control
    def announce_end(self, gang: str) -> None:
        """This host is about to be taken away: a running call of the gang gets SIGTERM, as pods do on GKE."""
        if self._turn.locked():
            self._tenancy.announce_end(gang)

    @_control
    def flush(self, client: str, patience: float) -> None:
        """Returns when what children have printed by now is said, or it takes too long; a client waits for it."""
        self._tenancy.flush(client, patience)

    @_control
    def stop(self) -> None:
        """Ends everything on this host: the child, the zygote, the working folder."""
        self._tenancy.close()
        self._ports.release()
        self._stopped.set()

    def _function_for(self, head: Head, child: WarmChild) -> Packed | None:
        if head.order.kind == "method" or child.knows(head.order.function):
            return None
        function = self._learned.get(head.order.function, _LEARNING)
        if function is None:
            text = f"this host was never told the function {head.order.name}: call it again"
            raise CallFailure(str(Reason.SETUP_ERROR), text, gang=head.gang)
        return function

    def _hand_on(self, head: Head, packed: Packed) -> Any:
        """A call that came when its gang was not open here any more."""
        if self._forward is None or head.order.wish.ranks > 1:
            text = f"{head.order.name}: {head.gang} is not open on this host any more"
            raise CallFailure(str(Reason.CANCELLED), text, gang=head.gang)
        try:
            return self._forward(head.order_bytes, packed)
        except ray.exceptions.RayTaskError as exc:
            raise fetching.cause_of(exc) from None


def _hear_nothing(_source: Source, _lines: Sequence[str]) -> None:
    return
