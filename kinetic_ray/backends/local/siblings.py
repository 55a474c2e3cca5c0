"""Embedded clusters of this user's other environments and homes: a store may be shared with them.

A job that one of them has is neither lost nor free to be started from here, though our own supervisor has never heard
of it. They are only asked, in words that all versions know.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from kinetic_ray import wire
from kinetic_ray.backends.local.paths import CLUSTERS, Runtime, prefix_of_user
from kinetic_ray.errors import ConfigError, KineticError

#: One that is alive answers at once.
_PATIENCE_S = 5.0


def answers_of_others(
    own: Runtime, message: Mapping[str, object], clusters: Path = CLUSTERS, patience: float = _PATIENCE_S
) -> Iterator[wire.Message]:
    """What the supervisors of other clusters say; nothing from one that has gone, or doesn't know the question.

    Args:
        own: Our own cluster, which isn't asked.
        message: What to ask.
        clusters: Where their folders lie.
        patience: Seconds for each.

    Raises:
        ConfigError: One lives and didn't answer; after all the others have.
    """
    silent = []
    for root in sorted(clusters.glob(f"{prefix_of_user(os.getuid())}*")):
        if root != own.root:
            try:
                yield wire.call(Runtime(root).sock, message, patience)
            except TimeoutError:
                silent.append(root)
            except (KineticError, OSError):
                continue
    if silent:
        raise ConfigError(
            f"another embedded cluster of yours ({', '.join(map(str, silent))}) did not answer within {patience:g} s, "
            "so nobody knows whether it has the job. Try again, or end that cluster with its KINETIC_HOME and "
            "environment: kinetic local stop --force"
        )
