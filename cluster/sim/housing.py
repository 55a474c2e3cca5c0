"""A folder, namespaces and processes that live and end together, whatever becomes of who made them."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from cluster.sim.components import Component, write_components
from cluster.sim.control import Control
from cluster.sim.folder import Facts, Folder, planes_root
from cluster.sim.remains import remove_remains, sweep

#: A variable of every process of a plane but those of its pods: its folder.
MARK = "KINETIC_PLANE"
_SOURCE = Path(__file__).resolve().parents[2]
#: Not handed on: settings of Kubernetes, Ray and this package that are the user's own.
_FOREIGN = ("KUBE", "RAY_", "KINETIC_", "STORAGE_EMULATOR_HOST")


class HousingError(Exception):
    """No keeper, or it ended."""


class Housing:
    """What surrounds the components of a plane.

    It ends by `end`, and with the process that made it, unless it is told to `stay`.
    """

    def __init__(self, root: Path | None = None, name: str = "", port: int = 0) -> None:
        """Makes nothing yet.

        Args:
            root: Where its folder is made; by default where all of the user's planes have theirs.
            name: Of the folder, by default a new one.
            port: Of the API server on 127.0.0.1; 0 is a free one.
        """
        self.root = root or planes_root()
        self.folder = Folder(self.root / (name or f"kr-{secrets.token_hex(4)}"))
        self._port = port
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def facts(self) -> Facts:
        return self.folder.read_facts()

    @property
    def control(self) -> Control:
        return Control(self.folder.path)

    def lives(self) -> bool:
        """Whether its keeper does, as far as this process is its owner."""
        return self._keeper is not None and self._keeper.poll() is None

    def prepare(self) -> None:
        """Makes folder and ports, and removes what planes of this root left whose keepers were killed.

        Raises:
            HousingError: The port is taken, or the folder is.
        """
        sweep(self.root)
        words = (str(self.root), self.folder.path.name, str(os.getpid()), str(self._port))
        self._keeper = subprocess.Popen(
            (sys.executable, "-m", "cluster.sim.keeper", *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={**_environment(), MARK: str(self.folder.path)},
            start_new_session=True,  # Ctrl-C is for the owner; the keeper sees it end
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stderr is not None
        if not self._keeper.stdout.readline():
            said = self._keeper.stderr.read().decode(errors="replace").strip()
            raise HousingError(f"the keeper of a plane ended: {said.splitlines()[-1] if said else 'it said nothing'}")

    def start(self, components: tuple[Component, ...]) -> None:
        """Makes the namespaces and starts in them those that are to start at once."""
        for component in components:
            if shutil.which(component.argv[0]) is None:
                raise HousingError(f"{component.name} can't start: {component.argv[0]} is no program")
        write_components(self.folder.components, components)
        self._tell("go")

    def stay(self) -> None:
        """Lets all of it live on when this process ends; `existing.end_plane` ends it."""
        self._tell("stay")
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            _close_pipes(keeper)
            keeper.returncode = 0  # or its object would complain that nobody waited for it

    def end(self) -> None:
        """Ends everything and removes the folder; does nothing where that has happened."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.terminate()
        keeper.wait()
        _close_pipes(keeper)
        if self._is_ours() and self.folder.path.exists():  # the keeper was killed
            remove_remains(self.folder)

    def last_words(self, lines: int = 8) -> str:
        """The end of every component's log; of a plane that has ended, what its first process said last."""
        if self._keeper is not None and self._keeper.poll() is not None and self._keeper.stderr is not None:
            return self._keeper.stderr.read().decode(errors="replace")
        said = []
        for path in sorted(self.folder.path.glob("logs/*.log")):
            end = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            said += [f"--- {path.stem}", *end] if end else []
        return "\n".join(said)

    def _is_ours(self) -> bool:
        """Whether the folder isn't another plane's of the same name, because of which ours wasn't made."""
        with suppress(OSError, ValueError):
            return not self.facts.keeper.lives()
        return True

    def _tell(self, word: str) -> None:
        if self._keeper is None or self._keeper.stdin is None:
            raise HousingError("nothing is prepared")
        try:
            self._keeper.stdin.write(f"{word}\n".encode())
            self._keeper.stdin.flush()
        except BrokenPipeError:
            raise HousingError("the keeper of the plane has ended") from None


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def _environment() -> dict[str, str]:
    """The plane's processes find this package wherever they run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {**kept, "PYTHONPATH": str(_SOURCE)}
