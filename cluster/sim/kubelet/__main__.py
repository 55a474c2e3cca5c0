"""Plays the nodes of a test plane: `python -m cluster.sim.kubelet`, inside the plane's network namespace."""

from __future__ import annotations

import asyncio
import sys

from cluster.sim.kubelet.agent import Kubelet, hide_mounts
from cluster.sim.kubelet.options import parse


def main() -> None:
    options = parse()
    try:
        hide_mounts(options.dir)
    except OSError as wrong:
        sys.exit(str(wrong))
    asyncio.run(Kubelet(options).run())


if __name__ == "__main__":
    main()
