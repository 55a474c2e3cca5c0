"""How one rank of one attempt ended: a stored value, or a described error."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes by their digest.

    Attributes:
        sha256: Lower-case hex digest.
        size: Bytes.
    """

    sha256: str
    size: int

    def matches(self, data: bytes) -> bool:
        """Whether these are the bytes."""
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.sha256

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Blob:
        return Blob(str(data["sha256"]), int(data["size"]))


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An exception in words, readable without the classes that it is made of.

    Attributes:
        type_name: Class name, e.g. "ValueError".
        module: Where the class is defined.
        message: `str(exc)`.
        traceback: The remote traceback with the cause chain, as Python prints it.
        pickled: The exception itself (cloudpickle), where a round trip on the host gave it back; else None.
        value_repr: For a value that couldn't be pickled: its repr, at most 20,000 characters.
    """

    type_name: str
    module: str
    message: str
    traceback: str
    pickled: Blob | None = None
    value_repr: str | None = None

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> ErrorInfo:
        fields = dict(data)
        if fields.get("pickled") is not None:
            fields["pickled"] = Blob.from_dict(fields["pickled"])
        return ErrorInfo(**fields)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rank's end.

    Attributes:
        rank: The rank.
        ok: Whether there is a value.
        reason: A :class:`~kinetic_ray.core.state.Reason` when not ok.
        phase: The last named phase.
        message: One line for people.
        value: The stored value (cloudpickle) when ok; None also where nobody asked for this rank's.
        error: The exception when user or setup code raised one.
        exit_code: The process's exit code, negative for a signal; None while unknown.
        log_tail: Last lines of the rank's log when not ok.
    """

    rank: int
    ok: bool
    reason: str = ""
    phase: str = ""
    message: str = ""
    value: Blob | None = None
    error: ErrorInfo | None = None
    exit_code: int | None = None
    log_tail: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Outcome:
        """Reads what :meth:`to_dict` wrote.

        Example:
            >>> Outcome.from_dict(Outcome(0, True, value=Blob("ab", 2)).to_dict()).value.size
            2
        """
        fields = dict(data)
        if fields.get("value") is not None:
            fields["value"] = Blob.from_dict(fields["value"])
        if fields.get("error") is not None:
            fields["error"] = ErrorInfo.from_dict(fields["error"])
        return Outcome(**fields)
