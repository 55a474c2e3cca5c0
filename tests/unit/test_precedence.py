"""What a bundle holds is found in the bundle alone, however the same thing is installed in place."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.unit.test_reach import install, write

ROOT = Path(__file__).parents[2]

#: Asked of a process whose bundle has `lib`, and of which the live project has `lib.gone` as well.
ASK = """
import importlib, importlib.util, sys
from pathlib import Path
from kinetic_ray.bundle.precedence import put_first

put_first([sys.argv[1]], sys.argv[2:])
import lib, other
found = [importlib.util.find_spec(name) is not None for name in ("lib.gone", "loose")]
print(lib.NAME, other.NAME, *found)
print(len(list(importlib.metadata.distributions(name="proj"))))
"""

#: How build backends let Python find a project: what Python runs at its start, in a folder of packages.
WAYS = {
    "a folder on the path": "sys.path.append({src!r})",
    "a finder": """
        import importlib.util
        from pathlib import Path
        class Finder:
            def find_spec(self, name, path=None, target=None):
                file = Path({src!r}, name, "__init__.py")
                if path is None and file.exists():
                    return importlib.util.spec_from_file_location(name, file)
            def find_distributions(self, context=None):
                return []
        sys.meta_path.append(Finder())
    """,
    "a finder before Python's own": """
        from importlib.machinery import PathFinder
        class Finder:
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return PathFinder.find_spec(name, [{src!r}]) if path is None else None
        sys.meta_path.insert(0, Finder)
    """,
    "an entry of its own kind": """
        from importlib.machinery import PathFinder, ModuleSpec
        class Finder:
            def __init__(self, path):
                if path != "__editable__.proj-1.finder.__path_hook__":
                    raise ImportError
            def find_spec(self, name, target=None):
                return PathFinder.find_spec(name, [{src!r}])
            def invalidate_caches(self):
                pass
        sys.path_hooks.insert(0, Finder)
        sys.path.append("__editable__.proj-1.finder.__path_hook__")
    """,
    "loaded at the start": "sys.path.append({src!r}); import lib, lib.gone",
}


def ask(here: Path, way: str, *wanted: Path, src: str = "live/src") -> list[str]:
    """What a host says whose Python finds the live project in a way."""
    begin = textwrap.dedent(WAYS[way]).format(src=str(here / src))
    elsewhere = f"import sys\nsys.path.append({str(here / 'beside')!r})\n{begin}"
    (here / "site-packages" / "sitecustomize.py").write_text(elsewhere)
    path = os.pathsep.join(map(str, [here / "site-packages", ROOT, *wanted]))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-c", ASK, str(here / "bundle"), *map(str, wanted)]
    done = subprocess.run(command, env=env, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write(tmp_path / "live/src", lib__="NAME = 'live'", lib__gone="", loose="")
    write(tmp_path / "beside", other__="NAME = 'other'", tests__="")
    write(tmp_path / "bundle", lib__="NAME = 'sent'", tests__="")
    install(tmp_path / "site-packages", tmp_path / "live", "proj", "lib\n")
    install(tmp_path / "site-packages", tmp_path / "beside", "other")
    return tmp_path


@pytest.mark.parametrize("way", WAYS)
def test_what_is_sent_is_found_in_the_bundle_alone(here: Path, way: str) -> None:
    sent, beside, gone, *_, known = ask(here, way)
    assert (sent, beside, gone, known) == ("sent", "other", "False", "1")


def test_other_packages_of_a_folder_that_is_hidden_go_with_it(here: Path) -> None:
    assert ask(here, "a folder on the path")[3] == "False"


def test_who_names_the_folder_sees_it(here: Path) -> None:
    assert ask(here, "a folder on the path", here / "live/src") == ["sent", "other", "False", "True", "1"]


def test_a_project_that_was_not_sent_stays(here: Path) -> None:
    (here / "bundle" / "lib").rename(here / "bundle" / "mine")
    assert ask(here, "a folder on the path")[:4] == ["live", "other", "True", "True"]


def test_packages_that_go_by_another_name_than_their_project(here: Path) -> None:
    """Some build backends say no names; what lies in the folder tells, but for what many projects have."""
    (here / "site-packages/proj-1.dist-info/top_level.txt").unlink()
    (here / "site-packages/proj.pth").write_text(f"# made by a build backend\nimport sys\n{here / 'live/src'}\n")
    assert ask(here, "a folder on the path")[:3] == ["sent", "other", "False"]


def test_an_environment_inside_the_project_stays(here: Path) -> None:
    """Its packages lie in the live project's folder as well."""
    write(here / "live/venv/site-packages", lib__="NAME = 'installed'", loose="")
    assert ask(here, "a folder on the path", src="live/venv/site-packages")[3] == "True"
