"""Amounts of resources as Kubernetes spells them: "500m", "2Gi", "4"."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]+)(?:[eE]([+-]?[0-9]+)|([numkKMGTPE]?i?))")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def amount(text: str | int | float) -> Decimal:
    """What a quantity stands for.

    Raises:
        ValueError: It is none.
    """
    found = _FORM.fullmatch(str(text).strip())
    if not found or (found[3] or "") not in _DECIMAL | _BINARY:
        raise ValueError(f"{text!r} is no quantity")
    number, exponent, suffix = found[1], found[2], found[3] or ""
    if exponent is not None:
        return Decimal(number) * Decimal(10) ** int(exponent)
    if suffix in _BINARY:
        return Decimal(number) * Decimal(1024) ** _BINARY[suffix]
    return Decimal(number) * Decimal(10) ** _DECIMAL[suffix]


def in_units(text: str | int | float, divisor: str | int | float = 1) -> int:
    """A quantity in units of another, rounded up as the downward API does; a divisor of nothing counts as 1."""
    unit = amount(divisor) or Decimal(1)
    return int((amount(text) / unit).to_integral_value(ROUND_CEILING))
