"""Starts and stops planes: `python -m cluster.sim build|up|status|down`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from cluster.sim import build
from cluster.sim.compiling import FetchError
from cluster.sim.control import Control, ControlError
from cluster.sim.existing import end_plane, planes_in
from cluster.sim.folder import Folder, planes_root
from cluster.sim.images import GCS_URL
from cluster.sim.needs import missing
from cluster.sim.plane import Plane, PlaneError
from cluster.sim.spec import Image, PlaneSpec, ShapeError, parse_gpus, parse_slice

_EXAMPLE = "up --slice v6e:4x4:4 --gpus l4:1:2 --image 'rayproject/ray:*=.venv/bin'"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m cluster.sim", description=__doc__, epilog=f"example: {_EXAMPLE}")
    parser.add_argument("--root", type=Path, default=planes_root(), help="folder of the planes (%(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("build", help="build what is not built yet; prints where it lies")
    made.add_argument("--if-possible", action="store_true", help="where nothing can be built, say why and succeed")
    up = commands.add_parser("up", help="start a plane; prints the path of its kubeconfig")
    up.add_argument("--name", default="default", help="of the plane (%(default)s)")
    up.add_argument("--port", type=int, default=0, help="of the API server on 127.0.0.1, 0 is a free one")
    up.add_argument("--slice", action="append", default=[], metavar="FAMILY:TOPOLOGY:CHIPS[:CAPACITY]")
    up.add_argument("--gpus", action="append", default=[], metavar="MODEL:GPUS:HOSTS[:CAPACITY]")
    up.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="PATTERN=FOLDER",
        help="what runs for an image: the folder comes first in PATH; an empty one is a pod in name only",
    )
    up.add_argument("--no-kuberay", action="store_true", help="Kubernetes alone")
    up.add_argument("--tpu-webhook", action="store_true", help="do what GKE's TPU webhook does")
    up.add_argument("--memory-limits", action="store_true", help="kill containers beyond their memory limit")
    commands.add_parser("status", help="the planes that are up, as JSON")
    down = commands.add_parser("down", help="end a plane, or with --all every one")
    down.add_argument("--name", default="default", help="of the plane (%(default)s)")
    down.add_argument("--all", action="store_true")
    return parser


def _up(options: argparse.Namespace) -> int:
    if lacking := missing():
        return _fail("; ".join(lacking))
    try:
        spec = _spec(options)
    except ShapeError as error:
        return _fail(str(error))
    if any(folder.path.name == options.name for folder in planes_in(options.root)):
        return _fail(
            f"a plane {options.name!r} is up: give another --name, or end it with `down --name {options.name}`"
        )
    programs = build.build_programs(progress=_say)
    began = time.monotonic()
    try:
        with Plane(spec, programs, options.root, options.name) as plane:
            plane.stay()
    except PlaneError as error:
        return _fail(str(error))
    _say(f"up after {time.monotonic() - began:.1f} s; gs:// is at {plane.gcs_url}, for pods at {GCS_URL}")
    print(plane.kubeconfig)
    return 0


def _spec(options: argparse.Namespace) -> PlaneSpec:
    pools = (*map(parse_slice, options.slice), *map(parse_gpus, options.gpus))
    images = tuple(Image(*text.rpartition("=")[::2]) for text in options.image)
    return PlaneSpec(
        pools=pools,
        images=images or PlaneSpec().images,
        port=options.port,
        kuberay=not options.no_kuberay,
        memory_limits=options.memory_limits,
        tpu_webhook=options.tpu_webhook,
    )


def _status(options: argparse.Namespace) -> int:
    print(json.dumps([_report(folder) for folder in planes_in(options.root)], indent=2))
    return 0


def _report(folder: Folder) -> dict[str, object]:
    facts = folder.read_facts()
    try:
        components = {name: bool(seen.pid) for name, seen in Control(folder.path).components().items()}
    except ControlError:
        components = {}
    return {
        "name": facts.name,
        "kubeconfig": str(folder.kubeconfig),
        "server": f"https://127.0.0.1:{facts.api_port}",
        "gcs": f"http://127.0.0.1:{facts.gcs_port}",
        "keeper": facts.keeper.pid,
        "logs": str(folder.log("*")),
        "running": components,
    }


def _down(options: argparse.Namespace) -> int:
    folders = list(planes_in(options.root)) if options.all else [Folder(options.root / options.name)]
    for folder in folders:
        if not folder.path.is_dir():
            return _fail(f"no plane {folder.path.name!r} is up")
        end_plane(folder)
    return 0


def _build(options: argparse.Namespace) -> int:
    if options.if_possible and (lacking := missing()):
        print(f"skipped: {'; '.join(lacking)}")
        return 0
    try:
        programs = build.build_programs(progress=_say)
    except FetchError as error:
        print(f"{'skipped' if options.if_possible else 'error'}: modules can't be had from here: {error}")
        return 0 if options.if_possible else 1
    print(programs.control_plane, programs.kuberay, sep="\n")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _fail(message: str) -> int:
    _say(f"error: {message}")
    return 1


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; gives its exit code."""
    options = _parser().parse_args(arguments)
    commands = {"build": _build, "up": _up, "status": _status, "down": _down}
    try:
        return commands[options.command](options)
    except subprocess.CalledProcessError as error:
        return _fail(build.failure_of(error))
    except (FileNotFoundError, TimeoutError) as error:
        return _fail(str(error))


if __name__ == "__main__":
    sys.exit(main())
