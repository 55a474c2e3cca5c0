"""Which gang serves which call, and what to ask for, recall, give back and end: pure, no Ray, no clock.

A call goes to an idle gang of the very same wish. While calls wait, gangs of their wish are asked for, as many as there
are calls; those that are lent to a process are recalled. A gang that somebody else waits for is given back when it has
served one call, also while calls of its own wait: they ask anew, behind whoever waited. A process that has edited
its code takes over the gang that its old code ran in, or that of a process that has gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

#: Tickets of one wish that wait in the broker's queue at once.
MAX_ASKS = 8
#: A recall is answered in milliseconds unless the gang is at work: only then is another one worth asking for.
RECALLED_WITHIN = 0.05
#: Seconds without use after which the children of a gang end.
WARM = 300.0


class Phase(StrEnum):
    """What a gang is doing."""

    ASKING = "asking"  # for a lease
    IDLE = "idle"
    BUSY = "busy"
    LENT = "lent"  # a process calls its host directly
    RECALLED = "recalled"  # no longer lent, but a call may still run
    LEAVING = "leaving"  # giving its lease back
    RESTING = "resting"  # without a lease, with warm children


@dataclass(frozen=True, slots=True)
class Need:
    """A call that waits.

    Attributes:
        number: Its place by arrival.
        key: What a gang has to be made for.
        stem: The same without the code.
        client: Who calls.
        priority: Higher goes first.
    """

    number: int
    key: str
    stem: str = ""
    client: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """A gang as it stands.

    Attributes:
        gang: Its id.
        key: What it is made for.
        phase: What it does.
        since: Since when; of a lent one, when it was last used.
        stem: Its key without the code.
        kind: What its lease is of.
        client: Whom it served last, or is lent to.
        has_served: Whether it has served a call under its present lease.
        is_wanted: Whether somebody else waits for its lease.
        keeps: Seconds that it may be idle with its lease.
        rests: Whether its children stay when the lease is given back.
        lends: Whether it can be lent.
        is_left: Whether the process that it served last has gone.
    """

    gang: str
    key: str
    phase: Phase
    since: float = 0.0
    stem: str = ""
    kind: tuple[str, int] = ("cpu", 0)
    client: str = ""
    has_served: bool = True
    is_wanted: bool = False
    keeps: float = 1.0
    rests: bool = True
    lends: bool = True
    is_left: bool = False


@dataclass(frozen=True, slots=True)
class Serve:
    """The gang takes the call; one of another key is made over for it first."""

    gang: str
    number: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A lease is asked for, for the gang that rests, or for a new one."""

    number: int
    gang: str | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The gang asks no more."""

    gang: str


@dataclass(frozen=True, slots=True)
class Recall:
    """The gang isn't lent any more."""

    gang: str


@dataclass(frozen=True, slots=True)
class Lend:
    """The gang is lent to the process that it served last."""

    gang: str
    client: str


@dataclass(frozen=True, slots=True)
class Release:
    """The gang gives its lease back."""

    gang: str


@dataclass(frozen=True, slots=True)
class End:
    """The gang's children end, and it with them."""

    gang: str


