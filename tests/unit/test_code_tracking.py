"""A function's code as it is now: whatever changes is seen at the next call, and what doesn't costs nothing."""

import importlib
import os
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_ray.bundle import find_project, unpack
from kinetic_ray.calls.changes import Marks
from kinetic_ray.calls.code import Code, CodeTracker
from kinetic_ray.calls.notices import open_notices
from kinetic_ray.runner.calls import packing
from tests.waiting import wait_until

MAIN = "import kt_helper\n\ndef work():\n    return kt_helper.value()\n"
HELPER = "def value():\n    return {}\n"
#: What must not be called while nothing has changed: all that reads files or pickles.
COSTLY = {"open", "read", "read_bytes", "scandir", "iterdir", "listdir", "dump", "dumps", "pack", "openssl_sha256"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of two modules, in which this process works."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").touch()
    (root / "kt_main.py").write_text(MAIN)
    (root / "kt_helper.py").write_text(HELPER.format(100))
    monkeypatch.syspath_prepend(root)
    monkeypatch.chdir(root)
    yield root
    for name in [name for name in sys.modules if name.startswith("kt_")]:
        del sys.modules[name]


def import_main() -> ModuleType:
    importlib.invalidate_caches()
    return importlib.import_module("kt_main")


def files_in(code: Code, folder: Path) -> dict[str, str]:
    """What a host finds."""
    assert code.bundle is not None
    shutil.rmtree(folder, ignore_errors=True)
    unpack(code.bundle.data, folder)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def called(function: Callable[[], Any]) -> list[str]:
    """Names of all functions that a call runs, Python's and C's."""
    names: list[str] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call":
            names.append(arg.__name__)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return names


def settled(tracker: CodeTracker) -> Code:
    """The code, once the files' last changes are long enough ago to be trusted."""
    wait_until(lambda: not COSTLY & {*called(tracker.current)}, 10, "a look that reads nothing")
    return tracker.current()


# Files.


@pytest.mark.parametrize("reload", [False, True])
def test_a_helper_may_be_edited_a_hundred_times(project: Path, tmp_path: Path, *, reload: bool) -> None:
    tracker = CodeTracker(import_main().work)
    digests = set()
    for count in range(100, 200):
        (project / "kt_helper.py").write_text(HELPER.format(count))
        if reload:
            importlib.reload(sys.modules["kt_helper"])
        code = tracker.current()
        assert files_in(code, tmp_path / "host")["kt_helper.py"] == HELPER.format(count)
        digests.add(code.bundle_digest)
    assert len(digests) == 100


