"""Modules that no pickle names, but that those which it names import: hosts find them as well, and nothing more."""

import importlib
import json
import sys
import textwrap
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from kinetic_ray.bundle.reach import imported_names, reached
from kinetic_ray.calls.code import CodeTracker
from tests.unit.test_start_styles import SUBMIT, environment, start, value_elsewhere

HOOK = """
import importlib.util, pathlib, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        file = pathlib.Path(__file__).resolve().parent / "src/lib/__init__.py"
        if name == "lib":
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
sys.meta_path.append(Finder())
"""
CALLED = "import kinetic_ray as k\n@k.remote\ndef train(x): return {}\n"
SCRIPT = "from work import train" + SUBMIT


def write(folder: Path, **texts: str) -> Path:
    """Python files by name: `a__b` is b.py in the folder a, `a__` is its `__init__.py`."""
    for name, text in texts.items():
        path = folder / (name.replace("__", "/") + ("__init__.py" if name.endswith("__") else ".py"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


def install(site: Path, project: Path, name: str, tops: str = "") -> None:
    """What an installation in place leaves in a folder of packages."""
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
    (info / "RECORD").write_text(f"{name}.pth,,\n")
    if tops:
        (info / "top_level.txt").write_text(tops)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a project, and room beside it, that all goes before the host looks."""
    (tmp_path / "here" / "project").mkdir(parents=True)
    (tmp_path / "here" / "project" / "pyproject.toml").touch()
    return tmp_path / "here"


def value(here: Path, *path: Path, modules: str = "") -> str:
    """What the project's train.py gives on a far host. The folders are on PYTHONPATH here, and gone there."""
    start(["train.py"], here / "project", environment(here.parent, PYTHONPATH=":".join(map(str, path))))
    return value_elsewhere(here.parent, here)


# What a sibling imports. `work` goes by name, so the pickle names nothing else.

FROM_ELSEWHERE = {
    "a module": "import toolbox\n" + CALLED.format("toolbox.NAME"),
    "a constant": "from toolbox import NAME\n" + CALLED.format("NAME"),
    "a part of a package": "import toolbox.part as p\n" + CALLED.format("p.NAME"),
    "in a function's body": "import sys\n" + CALLED.format("__import__('toolbox').NAME"),
    "only where types are checked, and later": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING: import toolbox\n"
        + CALLED.format("sys.modules.get('near') or __import__('near').get()")
    ),
    "by a module between": "import near\n" + CALLED.format("near.get()"),
    "by a value alone": "import registry\n" + CALLED.format("registry.KEPT[0].__name__ and registry.CLASS.NAME"),
}


@pytest.mark.parametrize("how", FROM_ELSEWHERE)
def test_modules_from_elsewhere_that_siblings_import_are_sent(here: Path, how: str) -> None:
    shared = write(
        here / "shared",
        toolbox__="from toolbox.part import NAME\nclass Box:\n    NAME = 'part'\n",
        toolbox__part="import deeper\nNAME = deeper.NAME",
        deeper="NAME = 'part'",
    )
    write(
        here / "project",
        work="import sys\n" + FROM_ELSEWHERE[how],
        near="def get():\n    from toolbox import NAME\n    return NAME",
        registry="import importlib\nKEPT = [importlib]\nCLASS = vars(importlib.import_module('tool' + 'box'))['Box']",
        train="import toolbox\n" + SCRIPT,
    )
    assert value(here, shared) == "'part'"


def test_what_lies_elsewhere_may_import_from_a_third_place(here: Path) -> None:
    one = write(here / "one", first="import second\nNAME = second.NAME")
    other = write(here / "other", second="NAME = 'second'")
    write(here / "project", work="import first\n" + CALLED.format("first.NAME"), train=SCRIPT)
    assert value(here, one, other) == "'second'"


def test_parts_of_one_namespace_in_two_folders_are_both_sent(here: Path) -> None:
    one, other = write(here / "one", ns__a="NAME = 'a'"), write(here / "other", ns__b="NAME = 'b'")
    text = "import ns.a, ns.b\nfrom ns import a, b\n" + CALLED.format("(ns.a.NAME, b.NAME)")
    write(here / "project", work=text, train=SCRIPT)
    assert value(here, one, other) == "('a', 'b')"


def test_the_script_itself_may_refer_to_parts_of_one_namespace(here: Path) -> None:
    one, other = write(here / "one", ns__a="NAME = 'a'"), write(here / "other", ns__b="NAME = 'b'")
    write(here / "project", train="from ns import a, b\n" + CALLED.format("(a.NAME, b.NAME)") + SUBMIT)
    assert value(here, one, other) == "('a', 'b')"


def test_of_two_modules_of_one_name_hosts_take_the_same(here: Path) -> None:
    one = write(here / "one", tools="NAME = 'one'", only_one="")
    other = write(here / "other", tools="NAME = 'other'", only_other="")
    text = "import only_one, only_other, tools\n" + CALLED.format("tools.NAME")
    write(here / "project", work=text, train=SCRIPT)
    assert value(here, other, one) == "'other'"


@pytest.mark.parametrize("place", ["shared/m.zip", "project/m.zip"])
def test_a_module_in_a_zip_file_is_sent_with_it(here: Path, place: str) -> None:
    path = here / place
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("zipped/__init__.py", "NAME = 'zipped'")
    write(here / "project", work="import zipped\n" + CALLED.format("zipped.NAME"), train=SCRIPT)
    assert value(here, path) == "'zipped'"


def test_a_zip_file_and_a_folder_may_both_be_sent(here: Path) -> None:
    path = write(here / "shared", plain="NAME = 'plain'") / "m.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("zipped.py", "NAME = 'zipped'")
    text = "import plain, zipped\n" + CALLED.format("plain.NAME, zipped.NAME")
    write(here / "project", work=text, train=SCRIPT)
    assert value(here, path.parent, path) == "('plain', 'zipped')"


def test_what_a_notebook_has_imported_is_sent(here: Path) -> None:
    shared = write(here / "shared", toolbox="NAME = 'toolbox'")
    write(here / "project", work=CALLED.format("__import__('tool' + 'box').NAME"))
    cells = "import toolbox; from work import train; train.run_async(4)"
    start(["-c", cells], here / "project", environment(here.parent, PYTHONPATH=str(shared)))
    assert value_elsewhere(here.parent, here) == "'toolbox'"


# A src layout that is on no path.

IN_SRC = {
    "by a sibling": ("import lib\n" + CALLED.format("lib.NAME"), SCRIPT),
    "in a function's body": (CALLED.format("__import__('lib').NAME"), "import lib\n" + SCRIPT),
}


@pytest.mark.parametrize("how", IN_SRC)
def test_a_src_layout_that_a_hook_finds_is_found_by_hosts(here: Path, how: str) -> None:
    work, script = IN_SRC[how]
    write(here / "project", work=work, train=HOOK + script, src__lib__="NAME = 'lib'")
    assert value(here) == "'lib'"


def test_a_project_that_is_installed_in_place_is_found_before_it_is_loaded(here: Path) -> None:
    site = here / "site"
    install(site, here / "project", "proj", "lib\n")
    text = HOOK + "import work\n" + CALLED.format("__import__('lib').NAME") + SUBMIT
    write(here / "project", work="", train=text, src__lib__="NAME = 'lib'")
    assert value(here, site) == "'lib'"


def test_a_package_that_is_installed_in_place_elsewhere_is_sent_before_it_is_loaded(here: Path) -> None:
    """On this machine hosts would find it where it lies, as it is by then."""
    site = here / "site"
    write(here / "beside", toolbox__="from toolbox.part import NAME", toolbox__part="import deeper\nNAME = deeper.NAME")
    write(here / "third", deeper="NAME = 'part'", unused="SECRET = 'never sent'")
    for name, top in (("beside", "toolbox"), ("third", "deeper")):
        install(site, here / name, name, f"{top}\n")
    write(here / "project", work=CALLED.format("__import__('toolbox').NAME"), train=SCRIPT)
    assert value(here, site, here / "beside", here / "third") == "'part'"
    stored = [path.read_bytes() for path in (here.parent / "store" / "blobs").rglob("*") if path.is_file()]
    assert b"never sent" not in b"".join(stored)


# And nothing more.


def test_what_is_merely_loaded_is_not_sent(here: Path) -> None:
    shared = write(here / "shared", toolbox="NAME = 'toolbox'", debugger="SECRET = 'never sent'\nimport private")
    write(shared, private="SECRET = 'never sent'")
    write(here / "project", work="import toolbox\n" + CALLED.format("toolbox.NAME"), train=SCRIPT)
    start(
        ["-c", "__import__('debugger'); import work; work.train.run_async(4)"],
        here / "project",
        environment(here.parent, PYTHONPATH=str(shared)),
    )
    stored = [path.read_bytes() for path in (here.parent / "store" / "blobs").rglob("*") if path.is_file()]
    assert b"never sent" not in b"".join(stored)
    assert value_elsewhere(here.parent, here) == "'toolbox'"


def test_a_lazy_module_is_not_loaded_by_looking_at_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> object:
            if name in ("__file__", "__name__", "__class__"):
                return ModuleType.__getattribute__(self, name)
            raise AssertionError(f"asked for {name}")

    lazy = Lazy("kt_lazy")
    lazy.__file__ = str(write(tmp_path / "in", kt_lazy="import kt_far") / "kt_lazy.py")
    far = ModuleType("kt_far")
    far.__file__ = str(write(tmp_path / "out", kt_far="") / "kt_far.py")
    for module in (lazy, far):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    found = reached([], lambda path: path.is_relative_to(tmp_path / "in"))
    assert {name: origin.folder for name, origin in found.items() if name.startswith("kt_")} == {
        "kt_lazy": tmp_path / "in",
        "kt_far": tmp_path / "out",
    }


IMPORTS = {
    "import a, b.c as d , e": ["a", "b.c", "e"],
    "from a.b import (\n    c,\n)": ["a.b"],
    "from . import a\nfrom .b import c": [],
    "def f():\n\timport a": ["a"],
    "if x: import a; from b import c": ["a", "b"],
    "importlib.import_module('a.b'), __import__(\"c\")": ["a.b", "c"],
    "important = 1\nfrom_here = 2\nx.import_it()": [],
}


@pytest.mark.parametrize("source", IMPORTS)
def test_imports_are_read_from_the_source(source: str) -> None:
    assert [*imported_names(source)] == IMPORTS[source]


def test_the_code_of_calls_reaches_what_is_loaded_later_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = write(tmp_path / "project", kt_near="def work():\n    import kt_far\n    return kt_far.NAME")
    (project / "pyproject.toml").touch()
    shared = write(tmp_path / "shared", kt_far="NAME = 'far'", kt_alone="")
    monkeypatch.chdir(project)
    for folder in (shared, project):
        monkeypatch.syspath_prepend(folder)
    try:
        tracker = CodeTracker(importlib.import_module("kt_near").work)
        assert ".kinetic_outside" not in tracker.current().sys_path
        importlib.import_module("kt_alone")
        assert ".kinetic_outside" not in tracker.current().sys_path
        importlib.import_module("kt_far")
        assert ".kinetic_outside" in tracker.current().sys_path
    finally:
        for name in ("kt_near", "kt_far", "kt_alone"):
            sys.modules.pop(name, None)
