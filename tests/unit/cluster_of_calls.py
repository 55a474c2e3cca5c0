"""A cluster as `.remote()` sees it, in this process: refs, a desk and agents that do as tests tell them."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kinetic_ray.calls.connect import Connection
from kinetic_ray.config import Target


class Ref:
    """Stands in for `ray.ObjectRef`."""

    def __init__(self) -> None:
        self.done: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.done

    def binary(self) -> bytes:
        return id(self).to_bytes(8, "little")


def there(value: object) -> Ref:
    ref = Ref()
    ref.done.set_result(value)
    return ref


class Ray:
    """Stands in for the module."""

    def __init__(self) -> None:
        self.stored: list[Any] = []
        self.waits: list[float] = []

    def put(self, value: Any) -> Ref:
        self.stored.append(value)
        return there(value)

    def get(self, ref: Ref, *, timeout: float | None = None) -> Any:
        return ref.done.result(timeout)

    def wait(self, refs: Sequence[Ref], *, num_returns: int = 1, timeout: float | None = None) -> Any:
        self.waits.append(timeout or 0)
        ready = [ref for ref in refs if ref.done.done()]
        return ready[:num_returns], [ref for ref in refs if ref not in ready[:num_returns]]


class Method:
    """A method of an actor; calls of it are kept."""

    def __init__(self, answer: Callable[..., Ref], whole: "Method | None" = None, name: str = "") -> None:
        self._answer = answer
        self._whole = whole or self
        self._name = name
        self.calls: list[tuple[Any, ...]] = []
        self.names: list[str] = []

    def options(self, *, name: str) -> "Method":
        return Method(self._answer, self._whole, name)

    def remote(self, *args: Any) -> Ref:
        self._whole.calls.append(args)
        self._whole.names.append(self._name)
        return self._answer(*args)


class Agent:
    """A host's agent: calls are answered when the test says so."""

    def __init__(self) -> None:
        self.state: int | None = 2
        self.refs: list[Ref] = []
        self.direct = Method(lambda *_: self._new())
        self.again = Method(self._new)
        self.learn = Method(lambda *_: there(None))

    def _new(self) -> Ref:
        self.refs.append(Ref())
        return self.refs[-1]

    def _get_local_state(self) -> int | None:
        return self.state


class Desk:
    """The desk: what it lends and says is the test's."""

    def __init__(self) -> None:
        self.refs: list[Ref] = []
        self.lent: list[Ref] = []
        self.listening: list[Ref] = []
        self.left = threading.Event()
        self.killed: list[str] = []
        self.call = Method(lambda *_: self._new(self.refs))
        self.lend = Method(lambda *_: self._new(self.lent))
        self.listen = Method(lambda *_: self._new(self.listening))
        self.flush = Method(lambda _: (self._hurry(), there(None))[1])
        self.answers = 0
        self.leave = Method(lambda _: (self.left.set(), there(None))[1])
        self.kill_actor = Method(lambda actor, _: (self.killed.append(actor), there(None))[1])

    def _new(self, refs: list[Ref]) -> Ref:
        refs.append(Ref())
        return refs[-1]

    def answer(self, *, lines: Sequence[Any] = (), recalled: Sequence[str] = (), box: str = "box") -> dict[str, Any]:
        """The next answer to a process that listens."""
        self.answers += bool(lines or recalled)
        return {"lines": list(lines), "recalled": list(recalled), "box": box, "number": self.answers}

    def tell(self, *, lines: Sequence[Any] = (), recalled: Sequence[str] = (), box: str = "box") -> None:
        """Answers the process's long poll."""
        self.listening[-1].done.set_result(self.answer(lines=lines, recalled=recalled, box=box))

    def _hurry(self) -> None:
        """From now on whoever listens is answered at once."""
        self.listen = Method(lambda *_: there(self.answer()))
        if self.listening and not self.listening[-1].done.done():
            self.tell()


def connection(desk: Any, home: Path = Path("/unused"), **changes: Any) -> Connection:
    backend = changes.pop("backend", "tests.unit.cluster_of_calls:AnyBackend")
    given = {"client": "01000000", "ancestors": (), "supervisor": "", **changes}
    return Connection(desk=desk, target=Target(backend, "/unused/store", home), **given)


class AnyBackend:
    """Everything fits, but for what asks for seven slices. Each question is noted in its home, where there is one."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def check(self, need: Any) -> None:
        from kinetic_ray.errors import UsageError

        if self._home.exists():
            with (self._home / "checks").open("a") as notes:
                notes.write(f"{need.accelerator}\n")
        if need.num_slices == 7:
            raise UsageError("seven never fit")


class Kept:
    """Stands in for packed values."""

    def __init__(self, value: object, nbytes: int = 10) -> None:
        self.value = value
        self.nbytes = nbytes

    def light(self) -> "Kept":
        return self
