"""Calls that are made again, with the same arguments: by their name alone their agent knows what they are.

Whatever arguments a call of an actor has, Ray takes about a tenth of its time to carry them. So a client that makes the
very same call over and over gives it a name of its own, "double #5f0c21aa", and from then on nothing else: the agent
finds what came under that name before. No two of them ever share a name, so none can be taken for another, however
late it comes.
"""

from __future__ import annotations

import re
import secrets

from kinetic_ray.runner.calls.heads import Head

#: Calls that an agent remembers, and names after which a client takes others for all of its calls.
_MOST, MOST_TOLD = 1024, 512
#: Bytes of arguments up to which a call is made in this way.
MOST_BYTES = 4 << 10
_NEW = re.compile(r" #[0-9a-f]{8}\Z")

#: A call: its head, its pickled arguments.
Told = tuple[Head, bytes]


def new_name(name: str) -> str:
    """A name, for people to read, that no other call has."""
    return f"{name} #{secrets.token_hex(4)}"


def is_to_be_kept(name: str) -> bool:
    """Whether a call may be made again by its name alone."""
    return _NEW.search(name) is not None


class Again:
    """What came under which name, as an agent keeps it. Thread-safe.

    Args:
        most: So many calls; those that were told longest ago go.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._told: dict[str, Told] = {}

    def keep(self, name: str, told: Told) -> None:
        """Remembers a call."""
        if len(told[1]) > MOST_BYTES:
            return
        self._told[name] = told
        while len(self._told) > self._most:
            self._told.pop(next(iter(self._told)), None)

    def get(self, name: str) -> Told | None:
        """A call that was kept."""
        return self._told.get(name)
