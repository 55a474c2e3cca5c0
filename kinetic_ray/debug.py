"""Debugging, where keras-team/kinetic's programs look for it. Attaching a debugger comes with a later version."""

from __future__ import annotations

import subprocess

_END_S = 5.0


def cleanup_port_forward(process: subprocess.Popen[bytes] | None) -> None:
    """Ends a process that forwards a debugger's port, as keras-team/kinetic's `debug_attach` gives it.

    Args:
        process: None, and one that has ended, are fine.
    """
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
