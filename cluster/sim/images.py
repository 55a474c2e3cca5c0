"""What the process kubelet runs for an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.sim.network import GCS_NAME, GCS_PORT
from cluster.sim.spec import Image

_SHIMS = Path(__file__).parent / "shims"
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOME = "/home/ray"  # as in Ray's images; a folder of the container's own, where no token of anybody else lies
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
    return {"env": env, "workdir": _HOME}
