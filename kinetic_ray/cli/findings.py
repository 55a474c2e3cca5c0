"""What `kinetic doctor` looks at: each check measures one thing and says what to do about it."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from kinetic_ray import config
from kinetic_ray.errors import KineticError

GIB = 1024**3
_LONGEST_SOCKET_PATH = 103  # bytes that macOS allows; Linux has four more
_IMPORT_SECONDS = 120
_DISTRIBUTION = "kinetic-ray"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check.

    Attributes:
        check: Its name.
        level: "ok", "warn" (works, but mind it) or "fail" (jobs won't run).
        message: What was found.
        fix: The way out; "" when ok.
    """

    check: str
    level: str
    message: str
    fix: str = ""


def check_system() -> Finding:
    """Linux is tested; macOS should work; Windows can't."""
    name, told = platform.system(), f"{platform.system()} {platform.machine()}, {os.cpu_count() or '?'} CPUs"
    if name == "Linux":
        return Finding("system", "ok", told)
    if name == "Darwin":
        return Finding("system", "warn", told, "macOS is written for but not tested; please report what fails")
    return Finding("system", "fail", told, "use Linux or macOS; on Windows, the Windows Subsystem for Linux")


def check_python() -> Finding:
    """The interpreter is one that this kinetic_ray was made for."""
    return judge_python(sys.version_info[:2], f"{platform.python_version()} at {sys.executable}")


def judge_python(version: tuple[int, int], told: str) -> Finding:
    """Grades a version of Python: major, minor."""
    if version < (3, 11):
        return Finding("python", "fail", told, "make an environment with Python 3.11 or newer")
    if version > (3, 13):
        return Finding("python", "warn", told, "newer than what is tested; Python 3.11 to 3.13 are")
    return Finding("python", "ok", told)


def check_ray() -> Finding:
    """Ray of a version that this kinetic_ray was built against, and whole enough to be imported."""
    version, wanted = installed("ray"), wanted_range("ray")
    finding = judge_version("ray", version, wanted)
    return finding if finding.level == "fail" else _with_import(finding, "ray")


def check_jax() -> Finding:
    """Only programs that use jax need it."""
    version = installed("jax")
    if version is None:
        return Finding("jax", "warn", "not installed", "pip install 'kinetic-ray[jax]' for programs that use it")
    return _with_import(judge_version("jax", version, wanted_range("jax")), "jax")


def installed(package: str) -> str | None:
    """The version of an installed package, read without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def wanted_range(package: str) -> str:
    """What our own metadata asks of a package, e.g. ">=2.60,<2.61"; "" where that can't be told."""
    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = (Requirement(line) for line in lines)
    return next((str(each.specifier) for each in found if each.name == package), "")


def judge_version(package: str, version: str | None, wanted: str) -> Finding:
    """Whether an installed version lies in the range that is wanted."""
    from packaging.specifiers import SpecifierSet

    fix = f"pip install '{package}{wanted}'"
    if version is None:
        return Finding(package, "fail", "not installed", fix)
    if not SpecifierSet(wanted).contains(version, prereleases=True):
        return Finding(package, "fail", f"{version}, but {wanted} is needed", fix)
    return Finding(package, "ok", version)


