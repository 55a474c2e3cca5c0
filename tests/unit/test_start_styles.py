"""However a program is started, its function finds its siblings and files on a host that never saw the project."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kinetic_ray.journal import list_entries
from kinetic_ray.store import open_store
from tests.unit.cli_jobs import BACKEND

ROOT = Path(__file__).parents[2]
FAR_HOST = Path(__file__).parent / "far_host.py"

FILES = {
    "pyproject.toml": "",
    "data.txt": "data of the root",
    "helper.py": "NAME = 'helper of the root'",
    "src/lib/__init__.py": "",
    "src/lib/deep.py": "from lib._version import V\nfrom . import near\ndef where(): return ('lib.deep', V, near.NAME)",
    "src/lib/near.py": "NAME = 'near'",
    "src/lib/_version.py": "V = '1.2'",
    ".gitignore": "_version.py\n",
    "pkg/__init__.py": "",
    "pkg/sibling.py": "NAME = 'sibling'",
    "pkg/table.csv": "a,b",
    "scripts/beside.py": "NAME = 'beside'",
}

SUBMIT = "\nif __name__ == '__main__':\n    train.run_async(4)\n"


@dataclass(frozen=True)
class Program:
    """A program whose train(4) tells where it runs and what it has found there."""

    file: str
    text: str
    value: str


PROGRAMS = {
    "root script": Program(
        "train.py",
        """
import helper, kinetic_ray as kinetic
@kinetic.remote
def train(x): return x, helper.NAME, open('data.txt').read()
""",
        "(4, 'helper of the root', 'data of the root')",
    ),
    "script in a folder": Program(
        "scripts/train.py",
        """
import beside, kinetic_ray as kinetic
from pathlib import Path
@kinetic.remote
def train(x):
    import beside as again
    return x, again.NAME, beside.NAME, Path(__file__).name, Path(__file__).with_name('beside.py').exists()
""",
        "(4, 'beside', 'beside', 'train.py', True)",
    ),
    "module of a package": Program(
        "pkg/train.py",
        """
import kinetic_ray as kinetic
from . import sibling
@kinetic.remote
def train(x):
    from .sibling import NAME
    from pathlib import Path
    return x, sibling.NAME, NAME, Path(__file__).with_name('table.csv').read_text()
""",
        "(4, 'sibling', 'sibling', 'a,b')",
    ),
    "src layout": Program(
        "scripts/train.py",
        """
import kinetic_ray as kinetic
from lib import deep
@kinetic.remote
def train(x): return x, deep.where()
""",
        "(4, ('lib.deep', '1.2', 'near'))",
    ),
    "function of a sibling module": Program(
        "train.py",
        "from work import train",
        "(4, 'helper of the root', 'work')",
    ),
    "classes of the script": Program(
        "train.py",
        """
import kinetic_ray as kinetic
from dataclasses import dataclass
from enum import Enum
class Kind(Enum):
    A = 1
@dataclass
class Config:
    kind: Kind
    def next(self): return Config(Kind.A)
CONFIG = Config(Kind.A)
@kinetic.run(accelerator='cpu')
def inner(x): return x + 1
@kinetic.remote
def train(x): return x, CONFIG.next() == CONFIG, CONFIG.kind is Kind.A, type(inner).__name__, inner(x)
""",
        "(4, True, True, 'RemoteFunction', 5)",
    ),
}
WORK = """
import helper, kinetic_ray as kinetic
@kinetic.remote
def train(x): return x, helper.NAME, __name__
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / "project"
    for name, text in {**FILES, "work.py": WORK}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def environment(home: Path, **more: str) -> Mapping[str, str]:
    """A user's: HOME and the temporary folder are not above the project, kinetic_ray is importable."""
    for name in ("home", "tmp"):
        (home / name).mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {
        **kept,
        "HOME": str(home / "home"),
        "TMPDIR": str(home / "tmp"),
        "KINETIC_HOME": str(home / "kinetic"),
        "KINETIC_STORE": str(home / "store"),
        "KINETIC_BACKEND": BACKEND,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [more.pop("PYTHONPATH", "")])]),
        **more,
    }


