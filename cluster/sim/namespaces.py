"""The namespaces of a plane: a process that starts in new ones, with which everything in them ends."""

from __future__ import annotations

# Processes, mounts and network in one go: when the first process of the new namespaces dies, the kernel kills all
# others, and with the last of them go mounts, interfaces and names of network namespaces. `--kill-child` and
# `--pdeathsig` tie it to the process that started it, however that one ends.
_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--net", "--mount-proc")


def first_process(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command that runs another as the first process of new namespaces."""
    return ("setpriv", "--pdeathsig", "KILL", *_UNSHARE, *argv)


def probe_command() -> tuple[str, ...]:
    """Succeeds where such namespaces, and mounts in them, can be made."""
    return first_process(("mount", "-t", "tmpfs", "tmpfs", "/run"))
