"""Exceptions as bytes, with their causes, contexts and groups: as themselves wherever a round trip gives them back.

An exception and all that hangs on it is a list of nodes that refer to each other by their places. Each is pickled for
itself, so that one that can't travel, or can't be rebuilt where it is read, costs nothing but itself: a
:class:`~kinetic_ray.errors.JobFailed` with its words stands in for it.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kinetic_ray.errors import JobFailed, notes_of
from kinetic_ray.payload.pickling import ValuePickler
from kinetic_ray.payload.rebuilding import forms_of, kept_of, regrouped, words_of

#: Of one tree; a chain that is longer is cut, and says so.
MOST = 500


class Node(NamedTuple):
    """One exception of a tree.

    Attributes:
        data: It alone, pickled; of a group its class, message and attributes. None if it can't travel.
        type_name: Its class's name.
        message: What `str` gives.
        members: Of a group: places of its members.
        cause: Place of `__cause__`.
        context: Place of `__context__`.
        quiet: `__suppress_context__`.
        notes: `__notes__`, and what is to be said of its way here.
    """

    data: bytes | None
    type_name: str
    message: str
    members: tuple[int, ...] | None = None
    cause: int | None = None
    context: int | None = None
    quiet: bool = False
    notes: tuple[str, ...] = ()


def pack_raised(exc: BaseException, limit: int) -> bytes | None:
    """Pickles an exception with its causes, so that a reader needs nothing but `pickle.loads`.

    Args:
        exc: The exception.
        limit: Most bytes. Attributes that are too large for it stay behind, and a note says so.

    Returns:
        None where neither it nor any of its causes can travel: words must do.
    """
    nodes = _nodes(exc, limit)
    if all(node.data is None for node in nodes):
        return None
    return ValuePickler().dumps(_Tree([tuple(node) for node in nodes]))


class _Tree:
    """Unpickles as the exception itself."""

    def __init__(self, nodes: Sequence[tuple[Any, ...]]) -> None:
        self._nodes = nodes

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_tree, (self._nodes,)


def restore_tree(nodes: Sequence[tuple[Any, ...]]) -> BaseException:
    """Rebuilds what :func:`pack_raised` packed. Its name and form are part of the stored format.

    Raises:
        Exception: What rebuilding the first one raises; others are replaced by words.
    """
    tree = [Node(*node) for node in nodes]
    made: dict[int, BaseException] = {}
    _made(tree, 0, made)
    for place, node in enumerate(tree):
        exc = _made(tree, place, made)
        for name, other in (("__cause__", node.cause), ("__context__", node.context)):
            BaseException.__setattr__(exc, name, None if other is None else _made(tree, other, made))
        BaseException.__setattr__(exc, "__suppress_context__", node.quiet)
        if node.notes:
            BaseException.__setattr__(exc, "__notes__", [*node.notes])
    return made[0]


def _made(tree: Sequence[Node], place: int, made: dict[int, BaseException]) -> BaseException:
    if place not in made:
        node = tree[place]
        try:
            made[place] = _loaded(tree, node, made)
        except (Exception, SystemExit):  # whatever a foreign class raises
            if place == 0:
                raise
            made[place] = _stand_in(node)
    return made[place]


def _loaded(tree: Sequence[Node], node: Node, made: dict[int, BaseException]) -> BaseException:
    if node.data is None:
        return _stand_in(node)
    found = pickle.loads(node.data)
    if node.members is not None:
        found = regrouped(found, [_made(tree, member, made) for member in node.members])
    if not isinstance(found, BaseException):
        raise TypeError(f"{node.type_name} came back as {type(found).__name__}")
    return found


def _stand_in(node: Node) -> JobFailed:
    text = f"{node.type_name}: {node.message}" if node.message else node.type_name
    return JobFailed(text, error_type=node.type_name, error_message=node.message)


def _nodes(root: BaseException, limit: int) -> list[Node]:
    tree = _reachable(root)
    places = {id(exc): place for place, exc in enumerate(tree)}
    nodes, left = [], limit
    for exc in tree:
        data, stays = _pickled(exc, left)
        left -= len(data or b"")
        group = exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()
        is_cut = any(other is not None and id(other) not in places for other in _next(exc))
        cut = f"cut here: more than {MOST} exceptions hang together" if is_cut else ""
        node = Node(
            data,
            type(exc).__name__,
            words_of(exc),
            tuple(places[id(each)] for each in group if id(each) in places) if group else None,
            places.get(id(exc.__cause__)),
            places.get(id(exc.__context__)),
            exc.__suppress_context__,
            (*notes_of(exc), *filter(None, (stays, cut))),
        )
        nodes.append(node)
    return nodes


def _next(exc: BaseException) -> Iterator[BaseException | None]:
    """What hangs on an exception directly."""
    if isinstance(exc, BaseExceptionGroup):
        yield from exc.exceptions
    yield exc.__cause__
    yield exc.__context__


def _reachable(root: BaseException) -> list[BaseException]:
    """An exception and what hangs on it, nearest first."""
    found = {id(root): root}
    waiting = deque([root])
    while waiting:
        for other in _next(waiting.popleft()):
            if other is not None and id(other) not in found and len(found) < MOST:
                found[id(other)] = other
                waiting.append(other)
    return [*found.values()]


def _pickled(exc: BaseException, limit: int) -> tuple[bytes | None, str]:
    """The form in which most of an exception comes back, and a note; None where none gives its class and message."""
    best, most, noted = None, -1, ""
    for form, note in forms_of(exc, limit):
        try:
            data = ValuePickler(limit=limit).dumps(form)
            kept, everything = kept_of(exc, pickle.loads(data))
        # Out of here even a KeyboardInterrupt would end the process in the user's error's place. Nobody interrupts a
        # rank in earnest; those are killed.
        except BaseException:  # noqa: BLE001
            continue
        if kept > most:
            best, most, noted = data, kept, note
        if everything:
            break
    return best, noted
