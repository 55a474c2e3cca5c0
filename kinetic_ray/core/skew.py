"""What a call was made with and what a host has: which differences matter. Pure.

Functions travel as bytecode, which belongs to one minor version of Python; the rest of a pickle names modules, and
relies on what they look like inside. So a difference is either fatal, and then refused before anything is unpickled, or
it is worth a word, or neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kinetic_ray.core.spec import Fingerprint

_NUMBERS = re.compile(r"v?(?:\d+!)?(\d+)(?:\.(\d+))?")
#: From here on a first number is a year: versions by the calendar say nothing about what fits.
_FIRST_YEAR = 1900


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the client and a host have in versions that differ.

    Attributes:
        what: "Python", "Ray", or a package as it is imported.
        client: The client's version.
        host: The host's; "" where it has none at all.
        is_fatal: Whether the call can't be expected to run there.
    """

    what: str
    client: str
    host: str
    is_fatal: bool


def differences(client: Fingerprint, host: Fingerprint) -> list[Difference]:
    """What differs in a way that matters, the fatal first.

    Args:
        client: What the call was made with.
        host: What there is: of the packages, those that the client names.

    Example:
        >>> differences(
        ...     Fingerprint("3.11.9", "2.60.0", "3.1.0", "1.0"), Fingerprint("3.11.2", "2.60.1", "3.1.2", "1.1")
        ... )
        [Difference(what='kinetic_ray', client='1.0', host='1.1', is_fatal=False)]
    """
    found = [
        _compared("Python", client.python, host.python, fatal_from=2),
        _compared("Ray", client.ray, host.ray, fatal_from=2),
        _compared("cloudpickle", client.cloudpickle, host.cloudpickle, fatal_from=1, told_from=1),
        _compared("kinetic_ray", client.kinetic_ray, host.kinetic_ray, fatal_from=0),
    ]
    for name, version in client.packages.items():
        if name not in host.packages:
            found.append(Difference(name, version, "", is_fatal=True))
        else:
            found.append(_compared(name, version, host.packages[name], fatal_from=1))
    return sorted((each for each in found if each is not None), key=lambda each: not each.is_fatal)


def _compared(what: str, client: str, host: str, *, fatal_from: int, told_from: int = 2) -> Difference | None:
    """A difference in the first numbers of two versions.

    Args:
        what: Whose.
        client: The client's.
        host: The host's.
        fatal_from: How many of the first numbers must be equal.
        told_from: How many of them are looked at.
    """
    mine, other = _numbers(client), _numbers(host)
    if not mine or not other or mine[:told_from] == other[:told_from]:
        return None
    is_fatal = mine[:fatal_from] != other[:fatal_from] and min(mine[0], other[0]) < _FIRST_YEAR
    return Difference(what, client, host, is_fatal)


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version; () where nothing is known."""
    match = _NUMBERS.match(version)
    return () if match is None else (int(match[1]), int(match[2] or 0))


def refusal(found: Iterable[Difference]) -> str:
    """Why a call can't run on a host; "" where nothing speaks against it.

    Example:
        >>> refusal([Difference("pandas", "2.2.1", "", True)])[:63]
        'the call was made with pandas 2.2.1, and the host has no pandas'
    """
    fatal = [each for each in found if each.is_fatal]
    if not fatal:
        return ""
    mine = ", ".join(f"{each.what} {each.client}".rstrip() for each in fatal)
    theirs = ", ".join(f"{each.what} {each.host}" if each.host else f"no {each.what}" for each in fatal)
    return f"the call was made with {mine}, and the host has {theirs}: {_way_out(fatal)}"


def _way_out(fatal: Sequence[Difference]) -> str:
    names = [each.what for each in fatal]
    if "Python" in names:
        return "use the same minor version of Python on both"
    missing = [each.what for each in fatal if not each.host]
    if len(missing) == len(names):
        return f"install {' and '.join(missing)} there, or make the call without {'them' if missing[1:] else 'it'}"
    return f"install the same version of {' and '.join(names)} on both"


def warnings(found: Iterable[Difference]) -> list[str]:
    """What differs without harm that is known."""
    return [
        f"the call was made with {each.what} {each.client}, and the host has {each.host}"
        for each in found
        if not each.is_fatal
    ]
