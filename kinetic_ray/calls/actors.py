"""Gang actors: one instance of a class per host, whose methods are called on all of them at once."""

from __future__ import annotations

import inspect
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kinetic_ray.calls.caller import Caller, goes_by_value
from kinetic_ray.calls.connect import Connection
from kinetic_ray.calls.requests import Request, request_of
from kinetic_ray.calls.session import Session, current_session
from kinetic_ray.calls.streams import is_stream
from kinetic_ray.core.names import make_id
from kinetic_ray.core.state import Reason
from kinetic_ray.errors import UsageError
from kinetic_ray.frames import own_frames_hidden, raise_told
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.packing import pack_arguments
from kinetic_ray.runner.calls.wish import Order

if TYPE_CHECKING:
    from ray.includes.object_ref import ObjectRef

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ActorFacts:
    """What a handle has to know; it travels.

    Attributes:
        order: Of the instance's creation; those of its methods differ from it in what they have to.
        class_name: For people.
        methods: Names that can be called.
    """

    order: Order
    class_name: str
    methods: frozenset[str]


@dataclass(slots=True)
class Ownership:
    """Of the process that made an instance, which ends with its connection.

    Attributes:
        connection: That.
        has_travelled: Whether others may hold a handle of it.
    """

    connection: Connection
    has_travelled: bool = False