Step = Serve | Ask | Withdraw | Recall | Lend | Release | End


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and when to look again at the latest."""

    steps: tuple[Step, ...] = ()
    look_at: float | None = None


@dataclass(slots=True)
class _Turn:
    """One round of deciding: what is left of the gangs, and the steps so far."""

    now: float
    idle: dict[str, Standing]
    steps: list[Step] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)

    def is_due(self, when: float) -> bool:
        if when <= self.now:
            return True
        self.looks.append(when)
        return False


def plan(
    needs: Sequence[Need],
    gangs: Sequence[Standing],
    now: float,
    borrowers: Collection[tuple[str, str]] = (),
    refused: Collection[str] = (),
) -> Plan:
    """Decides.

    Args:
        needs: Calls that wait.
        gangs: All gangs.
        now: The time, on the clock of `since`.
        borrowers: Processes that would borrow a gang, with its key.
        refused: Keys for which there won't be more gangs than there are.

    Example:
        >>> plan([Need(1, "k")], [Standing("call-a", "k", Phase.IDLE)], 0.0).steps
        (Serve(gang='call-a', number=1),)
    """
    gangs = _share_the_wanting(gangs)
    turn = _Turn(now, {one.gang: one for one in gangs if one.phase is Phase.IDLE})
    for one in gangs:
        if one.phase is Phase.IDLE and one.is_wanted and one.has_served:
            _take(turn, one, Release(one.gang))
    unmet = _serve(turn, needs)
    _supply(turn, unmet, gangs, refused)
    _put_by(turn, gangs, borrowers)
    return Plan(tuple(turn.steps), min(turn.looks, default=None))


def wanted_by_others(wanted: Collection[str], waiting: Collection[str], keys: Mapping[str, str]) -> frozenset[str]:
    """Of the gangs whose leases are wanted, those that others wait for: not only more gangs of the very same key.

    Args:
        wanted: Ids of gangs, by the broker.
        waiting: Ids of all that wait in its queue.
        keys: The key of each gang of ours.

    Example:
        >>> sorted(wanted_by_others(["call-a", "call-b"], ["call-c"], {"call-a": "k", "call-b": "m", "call-c": "k"}))
        ['call-b']
    """
    return frozenset(gang for gang in wanted if any(keys.get(holder) != keys.get(gang) for holder in waiting))


def _share_the_wanting(gangs: Sequence[Standing]) -> list[Standing]:
    """The broker names leases without knowing which are idle: for one that is at work, an idle one of its kind goes."""
    lacking: dict[tuple[str, int], int] = defaultdict(int)
    for one in gangs:
        if one.is_wanted and one.phase in (Phase.BUSY, Phase.LENT, Phase.RECALLED):
            lacking[one.kind] += 1
    shared = []
    for one in gangs:
        if lacking[one.kind] > 0 and one.phase is Phase.IDLE and not one.is_wanted and one.has_served:
            lacking[one.kind] -= 1
            shared.append(replace(one, is_wanted=True))
        else:
            shared.append(one)
    return shared


def _take(turn: _Turn, one: Standing, step: Step) -> None:
    del turn.idle[one.gang]
    turn.steps.append(step)


def _serve(turn: _Turn, needs: Sequence[Need]) -> list[Need]:
    """Gives calls to idle gangs; returns those that none is there for."""
    unmet = []
    for need in sorted(needs, key=lambda need: (-need.priority, need.number)):
        of_key = [one for one in turn.idle.values() if one.key == need.key]
        edited = [one for one in turn.idle.values() if _is_of_old_code(one, need)]
        best = max(of_key or edited, key=lambda one: (one.client == need.client, one.since), default=None)
        if best is None:
            unmet.append(need)
        else:
            _take(turn, best, Serve(best.gang, need.number))
    return unmet


def _is_of_old_code(one: Standing, need: Need) -> bool:
    is_free_to = one.client == need.client or one.is_left
    return one.key != need.key and one.stem == need.stem and bool(need.stem) and is_free_to


def _supply(turn: _Turn, unmet: Sequence[Need], gangs: Sequence[Standing], refused: Collection[str]) -> None:
    """Recalls, asks for more gangs and withdraws what was asked for too much, key by key."""
    waiting: dict[str, list[Need]] = defaultdict(list)
    for need in unmet:
        waiting[need.key].append(need)
    for one in gangs:
        waiting.setdefault(one.key, [])
    recalled: set[str] = set()
    for key, needs in waiting.items():
        coming = _recall(turn, needs, gangs, recalled)
        asking = [one for one in gangs if one.key == key and one.phase is Phase.ASKING]
        short = min(len(needs), MAX_ASKS) - coming
        if len(asking) > len(needs):
            turn.steps += [Withdraw(one.gang) for one in asking[len(needs) :]]
        elif short > len(asking) and key not in refused:
            resting = [one.gang for one in gangs if one.key == key and one.phase is Phase.RESTING]
            wakes = iter(resting)
            turn.steps += [Ask(need.number, next(wakes, None)) for need in needs[len(asking) : short]]


def _recall(turn: _Turn, needs: Sequence[Need], gangs: Sequence[Standing], recalled: set[str]) -> int:
    """Recalls lent gangs that could serve; returns how many will be there in a moment."""
    coming = 0
    for one in gangs:
        could = any(one.key == need.key or _is_of_old_code(one, need) for need in needs)
        if not could or coming >= len(needs):
            continue
        if one.phase is Phase.LENT and one.gang not in recalled:
            recalled.add(one.gang)
            turn.steps.append(Recall(one.gang))
            turn.looks.append(turn.now + RECALLED_WITHIN)
            coming += 1
        elif one.phase is Phase.RECALLED and not turn.is_due(one.since + RECALLED_WITHIN):
            coming += 1
    return coming


def _put_by(turn: _Turn, gangs: Sequence[Standing], borrowers: Collection[tuple[str, str]]) -> None:
    """What becomes of gangs that nothing waits for."""
    recalled = {step.gang for step in turn.steps if isinstance(step, Recall)}
    asked = {step.gang for step in turn.steps if isinstance(step, Ask)}
    for one in list(turn.idle.values()):
        if one.lends and not one.is_wanted and (one.client, one.key) in borrowers:
            _take(turn, one, Lend(one.gang, one.client))
        elif one.is_wanted or turn.is_due(one.since + one.keeps):
            _take(turn, one, Release(one.gang))
    for one in gangs:
        is_lent = one.phase is Phase.LENT and one.gang not in recalled
        if is_lent and (one.is_wanted or turn.is_due(one.since + one.keeps)):
            turn.steps.append(Recall(one.gang))
        if one.phase is Phase.RESTING and one.gang not in asked and turn.is_due(one.since + WARM):
            turn.steps.append(End(one.gang))
