"""The namespaces of a plane: a process that starts in new ones, with which everything in them ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

TOOLS = ("ip", "mount", "nsenter", "setpriv", "unshare")

# Processes, mounts and network in one go: when the first process of the new namespaces dies, the kernel kills all
# others, and with the last of them go mounts, interfaces and names of network namespaces. `--kill-child` and
# `--pdeathsig` tie it to the process that started it, however that one ends.
_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--net", "--mount-proc")


def first_process(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command that runs another as the first process of new namespaces."""
    return ("setpriv", "--pdeathsig", "KILL", *_UNSHARE, *argv)


def can_be_made() -> str:
    """Why no such namespaces, with mounts in them, can be made here; "" where they can."""
    if sys.platform != "linux":
        return "the test plane runs on Linux only"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (packages iproute2 and util-linux)"
    if os.geteuid() != 0:
        return "the test plane needs root: it makes namespaces and mounts"
    tried = subprocess.run(
        first_process(("mount", "-t", "tmpfs", "tmpfs", "/run")), check=False, capture_output=True, text=True
    )
    return f"no namespaces can be made here: {tried.stderr.strip()}" if tried.returncode else ""
