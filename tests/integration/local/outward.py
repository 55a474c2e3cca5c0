"""A program for namespaces of its own, where the machine's name resolves to an address that others could reach.

`python -m tests.integration.local.outward HOME ADDRESS` runs a gang there on an embedded cluster and prints what
listens meanwhile, as JSON. It changes the name, the addresses and /etc/hosts of its namespaces only.
"""

import fcntl
import json
import socket
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from kinetic_ray.backends.local import backend
from kinetic_ray.backends.local.paths import runtime_of
from tests.integration.local import clusters, probes, programs

NAME = "outward"
#: What `unshare` is given: this program then is root there, whoever started it.
NAMESPACES = ["--net", "--mount", "--uts"]
_SET_ADDRESS, _GET_FLAGS, _SET_FLAGS = 0x8916, 0x8913, 0x8914  # SIOCSIFADDR, SIOCGIFFLAGS, SIOCSIFFLAGS
_UP = 1


def _set_up(address: str) -> None:
    """Gives the loopback device a second address, and this machine's name that one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        known = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack("16sH14x", known)[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
        wanted = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(any_socket, _SET_ADDRESS, wanted)
    socket.sethostname(NAME)
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.write(f"127.0.0.1 localhost\n::1 localhost\n{address} {NAME}\n")
        hosts.flush()
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)


def main(home: Path, address: str) -> None:
    """Sets up, runs, prints, ends."""
    _set_up(address)
    with socket.create_server((NAME, 0)) as server:
        control = server.getsockname()[0]
    started = home / "started"
    started.mkdir()
    try:
        programs.hold.run_async(str(started))
        ranks = clusters.numbers_in(started, programs.RANKS)
        found = [asdict(port) for port in probes.ports(runtime_of(home))]
    finally:
        backend.stop(home, force=True)
    sys.stdout.write(json.dumps({"control": control, "ranks": ranks, "ports": found}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
