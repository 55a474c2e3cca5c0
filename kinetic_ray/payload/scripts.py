"""A script as a function: what `kinetic run SCRIPT --accelerator` calls on every rank."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def run_script(path: str, argv: Sequence[str] = ()) -> None:
    """Runs a script as Python would: it is `__main__`, its folder comes first in `sys.path`.

    Args:
        path: The script, from the working folder.
        argv: Its arguments.
    """
    script = Path(path).resolve()
    sys.argv = [path, *argv]
    sys.path.insert(0, str(script.parent))
    # Not runpy: it takes the module away again at the end, when threads and exit handlers of the script may need it.
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(script), __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(compile(script.read_bytes(), str(script), "exec"), module.__dict__)