def _with_import(finding: Finding, package: str) -> Finding:
    """Imports a package in a process of its own: an installation can be there and broken."""
    command = [sys.executable, "-c", f"import {package}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Finding(package, "fail", f"{finding.message}, but importing it takes > {_IMPORT_SECONDS} s", "look why")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        fix = f"reinstall it: pip install --force-reinstall '{package}=={finding.message}'"
        return Finding(package, "fail", f"{finding.message} can't be imported: {last}", fix)
    return finding


def check_loopback() -> Finding:
    """Everything of the embedded cluster binds to free ports of the loopback address."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5),
        ):
            port = server.getsockname()[1]
    except OSError as error:
        fix = "allow connections to 127.0.0.1 (firewall, container policy)"
        return Finding("loopback", "fail", f"no connection over 127.0.0.1: {error}", fix)
    return Finding("loopback", "ok", f"127.0.0.1 works, e.g. port {port} was free")


def check_shared_memory() -> Finding:
    """Ray keeps objects in shared memory; where there is little of it, they go to disk."""
    if not Path("/dev/shm").is_dir():
        return Finding("shared memory", "ok", "no /dev/shm here: Ray uses files")
    free = psutil.disk_usage("/dev/shm").free
    fix = "give it more: docker run --shm-size=2g, or mount -o remount,size=2g /dev/shm"
    return judge_space("shared memory", free, (GIB // 2, GIB // 16), "free in /dev/shm", fix)


def check_memory() -> Finding:
    """What is left for hosts, by the machine or by the container's limit."""
    free = min(psutil.virtual_memory().available, cgroup_free())
    fix = "end other programs, or use smaller slices: a simulated host takes some 0.3 GB, more with your program"
    return judge_space("memory", free, (2 * GIB, GIB), "available", fix)


def cgroup_free(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes left of a container's limit; very many where there is none."""
    try:
        limit, used = ((root / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return sys.maxsize
    return sys.maxsize if limit == "max" else max(int(limit) - int(used), 0)


def check_disk() -> Finding:
    """Ray refuses objects where the disk of its temporary folder is 95 % full."""
    usage = psutil.disk_usage(tempfile.gettempdir())
    where = f"free in {tempfile.gettempdir()}"
    fix = f"make room there: Ray stops working when it is 95 % full (now {usage.percent:.0f} %)"
    if usage.percent >= 95:
        return Finding("disk", "fail", f"{usage.free / GIB:.1f} GiB {where}", fix)
    return judge_space("disk", usage.free, (2 * GIB, GIB // 4), where, fix)


def judge_space(check: str, free: int, bounds: tuple[int, int], where: str, fix: str) -> Finding:
    """Grades free bytes: below the first bound "warn", below the second "fail"."""
    level = "fail" if free < bounds[1] else "warn" if free < bounds[0] else "ok"
    return Finding(check, level, f"{free / GIB:.1f} GiB {where}", "" if level == "ok" else fix)


def check_limits() -> Finding:
    """A cluster of some hosts opens thousands of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return judge_files(*(sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard)))


def judge_files(soft: int, hard: int) -> Finding:
    """Grades the limits on open files; a process may raise the soft one to the hard one."""
    told = f"{soft if soft < sys.maxsize else 'unlimited'} open files"
    if hard < 1024:
        return Finding("limits", "fail", f"{hard} open files at most", "raise the hard limit: ulimit -Hn 65536")
    if soft < 4096:
        return Finding("limits", "warn", told, f"ulimit -n {min(hard, 65536)}, for more than a few hosts")
    return Finding("limits", "ok", told)


def check_home() -> Finding:
    """The folder of state, caches and the default store."""
    return judge_folder("home", config.home(), "set KINETIC_HOME to a folder that you can write to")


def judge_folder(check: str, folder: Path, fix: str) -> Finding:
    """Whether a folder is there to be written, or could be made."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".kinetic-doctor-"):
            pass
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        room = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return Finding(check, "fail", f"can't write to {there}: {why}", f"make room in {there}" if room else fix)
    return Finding(check, "ok", f"{folder}" + ("" if there == folder else " (will be made)"))


def check_store() -> Finding:
    """The store can be read and is of a format that we know; a local one can be written."""
    from kinetic_ray.store import open_store

    fix = "name another store with KINETIC_STORE"
    try:
        url = config.resolve().store_url
        if "://" not in url and not Path(url, "format.json").exists():
            found = judge_folder("store", Path(url), fix)
            if found.level == "fail" or not Path(url).is_dir() or not any(Path(url).iterdir()):
                return found
        return Finding("store", "ok", open_store(url, create=False).url)
    except (KineticError, OSError) as error:
        return Finding("store", "fail", str(error), fix)


def check_ray_variables(environ: Mapping[str, str] | None = None) -> Finding:
    """RAY_* variables of another cluster: ours takes none of them."""
    env = config.environment() if environ is None else environ
    foreign = sorted(name for name in env if name.startswith("RAY_"))
    if not foreign:
        return Finding("environment", "ok", "no RAY_* variables")
    fix = "jobs never join that cluster; unset them if you didn't mean to set them"
    return Finding("environment", "warn", f"set, and ignored by the embedded cluster: {', '.join(foreign)}", fix)


def check_settings(environ: Mapping[str, str] | None = None) -> Finding:
    """What looks like a setting and is none: variables, and keys of the active profile."""
    env = config.environment() if environ is None else environ
    try:
        active = config.active_profile(environ=env)
        config.resolve(environ=env)
    except KineticError as error:
        return Finding("settings", "fail", str(error), "kinetic config --explain shows where every setting comes from")
    if strange := config.strange_settings(active, env):
        return Finding("settings", "warn", "; ".join(strange), "kinetic config shows the settings that there are")
    return Finding("settings", "ok", f"profile {active.name}" if active else "no profile in use")


def judge_socket_path(longest: Path) -> Finding:
    """Whether the longest name of a unix socket fits into what the system allows."""
    size = len(str(longest).encode())
    if size > _LONGEST_SOCKET_PATH:
        told = f"{longest} has {size} bytes, {_LONGEST_SOCKET_PATH} are allowed"
        return Finding("socket paths", "fail", told, "this is a fault of kinetic: please report it")
    return Finding("socket paths", "ok", f"at most {size} of {_LONGEST_SOCKET_PATH} bytes")


def is_stale(folder: Path) -> bool:
    """Whether a cluster's runtime folder has outlived its supervisor: the lock is there, and nobody holds it."""
    from kinetic_ray.backends.local import leftovers
    from kinetic_ray.backends.local.paths import Runtime

    runtime = Runtime(folder)
    try:
        return runtime.lock.exists() and not leftovers.is_held(runtime)
    except OSError:  # another user's, or gone while we looked
        return False


def home_of(folder: Path) -> str:
    """The KINETIC_HOME that a cluster's runtime folder belongs to; "" where that can't be told."""
    from kinetic_ray.backends.local.paths import Runtime

    try:
        told = json.loads(Runtime(folder).info.read_text())
    except (OSError, ValueError):
        return ""
    return str(told.get("home", "")) if isinstance(told, dict) else ""


#: The checks that need nothing of the embedded cluster, in the order of the table.
CHECKS: tuple[Callable[[], Finding], ...] = (
    check_system,
    check_python,
    check_ray,
    check_jax,
    check_loopback,
    check_shared_memory,
    check_memory,
    check_disk,
    check_limits,
    check_home,
    check_store,
    check_ray_variables,
    check_settings,
)
