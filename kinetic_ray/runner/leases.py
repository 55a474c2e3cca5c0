"""Leases as the cluster itself tells of them: the names of placement groups, written and read.

A lease *is* its placement groups, one a slice, or one for a gang of CPU hosts. A group's name says whose it is and what
was asked for, so a broker that has forgotten everything reads it off Ray's table of groups, and so do people:
`kinetic/job-…/1/0?slice=tpu-v6e-16-0&accelerator=tpu-v6e-16&chips_per_host=4&slices=2&name=train`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from kinetic_ray.runner.queue import CPU, Lease, Slice, Ticket

_PREFIX = "kinetic"
_SLICE = "slice"
_READABLE = ",.:<>"  # besides letters and digits: what function names and lists of ids are made of
#: How a ticket's field is read; a text is itself.
_READERS: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "bool": lambda text: text == "True",
    "tuple[str, ...]": lambda text: tuple(text.split(",")),
}


@dataclass(frozen=True, slots=True)
class Group:
    """One placement group of the cluster.

    Attributes:
        name: Its name, of whatever kind.
        nodes: Ray node ids by bundle, "" where it is not placed.
        is_removed: Whether it holds nothing any more.
    """

    name: str
    nodes: tuple[str, ...] = ()
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a cluster's groups tell.

    Attributes:
        leases: What is held, one lease a holder, that of its newest epoch. One with fewer slices than its ticket wants,
            or a slice without nodes, is a rest (see :func:`is_whole`): what it names is held all the same.
        ended: Holders, with epochs, that have held something and hold nothing of it any more.
    """

    leases: tuple[Lease, ...] = ()
    ended: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Named:
    """What a group's name tells."""

    ticket: Ticket
    index: int
    slice_name: str


def group_name(ticket: Ticket, index: int, slice_name: str = "") -> str:
    """The name of a lease's group.

    Args:
        ticket: The lease's.
        index: The slice's place among those of the lease.
        slice_name: That slice's name; "" for CPU hosts.

    Example:
        >>> group_name(Ticket("job-a", 1, "cpu", hosts=2, cpus=0.5, name="f"), 0)
        'kinetic/job-a/1/0?accelerator=cpu&hosts=2&cpus=0.5&name=f'
    """
    told = {_SLICE: slice_name} if slice_name else {}
    for field in fields(Ticket)[2:]:
        value = getattr(ticket, field.name)
        if field.default is MISSING or value != field.default:
            told[field.name] = ",".join(value) if isinstance(value, tuple) else str(value)
    query = urlencode(told, quote_via=quote, safe=_READABLE)
    return f"{_PREFIX}/{ticket.job_id}/{ticket.epoch}/{index}?{query}"


def holdings_of(groups: Sequence[Group], slices: Mapping[str, tuple[str, ...]]) -> Holdings:
    """The leases that groups stand for; groups of others are passed over.

    Args:
        groups: The cluster's, also those that wait to be placed.
        slices: The node ids by worker id of each slice that is up, for the groups that are not placed.
    """
    found: dict[str, list[tuple[_Named, Group]]] = {}
    removed: set[tuple[str, int]] = set()
    for group in groups:
        if (named := _read(group.name)) is None:
            continue
        if group.is_removed:
            removed.add((named.ticket.job_id, named.ticket.epoch))
        else:
            found.setdefault(named.ticket.job_id, []).append((named, group))
    leases = []
    for of_holder in found.values():
        epoch = max(named.ticket.epoch for named, _ in of_holder)
        newest = sorted((pair for pair in of_holder if pair[0].ticket.epoch == epoch), key=lambda pair: pair[0].index)
        held = [_slice(named, group, slices) for named, group in newest if named.slice_name]
        leases.append(Lease(newest[0][0].ticket, tuple(held)))
    return Holdings(tuple(leases), frozenset(removed) - {(one.ticket.job_id, one.ticket.epoch) for one in leases})


def is_whole(lease: Lease) -> bool:
    """Whether a lease holds all that its ticket wants, on known nodes."""
    if lease.ticket.accelerator == CPU:
        return True
    return len(lease.slices) == lease.ticket.slices and all(one.nodes for one in lease.slices)


def _slice(named: _Named, group: Group, slices: Mapping[str, tuple[str, ...]]) -> Slice:
    is_placed = bool(group.nodes) and all(group.nodes)
    return Slice(named.slice_name, group.nodes if is_placed else slices.get(named.slice_name, ()))


def _read(name: str) -> _Named | None:
    """What a name tells; None for one that is not ours, or that another version has written otherwise."""
    path, _, query = name.partition("?")
    try:
        prefix, holder, epoch, index = path.split("/")
        told = dict(parse_qsl(query, strict_parsing=True))
        slice_name = told.pop(_SLICE, "")
        kinds = {field.name: str(field.type) for field in fields(Ticket)[2:]}
        values = {key: _READERS.get(kinds[key], str)(text) for key, text in told.items()}
        named = _Named(Ticket(holder, int(epoch), **values), int(index), slice_name)
    except (ValueError, KeyError, TypeError):
        return None
    return named if prefix == _PREFIX else None
