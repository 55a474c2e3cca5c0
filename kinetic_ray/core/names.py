"""Ids and store keys: the only place that spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kinetic_ray.core.state import JobStatus
from kinetic_ray.errors import UsageError

#: RFC 4648 "extended hex" alphabet: unlike plain base32 it sorts as the numbers do, so text order is time order.
_ALPHABET = "0123456789abcdefghijklmnopqrstuv"
_ID_CHARS = 26
_ID_RE = re.compile(rf"(job|grp|swp)-[{_ALPHABET}]{{{_ID_CHARS}}}")
KINDS = ("job", "grp", "swp")
#: What lives in a cluster only, without records: gangs that serve calls, and instances of classes on them.
PASSING = ("call", "act")


def make_id(kind: str, unix_ms: int, random_bytes: bytes) -> str:
    """A time-sortable 128-bit id: UUIDv7 (RFC 9562) in 26 lower-case base32 characters.

    Args:
        kind: Of :data:`KINDS` or :data:`PASSING`.
        unix_ms: Milliseconds since 1970, 48 bits.
        random_bytes: 10 random bytes; 74 bits of them are used.

    Example:
        >>> make_id("job", 0, bytes(10))
        'job-0000000000e008000000000000'
    """
    if kind not in (*KINDS, *PASSING):
        raise UsageError(f"unknown kind of id {kind!r}: one of {', '.join((*KINDS, *PASSING))}")
    rand = int.from_bytes(random_bytes[:10], "big")
    value = (unix_ms & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76
    value |= ((rand >> 68) & 0xFFF) << 64
    value |= 0b10 << 62
    value |= rand & ((1 << 62) - 1)
    digits = [_ALPHABET[(value >> (5 * place)) & 31] for place in range(_ID_CHARS)]
    return f"{kind}-{''.join(reversed(digits))}"


def id_unix_ms(identifier: str) -> int:
    """When an id was made, in milliseconds since 1970."""
    value = 0
    for char in check_id(identifier)[4:]:
        value = value << 5 | _ALPHABET.index(char)
    return value >> 80


def check_id(identifier: object, kind: str | None = None) -> str:
    """Returns the id if it is well formed.

    Raises:
        UsageError: Not an id, or of another kind. Hostile ids ("../x") end here, before any key is built.
    """
    if not isinstance(identifier, str) or not _ID_RE.fullmatch(identifier):
        shown = repr(identifier)[:80]
        raise UsageError(f"{shown} is not a kinetic id: expected e.g. 'job-' and {_ID_CHARS} characters of 0-9a-v")
    if kind is not None and not identifier.startswith(kind + "-"):
        raise UsageError(f"{identifier!r} is not a {kind} id")
    return identifier


def is_id(text: str, kind: str) -> bool:
    """Whether a text is an id of that kind.

    Example:
        >>> is_id("job-0000000000e008000000000000", "job"), is_id("notes", "job")
        (True, False)
    """
    return text.startswith(kind + "-") and _ID_RE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The store keys of one job.

    Example:
        >>> JobKeys("job-0000000000e008000000000000").spec
        'jobs/job-0000000000e008000000000000/spec.json'
    """

    job_id: str

    def __post_init__(self) -> None:
        check_id(self.job_id, "job")

    @property
    def root(self) -> str:
        return f"jobs/{self.job_id}"

    @property
    def spec(self) -> str:
        return f"{self.root}/spec.json"

    @property
    def cancel(self) -> str:
        return f"{self.root}/cancel.json"

    def env(self, env_id: str) -> str:
        return f"{self.root}/env/{env_id}.json"

    @property
    def env_folder(self) -> str:
        return f"{self.root}/env"

    @property
    def drivers(self) -> str:
        return f"{self.root}/drivers"

    def epoch(self, epoch: int) -> str:
        return f"{self.drivers}/{epoch:06d}"

    def claim(self, epoch: int) -> str:
        return f"{self.epoch(epoch)}/claim.json"

    def adopted(self, epoch: int) -> str:
        return f"{self.epoch(epoch)}/adopted.json"

    def heartbeat(self, epoch: int) -> str:
        return f"{self.epoch(epoch)}/heartbeat.json"

    def events(self, epoch: int) -> str:
        return f"{self.epoch(epoch)}/events"

    def segment(self, epoch: int, first: int) -> str:
        """A segment of events, named by the number of its first event (from 1)."""
        return f"{self.events(epoch)}/{first:010d}.json"

    def merged(self, epoch: int, first: int, last: int) -> str:
        """A part that holds what several segments held, named by the numbers of its first and last event."""
        return f"{self.events(epoch)}/{first:010d}-{last:010d}.json"

    def outcomes(self, epoch: int, attempt: int) -> str:
        return f"{self.epoch(epoch)}/outcomes/{attempt:04d}"

    def outcome(self, epoch: int, attempt: int, rank: int) -> str:
        return f"{self.outcomes(epoch, attempt)}/{rank:05d}.json"

    def value(self, epoch: int, attempt: int, rank: int) -> str:
        return f"{self.outcomes(epoch, attempt)}/{rank:05d}.value"

    def error(self, epoch: int, attempt: int, rank: int) -> str:
        return f"{self.outcomes(epoch, attempt)}/{rank:05d}.error"

    @property
    def logs(self) -> str:
        return f"{self.root}/logs"

    def attempt_logs(self, epoch: int, attempt: int) -> str:
        return f"{self.logs}/{epoch:06d}.{attempt:04d}"

    def log(self, epoch: int, attempt: int, rank: int) -> str:
        return f"{self.attempt_logs(epoch, attempt)}/{rank:05d}.log"

    @property
    def outputs(self) -> str:
        return f"{self.root}/outputs"


