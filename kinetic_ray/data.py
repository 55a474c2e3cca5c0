"""`Data`: inputs that are declared, found and staged. They come with a later version; the name is here and says so."""

from __future__ import annotations

from kinetic_ray.errors import UsageError

_TOLD = (
    "kinetic.Data({path!r}): comes with a later version of kinetic_ray. Until then: files of the project are there on "
    "every host under their relative paths, arrays can be arguments, and jobs on this machine can open any path of it"
)


class Data:
    """An input of a call: a file, a folder, a `gs://` or `hf://` place. Not there yet: making one is an error.

    Example:
        >>> import kinetic_ray as kinetic
        >>> kinetic.Data("corpus/")
        Traceback (most recent call last):
        kinetic_ray.errors.UsageError: kinetic.Data('corpus/'): comes with a later version ...
    """

    def __init__(self, path: str, fuse: bool = False, hf_trust_remote_code: bool = False) -> None:  # noqa: ARG002
        raise UsageError(_TOLD.format(path=path))
