"""Whether a job can run with what is installed here, asked before anything is taken for it or unpickled."""

from __future__ import annotations

from collections.abc import Callable

from kinetic_ray.core.skew import differences, refusal, warnings
from kinetic_ray.core.spec import Fingerprint
from kinetic_ray.errors import PayloadError
from kinetic_ray.payload.versions import fingerprint_like


def refused_for_versions(client: Fingerprint, warn: Callable[[str], object] | None = None) -> str:
    """Why a call can't run here; "" where nothing speaks against it.

    Args:
        client: The versions that it was made with.
        warn: Told what differs without harm that is known.
    """
    found = differences(client, fingerprint_like(client))
    told = refusal(found)
    if not told and warn is not None:
        for line in warnings(found):
            warn(line)
    return told


def check_versions(client: Fingerprint) -> None:
    """Refuses a call that can't run on this host.

    Raises:
        PayloadError: Names what differs, or is missing.
    """
    if told := refused_for_versions(client):
        raise PayloadError(told)
