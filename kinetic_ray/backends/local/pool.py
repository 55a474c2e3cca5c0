"""Which slices to use, start, stop or refuse: decided here, done elsewhere."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kinetic_ray.core.accelerators import Accelerator, parse_accelerator
from kinetic_ray.errors import ConfigError, UsageError

#: Accelerator's canonical name, chips per host.
Kind = tuple[str, int]

#: Simulated hosts that a laptop may pretend to have at once, where no pool is fixed.
MAX_HOSTS = 16


@dataclass(frozen=True, slots=True)
class Standing:
    """A slice that is there.

    Attributes:
        name: Its name, which is its TPU_NAME.
        kind: What it is.
        hosts: How many hosts it has.
        up: Whether all of them are up; they are starting otherwise.
        used_at: When it was last known to be in use, by a monotonic clock.
    """

    name: str
    kind: Kind
    hosts: int
    up: bool
    used_at: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What there may be.

    Attributes:
        pool: Slices by kind, as fixed by KINETIC_LOCAL_SLICES; None = any shape that fits `max_hosts`.
        max_hosts: Hosts at once where no pool is fixed.
    """

    pool: Mapping[Kind, int] | None = None
    max_hosts: int = MAX_HOSTS


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a request.

    Attributes:
        use: Slices to hand out; those of them that are still starting are worth waiting for.
        start: How many to start.
        stop: Idle slices to stop first, to make room.
        wait: Why it is fewer than asked for; "" if it isn't.
    """

    use: tuple[str, ...]
    start: int = 0
    stop: tuple[str, ...] = ()
    wait: str = ""


def kind_of(accelerator: Accelerator) -> Kind:
    """What slices of an accelerator are told apart by."""
    return accelerator.name, accelerator.chips_per_host


def parse_pool(text: str | None) -> dict[Kind, int] | None:
    """Reads KINETIC_LOCAL_SLICES.

    Raises:
        ConfigError: Not a JSON object from TPU names to counts.

    Example:
        >>> parse_pool('{"v6e-16": 2}')
        {('tpu-v6e-16', 4): 2}
    """
    if text is None:
        return None
    try:
        given = json.loads(text)
    except ValueError as exc:
        raise _bad_pool(text, f"it is no JSON ({exc})") from None
    if not isinstance(given, dict):
        raise _bad_pool(text, "it is no JSON object, which is written in braces")
    pool: dict[Kind, int] = {}
    for name, count in given.items():
        kind = _pool_kind(text, name)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise _bad_pool(text, f"{name!r} needs a whole number of slices, not {count!r}")
        pool[kind] = pool.get(kind, 0) + count
    return pool


def _pool_kind(text: str, name: str) -> Kind:
    try:
        accelerator = parse_accelerator(name)
    except UsageError as exc:
        raise _bad_pool(text, str(exc)) from None
    if accelerator.kind != "tpu":
        raise _bad_pool(text, f"{name!r} is no TPU; CPUs are always there, GPUs are not simulated")
    return kind_of(accelerator)


def _bad_pool(text: str, why: str) -> ConfigError:
    end = "" if why.endswith(("?", "!", ".")) else "."
    return ConfigError(f"KINETIC_LOCAL_SLICES={text!r}: {why}{end} Write for example '{{\"tpu-v6e-16\": 2}}'")


def refusal(limits: Limits, accelerator: Accelerator, count: int) -> str:
    """Why `count` slices can never be there at once; "" if they can."""
    if limits.pool is not None:
        there = limits.pool.get(kind_of(accelerator), 0)
        if count > there:
            has = ", ".join(f"{n} x {_shown(kind)}" for kind, n in sorted(limits.pool.items())) or "no slices at all"
            return f"{count} x {_shown(kind_of(accelerator))} never fit: KINETIC_LOCAL_SLICES fixes the pool to {has}"
        return ""
    hosts = count * accelerator.hosts
    if hosts > limits.max_hosts:
        return (
            f"{count} x {_shown(kind_of(accelerator))} need {hosts} hosts, and this machine simulates at most "
            f"{limits.max_hosts} at once: take a smaller slice, or set KINETIC_LOCAL_SLICES to a pool of your own"
        )
    return ""


def _shown(kind: Kind) -> str:
    name, chips_per_host = kind
    usual = parse_accelerator(name).chips_per_host
    return name if chips_per_host == usual else f"{name} (chips_per_host={chips_per_host})"


def plan(
    limits: Limits,
    accelerator: Accelerator,
    count: int,
    standing: Sequence[Standing],
    taken: Collection[str],
    kept: Collection[str] = (),
) -> Plan:
    """What to do for `count` slices of a kind.

    Args:
        limits: What there may be; :func:`refusal` has found nothing against the request.
        accelerator: The kind.
        count: How many are wanted.
        standing: All slices that there are.
        taken: Names of those that can't be handed out.
        kept: Names of those that must not be stopped to make room, besides the taken ones.

    Returns:
        A plan that makes the count full, or one that hands out what is free and says why it waits. Nothing is
        started or stopped for a request that would have to wait all the same.
    """
    kind = kind_of(accelerator)
    mine = [s for s in standing if s.kind == kind]
    use = _free(kind, count, standing, taken)
    missing = count - len(use)
    if missing == 0:
        return Plan(use)
    if limits.pool is not None:
        room = limits.pool.get(kind, 0) - len(mine)
        return Plan(use, start=missing) if missing <= room else Plan(use, wait=_all_busy(kind, len(mine), len(use)))
    stop = _make_room(limits.max_hosts, accelerator.hosts * missing, standing, {*taken, *kept, *use})
    if stop is None:
        held = sum(s.hosts for s in standing)
        return Plan(use, wait=f"{held} of {limits.max_hosts} simulated hosts are in use")
    return Plan(use, start=missing, stop=stop)


def at_hand(
    accelerator: Accelerator, count: int, standing: Sequence[Standing], taken: Collection[str]
) -> tuple[str, ...]:
    """Slices of a kind that are up and can be handed out, at most `count`."""
    return _free(kind_of(accelerator), count, [s for s in standing if s.up], taken)


def _free(kind: Kind, count: int, standing: Sequence[Standing], taken: Collection[str]) -> tuple[str, ...]:
    free = sorted((s for s in standing if s.kind == kind and s.name not in taken), key=lambda s: (not s.up, s.name))
    return tuple(s.name for s in free[:count])


def _all_busy(kind: Kind, there: int, free: int) -> str:
    return f"{there - free} of {there} slices of {_shown(kind)} are in use"


def _make_room(most: int, hosts: int, standing: Sequence[Standing], keep: Collection[str]) -> tuple[str, ...] | None:
    """The longest unused slices whose end makes room for `hosts` more; None if there can't be room now."""
    held, stopped = sum(s.hosts for s in standing), []
    for candidate in sorted((s for s in standing if s.up and s.name not in keep), key=lambda s: s.used_at):
        if held + hosts <= most:
            break
        stopped.append(candidate.name)
        held -= candidate.hosts
    return tuple(stopped) if held + hosts <= most else None


def short_of_memory(available: int, needed: int, standing: Sequence[Standing], keep: Collection[str]) -> str:
    """The slice to stop because memory is short for `needed` bytes more; "" if none should or can be."""
    idle = [s for s in standing if s.up and s.name not in keep]
    return min(idle, key=lambda s: s.used_at).name if idle and available < needed else ""


def idle_since(standing: Sequence[Standing], taken: Collection[str], before: float) -> tuple[str, ...]:
    """Slices that nobody has used since `before`."""
    return tuple(s.name for s in standing if s.up and s.name not in taken and s.used_at < before)


def next_names(accelerator: Accelerator, count: int, used: Collection[str]) -> list[str]:
    """Names for new slices: the lowest free numbers, so that a pool's names stay the same for ever.

    Example:
        >>> next_names(parse_accelerator("tpu-v6e-16"), 2, {"tpu-v6e-16-0"})
        ['tpu-v6e-16-1', 'tpu-v6e-16-2']
    """
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"{accelerator.name}-{number}"
        if name not in used:
            names.append(name)
        number += 1
    return names
