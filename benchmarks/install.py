"""What it costs to have each: import, help and size, beside keras-kinetic, submitit and modal.

Each gets a virtual environment of its own, made for this run, for which its packages are downloaded: so this benchmark
runs only where it is asked for by name.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import ROOT
from benchmarks.harness import Aim, Contender, Limit, interleave, table, timed
from benchmarks.programs import run_python

OURS, UPSTREAM = "kinetic-ray", "keras-kinetic"
HELP_AIM = 0.3  # seconds
_OF_EVERY_ENVIRONMENT = frozenset(("pip", "setuptools", "wheel"))
_BARE = "python alone"
_COUNT = "from importlib.metadata import distributions as d; print(*{each.name for each in d()}, sep='\\n')"


@dataclass(frozen=True)
class Package:
    """What is installed.

    Attributes:
        name: What the tables call it.
        source: What pip is to install.
        module: What a program imports of it.
        command: Its command, which is asked for its help; "" for none.
    """

    name: str
    source: str
    module: str
    command: str = ""


PACKAGES = (
    Package(OURS, str(ROOT), "kinetic_ray", "kinetic"),
    Package(UPSTREAM, UPSTREAM, "kinetic", "kinetic"),
    Package("submitit", "submitit", "submitit"),
    Package("modal", "modal", "modal", "modal"),
)


@dataclass(frozen=True)
class Installed:
    """A package in its environment.

    Attributes:
        package: Which.
        folder: The environment.
        packages: Names of it and of those that came with it.
        size: Bytes of them all, as they are installed.
    """

    package: Package
    folder: Path
    packages: tuple[str, ...]
    size: int

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")


class CannotBeInstalled(Exception):
    """Why not, in pip's words."""


def run(rounds: int) -> str:
    """Compares the four, or as many as can be installed here."""
    return compare(PACKAGES, rounds)


def compare(packages: Sequence[Package], rounds: int) -> str:
    """Installs each, then times them in turns."""
    there: list[Installed] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kri", dir="/tmp") as folder:
        for package in packages:
            try:
                there.append(install(package, Path(folder) / package.name))
            except CannotBeInstalled as why:
                notes.append(f"{package.name} is left out, for it can't be installed here: {why}")
        if not there:
            return "\n".join(notes)
        aims = [Aim(OURS, UPSTREAM, 0.1)]
        imports = table("import", interleave([_alone(there[0]), *map(_importing, there)], rounds), aims)
        asked = [_helping(each) for each in there if each.package.command]
        helps = [table("--help", interleave(asked, rounds), [Limit(OURS, HELP_AIM)])] if asked else []
    return "\n\n".join([imports, *helps, _sizes(there), *notes])


def _alone(any_one: Installed) -> Contender:
    return Contender(_BARE, timed(lambda: run_python("-c", "pass", python=any_one.python, PYTHONPATH="")))


def _importing(each: Installed) -> Contender:
    code = f"import {each.package.module}"
    return Contender(each.package.name, timed(lambda: run_python("-c", code, python=each.python, PYTHONPATH="")))


def _helping(each: Installed) -> Contender:
    command = str(each.folder / "bin" / each.package.command)
    name = each.package.name
    return Contender(name, timed(lambda: run_python(command, "--help", python=each.python, PYTHONPATH="")))


def _sizes(there: Sequence[Installed]) -> str:
    lines = [f"{'installed':<24} {'MB':>9} {'packages':>9}"]
    lines += [f"  {each.package.name:<22} {each.size / 1e6:>9.0f} {len(each.packages):>9}" for each in there]
    return "\n".join(lines)


def install(package: Package, folder: Path) -> Installed:
    """Makes an environment for a package and installs it there.

    Raises:
        CannotBeInstalled: Not here.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdin=subprocess.DEVNULL)
    python = str(folder / "bin" / "python")
    before = _size_of(folder)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", package.source],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines() or [f"pip ended with {done.returncode}"]
        raise CannotBeInstalled(words[-1])
    run_python("-c", f"import {package.module}", python=python, PYTHONPATH="")
    names = {*run_python("-c", _COUNT, python=python, PYTHONPATH="").split()} - _OF_EVERY_ENVIRONMENT
    return Installed(package, folder, tuple(sorted(names)), _size_of(folder) - before)


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
