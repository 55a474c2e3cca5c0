"""A script as a function: what `kinetic run SCRIPT --accelerator` calls on every rank."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_script(path: str, argv: Sequence[str] = ()) -> None:
    """Runs a script as Python would: it is `__main__`, its folder comes first in `sys.path`.

    Args:
        path: The script, from the working folder.
        argv: Its arguments.
    """
    script = Path(path).resolve()
    sys.argv = [path, *argv]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
