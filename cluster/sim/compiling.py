"""Runs the Go compiler: politely, with caches of its own, and telling how far it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Where Go's own installer puts it, for it isn't always in PATH.
_INSTALLED = "/usr/local/go/bin/go"
_NICENESS = 10
_EVERY = 20.0  # seconds between two lines of progress
_NO_WAY_OUT = re.compile(
    r"dial tcp|dial udp|no such host|i/o timeout|TLS handshake|GOPROXY|connection re|reading https?:"
)
_PACKAGE = re.compile(r"[A-Za-z0-9_.~/-]+")


def find_go() -> Path | None:
    found = shutil.which("go") or shutil.which(_INSTALLED)
    return Path(found) if found else None


class FetchError(Exception):
    """Modules can't be had from here, which is no fault of theirs."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """One Go with its caches.

    Attributes:
        go: Its program.
        workspace: Folder of its caches; what is there is not compiled again.
        tell: Is given lines of progress.
    """

    go: Path
    workspace: Path
    tell: Callable[[str], None]

    def compile(self, title: str, module: Path, package: str, out: Path, linker_flags: str) -> None:
        """Compiles one program of a module.

        Raises:
            FetchError: A module can't be had from here.
            subprocess.CalledProcessError: It doesn't compile.
        """
        began = time.monotonic()
        self.tell(f"{title}: fetching modules")
        total = self._fetch(module, package)
        argv = self._argv("build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", linker_flags, "-o", out, package)
        said, done, last = [], 0, began
        with subprocess.Popen(argv, cwd=module, env=self._env(), stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr or ():
                said.append(line)
                done += bool(_PACKAGE.fullmatch(line.strip()))
                if time.monotonic() - last > _EVERY:
                    last = time.monotonic()
                    self.tell(f"{title}: {done} of about {total} packages after {last - began:.0f} s")
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, argv, "".join(said))
        self.tell(f"{title}: built in {time.monotonic() - began:.0f} s")

    def _fetch(self, module: Path, package: str) -> int:
        """Gets the modules that a package needs; gives the number of packages."""
        try:
            return len(self._output(module, "list", "-deps", package).split())
        except subprocess.CalledProcessError as error:
            if _NO_WAY_OUT.search(error.output):
                raise FetchError(error.output.strip()[-500:]) from None
            raise

    def module_folder(self, module: Path, path: str) -> Path:
        """The sources of a module that `module` requires."""
        return Path(self._output(module, "list", "-m", "-f", "{{.Dir}}", path).strip())

    def _output(self, module: Path, *words: str) -> str:
        done = subprocess.run(
            self._argv(*words), cwd=module, env=self._env(), check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stderr)
        return done.stdout

    def _scratch(self) -> Path:
        """Where Go works; a build that is killed leaves it there, and not among everybody's files."""
        folder = self.workspace / "scratch"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _argv(self, *words: str | Path) -> list[str]:
        return ["nice", "-n", str(_NICENESS), str(self.go), *map(str, words)]

    def _env(self) -> dict[str, str]:
        """`-modcacherw`: what Go writes it protects from removal, too."""
        own = {
            "GOPATH": str(self.workspace),
            "GOTMPDIR": str(self._scratch()),
            "GOCACHE": str(self.workspace / "compiled"),
            "GOMODCACHE": str(self.workspace / "modules"),
            "GOFLAGS": "-mod=readonly -modcacherw",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "CGO_ENABLED": "0",
        }
        return {**os.environ, **own}
