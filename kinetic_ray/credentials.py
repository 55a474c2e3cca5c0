"""Credentials, where keras-team/kinetic's programs look for them."""

from __future__ import annotations

from kinetic_ray.config import resolve


def ensure_credentials(project: str | None = None, zone: str | None = None, cluster: str | None = None) -> None:
    """Sees to it that this machine may use the target. The embedded cluster asks for nothing, so nothing is done.

    Nothing of ours calls it: a call checks what it needs itself, so replacing this function changes nothing either.

    Args:
        project: A cluster's project.
        zone: Its zone.
        cluster: Its name.

    Raises:
        ConfigError: The settings name a backend that there isn't.
    """
    resolve(project=project, zone=zone, cluster=cluster)