class ActorHandle(Generic[T]):
    """A gang actor: `handle.method.remote(...)` calls a method of every host's instance.

    What `.remote(...)` of a decorated class gives. It can be an argument of other calls. An instance ends with
    `kinetic.kill(handle)`, with the process that made it, or when that process holds no handle of it any more and has
    handed none on.
    """

    def __init__(
        self,
        facts: ActorFacts,
        signatures: Mapping[str, inspect.Signature] | None = None,
        ownership: Ownership | None = None,
        session: Callable[[], Session] = current_session,
    ) -> None:
        self._facts = facts
        self._signatures = signatures or {}
        self._ownership = ownership
        self._session = session
        self._made: dict[tuple[str, str, float | None], tuple[Session, Request]] = {}

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("__"):
            raise AttributeError(name)
        facts = self._facts
        if name not in facts.methods:
            raise AttributeError(f"{facts.class_name!r} has no method {name!r} that can be called from elsewhere")
        return ActorMethod(self, name, facts.order.gather, facts.order.timeout)

    def __dir__(self) -> list[str]:
        return sorted(self._facts.methods)

    def __repr__(self) -> str:
        order = self._facts.order
        return f"<kinetic actor {self._facts.class_name} on {order.wish.accelerator}: {order.actor}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._facts.order.actor == other._facts.order.actor

    def __hash__(self) -> int:
        return hash(self._facts.order.actor)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._ownership is not None:
            self._ownership.has_travelled = True
        return ActorHandle, (self._facts,)

    def _call(self, method: ActorMethod, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        facts = self._facts
        if self._is_over():  # not asked of a cluster, which might have to be started for that
            raise_told(_ended_with_its_maker(facts))
        session = self._session()
        key = (method.name, method.gather, method.timeout)
        made = self._made.get(key)
        if made is None or made[0] is not session:
            order = replace(
                facts.order,
                kind="method",
                name=f"{facts.class_name}.{method.name}",
                client=session.connection.client,
                method=method.name,
                gather=method.gather,
                timeout=method.timeout,
                ancestors=session.connection.ancestors,
            )
            made = self._made[key] = (session, request_of(order, [None, None]))
        return session.send(made[1], pack_arguments(args, kwargs, goes_by_value, made[1].order.name))

    def _kill(self, no_restart: bool) -> None:
        if not self._is_over():
            self._session().kill(self._facts.order.actor, no_restart)

    def _is_over(self) -> bool:
        """Whether this process made it, and has left the cluster where it was."""
        return self._ownership is not None and self._ownership.connection.ended.is_set()

    def _check(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        signature = self._signatures.get(name)
        if signature is None:
            return
        try:
            signature.bind(None, *args, **kwargs)
        except TypeError as exc:
            told = TypeError(f"{self._facts.class_name}.{name}(): {exc}")
        else:
            return
        raise_told(told)


class ActorMethod:
    """A method of a gang actor.

    Attributes:
        name: Its name.
        gather: "leader": the value is host 0's; "all": the list by host.
        timeout: Seconds that it may run; None = as long as it takes.
    """

    __slots__ = ("_handle", "gather", "name", "timeout")

    def __init__(self, handle: ActorHandle[Any], name: str, gather: str, timeout: float | None) -> None:
        self._handle = handle  # keeps the instance while the method is held
        self.name = name
        self.gather = gather
        self.timeout = timeout

    @own_frames_hidden()
    def __call__(self, /, *_args: Any, **_kwargs: Any) -> Any:
        """A TypeError: the instance is elsewhere."""
        class_name = self._handle._facts.class_name  # noqa: SLF001 - of the same module
        raise_told(
            TypeError(f"{class_name}.{self.name} is a remote method and isn't called directly: use .remote(...)")
        )

    @own_frames_hidden()
    def remote(self, /, *args: Any, **kwargs: Any) -> ObjectRef[Any]:
        """Calls it on every host, after the calls that were made before; gives a ref of the value.

        Raises:
            TypeError: The method doesn't take these arguments.
            PayloadError: One can't be sent.
        """
        self._handle._check(self.name, args, kwargs)  # noqa: SLF001
        ref: ObjectRef[Any] = self._handle._call(self, args, kwargs)  # noqa: SLF001
        return ref

    @own_frames_hidden()
    def options(self, *, gather: str | None = None, timeout: float | str | None = None) -> ActorMethod:
        """The same method with other options.

        Args:
            gather: "leader" or "all".
            timeout: Seconds, or text such as "10m".

        Raises:
            UsageError: A value that can't be right.
        """
        from kinetic_ray.options import check_options

        checked = check_options({"gather": gather, "timeout": timeout})
        return ActorMethod(
            self._handle,
            self.name,
            self.gather if gather is None else checked.gather,
            self.timeout if timeout is None else checked.timeout,
        )

    def __repr__(self) -> str:
        return f"<kinetic method {self.name} of {self._handle!r}>"


def create(caller: Caller, kind: type[T], args: Sequence[Any], kwargs: Mapping[str, Any]) -> ActorHandle[T]:
    """Makes an instance of a class on every host of a gang of its own; its handle at once.

    Raises:
        UsageError, ConfigError, PayloadError: It was refused.
    """
    session = caller.session()
    request = caller.request(session)
    actor = make_id("act", time.time_ns() // 1_000_000, os.urandom(10))
    order = replace(request.order, kind="create", actor=actor)
    packed = pack_arguments(args, kwargs, goes_by_value, order.name)
    signatures = _signatures_of(kind)
    facts = ActorFacts(order, kind.__name__, frozenset(signatures))
    ownership = Ownership(session.connection)
    handle: ActorHandle[T] = ActorHandle(facts, signatures, ownership, caller.session)
    session.send_unread(request_of(order, request.code), packed)
    weakref.finalize(handle, _abandon, session, actor, ownership).atexit = False
    return handle


def kill(actor: Any, *, no_restart: bool = True) -> None:
    """Ends a gang actor at once, as `ray.kill` does; its calls fail with `ray.exceptions.ActorDiedError`.

    Args:
        actor: A handle, of a gang actor or of one of Ray's own.
        no_restart: As Ray's; gang actors don't start again either way.

    Raises:
        UsageError: Not a handle.
    """
    import ray
    from ray.actor import ActorHandle as RayHandle

    if isinstance(actor, ActorHandle):
        actor._kill(no_restart)  # noqa: SLF001
    elif isinstance(actor, RayHandle):
        ray.kill(actor, no_restart=no_restart)
    else:
        raise UsageError(f"kill({actor!r}): expected the handle that .remote(...) of a class gave")


def _signatures_of(kind: type) -> dict[str, inspect.Signature]:
    """The methods that can be called from elsewhere: those of the class and its bases, static and private ones too.

    Not those that give a coroutine or a generator, which can't leave its process.

    Each signature begins with what the method is bound to.
    """
    found = {}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if name.startswith("__") and name != "__call__":
            continue
        bound: list[inspect.Parameter] = []
        if isinstance(member, staticmethod):
            bound = [inspect.Parameter("_", inspect.Parameter.POSITIONAL_ONLY)]
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if inspect.isfunction(member) and not is_stream(member):
            signature = inspect.signature(member, follow_wrapped=False)
            found[name] = signature.replace(parameters=[*bound, *signature.parameters.values()])
    return found


def _ended_with_its_maker(facts: ActorFacts) -> BaseException:
    text = (
        "it has ended with the cluster, or when this process left that (kinetic.shutdown()): make a new one with "
        f"{facts.class_name}.remote(...)"
    )
    where, actor = facts.class_name, facts.order.actor
    return CallFailure(str(Reason.CANCELLED), text, where=where, actor=actor).for_user()


def _abandon(session: Session, actor: str, ownership: Ownership) -> None:
    if not ownership.has_travelled:
        session.abandon(actor)
