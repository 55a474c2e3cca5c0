"""Actors of which a cluster has one each: where they are found, and how they stay."""

from __future__ import annotations

from typing import Any

NAMESPACE = "kinetic"


def standing_actor(kind: type, name: str, **options: Any) -> Any:
    """What makes a cluster's one actor of a kind, or finds it: it stays where the head is, and comes back if it dies.

    Args:
        kind: Its class.
        name: Its name in our namespace.
        **options: Ray's, beyond those that all of them have.
    """
    import ray

    return ray.remote(kind).options(
        name=name,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        num_cpus=0,
        resources={"node:__internal_head__": 0.001},
        **options,
    )