def test_an_edit_that_keeps_size_and_time_is_seen(project: Path, tmp_path: Path) -> None:
    helper = project / "kt_helper.py"
    tracker = CodeTracker(import_main().work)
    settled(tracker)
    before = helper.stat()
    helper.write_text(HELPER.format(101))
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (helper.stat().st_size, helper.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert files_in(tracker.current(), tmp_path / "host")["kt_helper.py"] == HELPER.format(101)


def test_new_and_deleted_files_are_seen(project: Path, tmp_path: Path) -> None:
    tracker = CodeTracker(import_main().work)
    settled(tracker)
    (project / "sub").mkdir()
    (project / "sub" / "data.txt").write_text("1")
    assert files_in(tracker.current(), tmp_path / "host")["sub/data.txt"] == "1"
    settled(tracker)
    (project / "sub" / "data.txt").unlink()
    assert "sub/data.txt" not in files_in(tracker.current(), tmp_path / "host")


def test_a_file_or_folder_that_takes_the_place_of_another_is_seen(project: Path, tmp_path: Path) -> None:
    tracker = CodeTracker(import_main().work)
    for number, name in enumerate(["sub/data.txt", "sub", "."]):
        (project / "sub").mkdir(exist_ok=True)
        (project / "sub" / "data.txt").write_text("old")
        settled(tracker)
        place, other = project / name, tmp_path / f"other{number}"
        shutil.copytree(place, other) if place.is_dir() else shutil.copy2(place, other)
        inside = other / Path("sub/data.txt").relative_to(name) if place.is_dir() else other
        inside.write_text(f"new{number}")
        place.resolve().rename(tmp_path / f"away{number}")
        other.rename(project / name)
        assert files_in(tracker.current(), tmp_path / "host")["sub/data.txt"] == f"new{number}"


def test_looking_at_files_keeps_no_descriptors(project: Path) -> None:
    def kept() -> int:
        return len([*Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd").iterdir()])

    before = kept()
    tracker = CodeTracker(import_main().work)
    for count in range(5):
        (project / "kt_helper.py").write_text(HELPER.format(count))
        settled(tracker)
    assert kept() < before + 2 * 4
    del tracker
    assert kept() == before


def test_an_ignore_file_counts_also_above_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    root = tmp_path / "inner"
    root.mkdir()
    for name in ("pyproject.toml", "notes.txt", "kept.txt"):
        (root / name).touch()
    monkeypatch.chdir(root)
    tracker = CodeTracker(len)
    monkeypatch.setenv("KINETIC_PACKAGE_ROOT", str(root))
    monkeypatch.setitem(sys.modules, "__main__", _main_in(root))
    assert "notes.txt" in files_in(settled(tracker), tmp_path / "host")
    (tmp_path / ".gitignore").write_text("notes.txt\n")
    assert "notes.txt" not in files_in(tracker.current(), tmp_path / "host")


def _main_in(root: Path) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = str(root / "script.py")
    (root / "script.py").touch()
    return main


def test_a_module_that_is_loaded_later_is_sent_although_git_ignores_it(project: Path, tmp_path: Path) -> None:
    (project / ".gitignore").write_text("kt_late.py\n")
    (project / "kt_late.py").write_text("x = 1\n")
    tracker = CodeTracker(import_main().work)
    assert "kt_late.py" not in files_in(settled(tracker), tmp_path / "host")
    importlib.import_module("kt_late")
    assert "kt_late.py" in files_in(tracker.current(), tmp_path / "host")
    settled(tracker)
    (project / "kt_late.py").write_text("x = 2\n")
    assert files_in(tracker.current(), tmp_path / "host")["kt_late.py"] == "x = 2\n"


def test_a_package_outside_of_the_project_is_followed_as_well(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "elsewhere" / "kt_far"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(package.parent)
    (project / "kt_main.py").write_text("import kt_far\n\ndef work():\n    return kt_far.x\n")
    names = {"__name__": "__main__"}
    exec("import kt_far\ndef work():\n    return kt_far.x\n", names)
    monkeypatch.setitem(sys.modules, "__main__", _main_in(project))
    tracker = CodeTracker(names["work"])
    settled(tracker)
    (package / "more.py").write_text("y = 1\n")
    assert files_in(tracker.current(), tmp_path / "host")[".kinetic_outside/kt_far/more.py"] == "y = 1\n"


def test_functions_of_one_project_share_its_archive(project: Path) -> None:
    trackers = [CodeTracker(import_main().work), CodeTracker(sys.modules["kt_helper"].value)]
    one, other = (settled(tracker) for tracker in trackers)
    assert one.bundle is other.bundle


NAMES = st.sampled_from(["a.py", "b.txt", "d/c.py", "d/e/f.py", ".gitignore", ".kineticignore", "x.env"])
EDITS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.sampled_from(["1", "2", "*.txt\n", "d\n", "c.py\n"])),
    st.tuples(st.sampled_from(["delete", "run", "link", "folder"]), NAMES, st.just("")),
    st.tuples(st.just("rename"), NAMES, NAMES),
)


def edit(root: Path, kind: str, name: str, other: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "write" and not path.is_dir():
        path.write_text(other)
    elif kind == "delete" and path.is_file():
        path.unlink()
    elif kind == "run" and path.is_file():
        path.chmod(path.stat().st_mode ^ 0o100)
    elif kind == "link" and not path.exists():
        path.unlink(missing_ok=True)
        path.symlink_to(root / "pyproject.toml")
    elif kind == "folder" and not path.exists() and not path.is_symlink():
        path.mkdir()
    elif kind == "rename" and path.is_file() and not (root / other).is_dir():
        (root / other).parent.mkdir(parents=True, exist_ok=True)
        path.rename(root / other)


@settings(max_examples=40)
@given(edits=st.lists(EDITS, max_size=12))
def test_whatever_is_edited_the_archive_is_what_a_fresh_look_gives(
    edits: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setitem(sys.modules, "__main__", _main_in(root))
        tracker = CodeTracker(len)
        for kind, name, other in edits:
            edit(root, kind, name, other)
            fresh, tracked = find_project(len).build(), tracker.current().bundle
            assert fresh is not None and tracked is not None and tracked.data == fresh.data


# The function and what it refers to.

CHANGES = {
    "itself": ("def work(): return 1", "work.__code__ = (lambda: 2).__code__"),
    "a default": ("def work(x=1): return x", "work.__defaults__ = (2,)"),
    "a keyword's default": ("def work(*, x=1): return x", "work.__kwdefaults__['x'] = 2"),
    "an attribute": ("def work(): return work.x\nwork.x = 1", "work.x = 2"),
    "a function redefined": ("def help(): return 1\ndef work(): return help()", "def help(): return 2"),
    "a function two steps away": (
        "def far(): return 1\ndef near(): return far()\ndef work(): return near()",
        "def far(): return 2",
    ),
    "a global": ("K = 1\ndef work(): return K", "K = 2"),
    "a global of a nested function": ("K = 1\ndef work(): return (lambda: K)()", "K = 2"),
    "a name that comes": ("def work():\n    try: return K\n    except NameError: return 1", "K = 2"),
    "a name that goes": ("K = 1\ndef work():\n    try: return K\n    except NameError: return 2", "del K"),
    "a list": ("K = [1]\ndef work(): return K[0]", "K[0] = 2"),
    "a dict": ("K = {'x': 1}\ndef work(): return K['x']", "K['x'] = 2"),
    "a list in a tuple": ("K = ([1],)\ndef work(): return K[0][0]", "K[0][0] = 2"),
    "a bytearray": ("K = bytearray([1])\ndef work(): return K[0]", "K[0] = 2"),
    "an array": ("import numpy\nK = numpy.ones(99999)\ndef work(): return int(K[-1])", "K[-1] = 2"),
    "a class": ("class C:\n    x = 1\ndef work(): return C.x", "C.x = 2"),
    "a class redefined": ("class C:\n    x = 1\ndef work(): return C.x", "class C:\n    x = 2"),
    "an instance": ("class C: pass\nK = C()\nK.x = 1\ndef work(): return K.x", "K.x = 2"),
    "a partial's keyword": (
        "from functools import partial\ndef f(x): return x\nK = partial(f, x=1)\ndef work(): return K()",
        "K.keywords['x'] = 2",
    ),
    "a closure": (
        (
            "def make():\n    x = 1\n    def work(): return x\n    def change():\n        nonlocal x\n        x = 2\n"
            "    return work, change\nwork, change = make()"
        ),
        "change()",
    ),
    "a closure's list": (
        "def make():\n    x = [1]\n    def work(): return x[0]\n    return work, x\nwork, x = make()",
        "x[0] = 2",
    ),
    "a wrapped function": (
        "import functools\ndef plain(): return 1\n@functools.wraps(plain)\ndef work(): return work.__wrapped__()",
        "def other(): return 2\nwork.__wrapped__ = other",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_what_a_notebook_s_function_refers_to_is_seen(what: str, project: Path) -> None:
    source, change = CHANGES[what]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(source, names)
    tracker = CodeTracker(names["work"])
    first = tracker.current()
    assert tracker.current() is first
    exec(change, names)
    second = tracker.current()
    assert tracker.current() is second
    assert second.digest != first.digest and second.bundle is first.bundle
    assert packing.unpack(second.function)() == 2


def test_equal_values_are_no_change(project: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("K = 'ab' * 99\ndef work(): return K", names)
    tracker = CodeTracker(names["work"])
    first = tracker.current()
    exec("K = 'ab' * 99", names)
    assert tracker.current() is first


SOLID = {
    "a constant": "K = (1, 'a', b'b', None, 2.0, frozenset({3}))",
    "a module": "import json.decoder as K",
    "a package's function": "from json import dumps as K",
    "a package's class": "from pathlib import Path as K",
    "a path": "from pathlib import Path\nK = Path('x')",
    "an enum's member": "from signal import SIGTERM as K",
    "a logger": "import logging\nK = logging.getLogger('x')",
    "a partial": "from functools import partial\nK = partial(max, 1, default=2)",
    "a function that calls itself": "def K(): return K()",
    "annotations": "def K(x: list[int], y: 'int | None' = None, *z: int | str) -> dict[str, tuple[int, ...]]: return x",
}


@pytest.mark.parametrize("what", SOLID)
def test_what_can_t_change_is_not_pickled_again(what: str, project: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(f"{SOLID[what]}\ndef work(): return K", names)
    tracker = CodeTracker(names["work"])
    settled(tracker)
    assert not COSTLY & {*called(tracker.current)}


def test_a_call_without_changes_reads_no_file_and_looks_at_few(project: Path) -> None:
    for count in range(20):
        (project / f"file{count}.dat").write_text(f"x = {count}\n")  # may be written through a mapping, unseen
        (project / f"file{count}.py").write_text(f"x = {count}\n")
    tracker = CodeTracker(import_main().work)
    code = settled(tracker)
    names = called(tracker.current)
    assert not COSTLY & {*names}
    others = 0 if open_notices([str(project)]) else 3 + 20 + 1  # the text, the folder
    assert names.count("lstat") + names.count("fstat") == 20 + others
    assert tracker.current() is code


def test_a_function_replaced_by_its_decorator_is_judged_by_name(project: Path) -> None:
    (project / "kt_main.py").write_text(
        "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def g(): return f()\n    return g\n"
        "@deco\ndef work(): return 1\n"
    )
    marks = Marks(import_main().work.__wrapped__, lambda name: False)
    assert marks.is_solid and marks.hold()
    sys.modules["kt_main"].work = None  # type: ignore[attr-defined]
    assert not marks.hold()


def test_a_large_closure_is_pickled_and_hashed_without_a_copy(project: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "big": np.ones(12_500_000)}
    exec("def work(): return big.sum()", names)
    tracker = CodeTracker(names["work"])
    tracker.current()
    names["big"][-1] = 2
    tracemalloc.start()
    try:
        begun = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        code = tracker.current()
        peak = tracemalloc.get_traced_memory()[1] - begun
    finally:
        tracemalloc.stop()
    assert code.function.nbytes > 100_000_000
    assert peak < 10_000_000


def test_which_ref_a_function_captures_is_part_of_its_digest(project: Path) -> None:
    ray = pytest.importorskip("ray")
    refs = [ray.ObjectRef(bytes([count]) * 28, skip_adding_local_ref=True) for count in range(2)]
    names: dict[str, Any] = {"__name__": "__main__", "ref": refs[0]}
    exec("def work(): return ref", names)
    tracker = CodeTracker(names["work"])
    first = tracker.current()
    names["ref"] = refs[1]
    assert tracker.current().digest != first.digest


def test_another_working_folder_is_another_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = CodeTracker(import_main().work)
    assert tracker.current().cwd == "."
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    assert tracker.current().cwd == "sub"


def test_another_search_path_is_another_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = CodeTracker(import_main().work)
    (project / "lib").mkdir()
    before = settled(tracker)
    monkeypatch.syspath_prepend(project / "lib")
    assert tracker.current().sys_path == ("lib", *before.sys_path)
