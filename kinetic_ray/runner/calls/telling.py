"""What a process is told of its calls that wait for long: for what, and why. Pure, no Ray, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Seconds that a call waits before its process is told why.
PATIENCE = 10.0
#: Seconds between two words on the same calls, however often the reason changes.
PAUSE = 30.0
_WAITING = "waiting for "


@dataclass(frozen=True, slots=True)
class Wait:
    """A call that waits.

    Attributes:
        call: Tells it from others.
        client: Whose it is.
        name: What it calls.
        key: What a gang has to be made for; calls of one name and key are told of together.
        reason: Why it waits, as the broker says it.
    """

    call: int | str
    client: str
    name: str
    key: str
    reason: str


@dataclass(slots=True)
class _Word:
    """What was said last of calls of one kind."""

    reason: str
    at: float


class Telling:
    """Remembers since when calls wait, and what was said of them."""

    def __init__(self, patience: float = PATIENCE, pause: float = PAUSE) -> None:
        self._patience = patience
        self._pause = pause
        self._since: dict[int | str, float] = {}
        self._words: dict[tuple[str, str, str], _Word] = {}

    def look(self, waits: Iterable[Wait], now: float) -> list[tuple[str, str]]:
        """What to say now: processes, and a line for each.

        Args:
            waits: All calls that wait, those that came first ahead.
            now: The time; called again and again with later ones.
        """
        kinds: dict[tuple[str, str, str], list[Wait]] = {}
        for one in waits:
            kinds.setdefault((one.client, one.name, one.key), []).append(one)
        self._since = {one.call: self._since.get(one.call, now) for alike in kinds.values() for one in alike}
        self._words = {kind: word for kind, word in self._words.items() if kind in kinds or now - word.at < self._pause}
        said = []
        for kind, alike in kinds.items():
            if self._is_due(kind, alike[0], now):
                self._words[kind] = _Word(alike[0].reason, now)
                said.append((alike[0].client, sentence(alike[0], len(alike))))
        return said

    def _is_due(self, kind: tuple[str, str, str], first: Wait, now: float) -> bool:
        if now - self._since[first.call] < self._patience:
            return False
        word = self._words.get(kind)
        if word is None:
            return True
        is_news = word.reason != first.reason or self._since[first.call] > word.at
        return is_news and now - word.at >= self._pause


def sentence(first: Wait, number: int) -> str:
    """A line on calls of one kind.

    Args:
        first: The one that is served next.
        number: How many they are.

    Example:
        >>> sentence(Wait(1, "c", "train", "k", "waiting for 1 x tpu-v6e-16; held by job-a (fit)"), 1)
        'kinetic: train waits for 1 x tpu-v6e-16; held by job-a (fit)'
        >>> sentence(Wait(1, "c", "train", "k", "waiting for 1 x tpu-v6e-16"), 12)
        'kinetic: 12 calls of train wait for 1 x tpu-v6e-16'
    """
    who = f"{first.name} waits" if number == 1 else f"{number} calls of {first.name} wait"
    if first.reason.startswith(_WAITING):
        return f"kinetic: {who} for {first.reason.removeprefix(_WAITING)}"
    return f"kinetic: {who}: {first.reason}"
