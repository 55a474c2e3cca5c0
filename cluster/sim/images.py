"""What the process kubelet runs for an image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.sim.network import GCS_NAME, GCS_PORT
from cluster.sim.spec import Image

_SHIMS = Path(__file__).parent / "shims"
_SOURCE = Path(__file__).resolve().parents[2]
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM_PREFIXES = (Path("/"), Path("/usr"), Path("/usr/local"))
# As in Ray's images: a folder of the container's own, where no token of anybody else lies.
_HOME = str(Path("/home") / "ray")
#: Where pods find Cloud Storage.
GCS_URL = f"http://{GCS_NAME}:{GCS_PORT}"


def entries(images: tuple[Image, ...]) -> dict[str, dict[str, Any]]:
    """The kubelet's table: by pattern, in order of precedence."""
    return {image.pattern: _entry(image) for image in images}


def _entry(image: Image) -> dict[str, Any]:
    if not image.path:
        return {"override": True}
    env = {
        "PATH": f"{_SHIMS}:{image.path}:{_SYSTEM}",
        "HOME": _HOME,
        "STORAGE_EMULATOR_HOST": GCS_URL,
        **dict(image.env),
    }
    return {"env": env, "workdir": _HOME, "binds": {str(path): str(path) for path in _seen(Path(image.path))}}


def _seen(programs: Path) -> Iterator[Path]:
    """What containers see of this machine wherever it lies: they have a /tmp of their own, and one file system's files.

    That is the environment of the programs, the interpreter that it was made from, and this checkout.
    """
    yield from (_SHIMS, _SOURCE)
    if programs.parent not in _SYSTEM_PREFIXES:
        yield programs.parent
    base = (programs / "python").resolve().parent.parent
    if (programs / "python").exists() and base not in (*_SYSTEM_PREFIXES, programs.parent):
        yield base