def epoch_of(key: str) -> int | None:
    """The epoch that a folder under `drivers/` stands for, or None for anything else.

    Example:
        >>> epoch_of("jobs/job-0000000000e008000000000000/drivers/000003/")
        3
    """
    last = key.rstrip("/").rpartition("/")[2]
    return int(last) if re.fullmatch(r"[0-9]{6}", last) else None


def part_of(key: str) -> tuple[int, int] | None:
    """The numbers of the first and the last event of a part, as far as its name tells; None for anything else.

    Example:
        >>> part_of("events/0000000007.json"), part_of("events/0000000001-0000000064.json"), part_of("events/notes")
        ((7, 7), (1, 64), None)
    """
    found = re.fullmatch(r"([0-9]{10})(?:-([0-9]{10}))?\.json", key.rpartition("/")[2])
    return (int(found[1]), int(found[2] or found[1])) if found else None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One `index/` object: a hint for listing, rebuilt from events when lost."""

    job_id: str
    state: str
    func_name: str

    def key(self) -> str:
        return f"index/{self.job_id}~{self.state}~{_slug(self.func_name)}"


def parse_index(key: str) -> IndexEntry | None:
    """Reads an index key; None for a name that is not one (left by another tool, say)."""
    parts = key.rpartition("/")[2].split("~")
    if len(parts) != 3 or not _ID_RE.fullmatch(parts[0]) or parts[1] not in JobStatus.__members__:
        return None
    return IndexEntry(*parts)


def newest_entries(entries: Iterable[IndexEntry], order: Iterable[str]) -> dict[str, IndexEntry]:
    """One entry a job: duplicates (left by a crash between write and delete) resolve to the later state."""
    rank = {state: place for place, state in enumerate(order)}
    newest: dict[str, IndexEntry] = {}
    for entry in entries:
        known = newest.get(entry.job_id)
        if known is None or rank.get(entry.state, -1) > rank.get(known.state, -1):
            newest[entry.job_id] = entry
    return newest


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.<>-]", "_", text)[:80] or "_"