def start(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def value_elsewhere(home: Path, project: Path) -> str:
    """What the newest job's function gives on a far host, after the project has gone from this one."""
    store = home / "store"
    (entry, *_) = list_entries(open_store(store, create=False))
    if project.exists():
        shutil.rmtree(project)
    env = {**environment(home), "PYTHONPATH": str(ROOT), "KINETIC_JOB_ID": entry.job_id}
    command = [sys.executable, str(FAR_HOST), str(store), entry.job_id]
    done = subprocess.run(command, cwd=home / "tmp", env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write(project: Path, name: str) -> Program:
    """Writes a program into the project."""
    program = PROGRAMS[name]
    (project / program.file).write_text(program.text + SUBMIT)
    return program


STYLES = [
    ("root script", ["train.py"], "."),
    ("root script", ["-m", "train"], "."),
    ("script in a folder", ["scripts/train.py"], "."),
    ("script in a folder", ["train.py"], "scripts"),
    ("module of a package", ["-m", "pkg.train"], "."),
    ("function of a sibling module", ["train.py"], "."),
    ("function of a sibling module", ["-c", "from work import train; train.run_async(4)"], "."),
    ("classes of the script", ["train.py"], "."),
]


@pytest.mark.parametrize(("program", "command", "cwd"), STYLES)
def test_start_styles(tmp_path: Path, project: Path, program: str, command: list[str], cwd: str) -> None:
    expected = write(project, program).value
    start(command, project / cwd, environment(tmp_path))
    assert value_elsewhere(tmp_path, project) == expected


def test_a_script_by_its_path_from_elsewhere(tmp_path: Path, project: Path) -> None:
    program = write(project, "script in a folder")
    start([str(project / program.file)], tmp_path, environment(tmp_path))
    assert value_elsewhere(tmp_path, project) == program.value


def test_a_src_layout_on_the_path(tmp_path: Path, project: Path) -> None:
    program = write(project, "src layout")
    start([program.file], project, environment(tmp_path, PYTHONPATH=str(project / "src")))
    assert value_elsewhere(tmp_path, project) == program.value


def test_a_src_layout_that_an_import_hook_finds(tmp_path: Path, project: Path) -> None:
    """As `pip install -e` does it for some build backends: nothing on `sys.path` tells of the folder."""
    program = write(project, "src layout")
    hook = """
import importlib.util, pathlib, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        file = pathlib.Path(__file__).resolve().parents[1] / "src/lib/__init__.py"
        if name == "lib":
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
sys.meta_path.append(Finder())
"""
    (project / program.file).write_text(hook + program.text + SUBMIT)
    start([program.file], project, environment(tmp_path))
    assert value_elsewhere(tmp_path, project) == program.value


def test_a_script_through_a_link_to_the_project(tmp_path: Path, project: Path) -> None:
    program = write(project, "script in a folder")
    (tmp_path / "link").symlink_to(project)
    start([str(tmp_path / "link" / program.file)], tmp_path, environment(tmp_path))
    assert value_elsewhere(tmp_path, project) == program.value


def test_modules_that_lie_outside_of_the_project_are_sent_as_well(tmp_path: Path, project: Path) -> None:
    shared = tmp_path / "here" / "shared"
    (shared / "toolbox").mkdir(parents=True)
    (shared / "toolbox" / "__init__.py").write_text("from toolbox.part import NAME")
    (shared / "toolbox" / "part.py").write_text("NAME = 'part'")
    (shared / "single.py").write_text("NAME = 'single'\nclass Box: pass")
    text = "import single, toolbox, kinetic_ray as k\n@k.remote\ndef train(x): return toolbox.NAME, single.NAME"
    (project / "train.py").write_text(text + SUBMIT)
    start(["train.py"], project, environment(tmp_path, PYTHONPATH=str(shared)))
    assert value_elsewhere(tmp_path, project.parent) == "('part', 'single')"


def test_a_script_in_the_home_folder_takes_along_what_it_has_imported_from_there(tmp_path: Path) -> None:
    env = environment(tmp_path)
    home = tmp_path / "home"
    (home / "beside.py").write_text("NAME = 'beside'")
    (home / "private.txt").write_text("never sent")
    program = PROGRAMS["script in a folder"]
    text = program.text.replace(", Path(__file__).with_name('beside.py').exists()", "")
    (home / "train.py").write_text(text + SUBMIT)
    start(["train.py"], home, env)
    assert b"never sent" not in b"".join(
        path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()
    )
    (home / "beside.py").unlink()
    assert value_elsewhere(tmp_path, tmp_path / "nowhere") == program.value.replace(", True", "")


def test_an_environment_in_the_project_is_neither_sent_nor_pickled(tmp_path: Path, project: Path) -> None:
    packages = project / ".venv" / "lib" / "python3" / "site-packages"
    (packages / "third").mkdir(parents=True)
    (project / ".venv" / "pyvenv.cfg").touch()
    (packages / "third" / "__init__.py").write_text("import threading\nLOCK = threading.Lock()\ndef f(): return LOCK")
    text = "import third, kinetic_ray as kinetic\n@kinetic.remote\ndef train(x): return third.f.__name__"
    (project / "train.py").write_text(text + SUBMIT)
    start(["train.py"], project, environment(tmp_path, PYTHONPATH=str(packages)))
    stored = b"".join(path.read_bytes() for path in (tmp_path / "store" / "blobs").rglob("*") if path.is_file())
    assert b"threading.Lock()" not in stored


def test_an_unchanged_project_is_stored_once(tmp_path: Path, project: Path) -> None:
    write(project, "root script")
    for _ in range(2):
        start(["train.py"], project, environment(tmp_path))
    first, second = list_entries(open_store(tmp_path / "store"))
    blobs = [path for path in (tmp_path / "store" / "blobs").rglob("*") if path.is_file()]
    assert (first.job_id != second.job_id, len(blobs)) == (True, 2)  # a bundle and a payload


def test_a_module_that_refers_to_an_installed_program_is_not_the_script(tmp_path: Path, project: Path) -> None:
    write(project, "function of a sibling module")
    start(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"], _with_test(project), environment(tmp_path))
    assert value_elsewhere(tmp_path, project) == PROGRAMS["function of a sibling module"].value


def _with_test(project: Path) -> Path:
    (project / "test_it.py").write_text("from work import train\ndef test_it():\n    train.run_async(4)\n")
    return project
