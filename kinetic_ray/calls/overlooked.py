"""What a call passes over, told once: upstream's words for clusters where there is none, settings that mean nothing."""

from __future__ import annotations

import logging
from functools import lru_cache

from kinetic_ray import config
from kinetic_ray.config import Target
from kinetic_ray.options import Options

_LOG = logging.getLogger("kinetic_ray")


def tell_overlooked(target: Target, options: Options | None = None) -> None:
    """Says what was given for a cluster although jobs run on this machine, and what looks like a setting and is none.

    Backends of one's own may know such words, so they are told nothing.

    Args:
        target: Where the call goes.
        options: The function's.
    """
    if target.backend == "local":
        words = {} if options is None else options.of_clusters
        named = {text.partition("=")[0] for text in target.overlooked}
        told = (*(f"{name}={value!r}" for name, value in words.items() if name not in named), *target.overlooked)
        if told:
            _mention(", ".join(told))
    if not config.inside_a_job():
        for line in config.strange_settings(target.profile):
            _mention_setting(line)


@lru_cache(maxsize=64)  # once, not at every call of a loop
def _mention(words: str) -> None:
    _LOG.warning(
        "%s: passed over, for clusters come with a later version. Jobs run on this machine, on simulated slices", words
    )


@lru_cache(maxsize=64)
def _mention_setting(line: str) -> None:
    _LOG.warning("%s", line)
