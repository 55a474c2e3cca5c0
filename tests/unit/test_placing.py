"""A folder that is used again holds what the archive says and nothing more, whatever was done to it meanwhile."""

import compileall
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_ray.bundle import hand_over, place, unpack
from kinetic_ray.bundle.archive import Packer, pack
from kinetic_ray.bundle.reading import read_members
from kinetic_ray.bundle.tree import Entry, scan
from kinetic_ray.errors import DataError
from tests.waiting import wait_until

LIMIT = 10**9


def make(root: Path, **texts: str) -> Path:
    """Files below a folder by name; "__" stands for "/", and all are Python's."""
    for name, text in texts.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def archive_of(root: Path) -> bytes:
    return pack(scan(root, limit=LIMIT))


def state(root: Path) -> dict[str, object]:
    """All that is in a folder."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name, mode = path.relative_to(root).as_posix(), path.lstat().st_mode
        if path.is_symlink():
            found[name] = path.readlink()
        else:
            found[name] = (oct(mode), path.read_bytes() if path.is_file() else None)
    return found


def inodes(root: Path) -> dict[str, tuple[int, int]]:
    """Which files these are: one that is written anew is another one."""
    found = ((path.relative_to(root).as_posix(), path.stat()) for path in root.rglob("*") if path.is_file())
    return {name: (status.st_ino, status.st_ctime_ns) for name, status in found}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "host").mkdir()
    return tmp_path / "host" / "code"


# What a rank may do to its folder. `f` is a file, `d` a folder with another one, of a tree that is used again.


def _hold_time(path: Path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _rename_over(path: Path, text: str) -> None:
    path.with_name("new").write_text(text)
    path.with_name("new").rename(path)


def _replace_by(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


DEEDS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None,
    "an edit": lambda root: (root / "f.py").write_text("edited"),
    "an edit that keeps size and time": lambda root: _hold_time(root / "f.py", "F"),
    "an edit by way of another file": lambda root: (
        (root / "new").write_text("F") and (root / "new").rename(root / "f.py")
    ),
    "a longer file": lambda root: (root / "f.py").write_text("f and more"),
    "no file": lambda root: (root / "f.py").unlink(),
    "another mode": lambda root: (root / "f.py").chmod(0o600),
    "one that runs": lambda root: (root / "f.py").chmod(0o755),
    "a new file": lambda root: (root / "d" / "new.txt").write_text("new"),
    "a new folder": lambda root: (root / "new" / "deep").mkdir(parents=True),
    "no folder": lambda root: shutil.rmtree(root / "d"),
    "another folder in its place": lambda root: (
        shutil.copytree(root / "d", root / "e")
        and (
            shutil.rmtree(root / "d"),
            (root / "e").rename(root / "d"),
        )
    ),
    "a folder of another mode": lambda root: (root / "d").chmod(0o700),
    "a file in a folder's place": lambda root: (shutil.rmtree(root / "d"), (root / "d").write_text("")),
    "a folder in a file's place": lambda root: ((root / "f.py").unlink(), (root / "f.py").mkdir()),
    "a link in a file's place": lambda root: _replace_by(root / "f.py", "d/g.py"),
    "a link in a folder's place": lambda root: ((root / "d").rename(root / "e"), (root / "d").symlink_to("e")),
    "another link": lambda root: _replace_by(root / "l", "d"),
    "a link that leaves": lambda root: (root / "out").symlink_to("/"),
    "a second name": lambda root: os.link(root / "f.py", root / "second.py"),
    "a pipe": lambda root: os.mkfifo(root / "pipe"),
    "nothing at all": lambda root: [
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink() for path in root.iterdir()
    ],
    "no root": shutil.rmtree,
    "no record": lambda root: root.with_name("code.json").unlink(),
    "half a record": lambda root: root.with_name("code.json").write_text('{"version": 1, "files"'),
    "a record of another version": lambda root: root.with_name("code.json").write_text('{"version": 99}'),
    "a record of something else": lambda root: root.with_name("code.json").write_text("[]"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_a_rank_has_done_the_next_one_finds_the_archive(
    deed: str, root: Path, there: Path, tmp_path: Path
) -> None:
    make(root, f="f", d__g="g", d__h__i="i")
    (root / "l").symlink_to("f.py")
    data = archive_of(root)
    place(data, there)
    before = inodes(there)
    DEEDS[deed](there)
    place(data, there)
    unpack(data, tmp_path / "fresh")
    assert state(there) == state(tmp_path / "fresh")
    if deed == "nothing":
        assert inodes(there) == before


NAMES = st.sampled_from(
    ["a.py", "b.py", "d/a.py", "d/e/a.py", "d", "x/y.txt", "é.txt", f"{'long' * 30}/{'n' * 90}.txt"]
)
TREES = st.dictionaries(NAMES, st.sampled_from(["", "1", "2", "x" * 600]), max_size=6)
DONE = st.lists(
    st.tuples(st.sampled_from(["write", "touch", "delete", "link", "chmod", "folder"]), NAMES, st.sampled_from("12")),
    max_size=5,
)


def grow(root: Path, tree: dict[str, str]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in tree.items():
        path = root / name
        if not any(parent.is_file() for parent in path.parents) and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def do(root: Path, deed: str, name: str, text: str) -> None:
    path = root / name
    if deed == "delete" and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif deed == "delete":
        path.unlink(missing_ok=True)
    elif deed == "chmod" and path.exists():
        path.chmod(0o700)
    elif deed == "folder" and not path.exists() and not path.is_symlink() and path.parent.is_dir():
        path.mkdir()
    elif deed == "link" and not path.exists() and not path.is_symlink() and path.parent.is_dir():
        path.symlink_to("a.py")
    elif deed in ("write", "touch") and path.parent.is_dir() and not path.is_dir() and not path.is_symlink():
        _hold_time(path, text) if deed == "touch" and path.exists() else path.write_text(text)


@settings(max_examples=60)
@given(rounds=st.lists(st.tuples(TREES, DONE), min_size=2, max_size=4))
def test_any_project_after_any_other(
    rounds: list[tuple[dict[str, str], list[tuple[str, str, str]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("base")
    there, packer = base / "host" / "code", Packer()
    there.parent.mkdir()
    for number, (tree, deeds) in enumerate(rounds):
        project = base / "project"
        shutil.rmtree(project, ignore_errors=True)
        grow(project, tree)
        entries = scan(project, limit=LIMIT)
        data = packer.pack(entries)
        assert data == pack(entries)
        place(data, there)
        unpack(data, base / f"fresh{number}")
        assert state(there) == state(base / f"fresh{number}")
        for deed in deeds:
            with contextlib.suppress(OSError):  # what can't be done there
                do(there, *deed)


def test_only_what_differs_is_written(root: Path, there: Path) -> None:
    make(root, **{f"p__m{count}": f"x = {count}" for count in range(50)})
    place(archive_of(root), there)
    before = inodes(there)
    (root / "p" / "m7.py").write_text("x = 'seven'")
    (root / "p" / "m8.py").unlink()
    make(root, p__new="")
    place(archive_of(root), there)
    after = inodes(there)
    assert {name for name in before.keys() | after if before.get(name) != after.get(name)} >= {"p/m8.py", "p/new.py"}
    assert (there / "p" / "m7.py").read_text() == "x = 'seven'"
    same = {name for name in before if before[name] == after.get(name)}
    assert same == {f"p/m{count}.py" for count in range(50)} - {"p/m7.py", "p/m8.py"}


def test_a_hundred_edits_within_the_same_second_are_all_seen_by_imports(root: Path, there: Path) -> None:
    """Python takes a compiled file for good while the source has the same second and size."""
    for count in range(100, 120):
        make(root, mod=f"VALUE = {count}")
        place(archive_of(root), there)
        command = [sys.executable, "-c", "import mod; print(mod.VALUE)"]
        done = subprocess.run(command, cwd=there, env={"PYTHONPATH": str(there)}, capture_output=True, check=True)
        assert int(done.stdout) == count
        assert (there / "__pycache__").exists()


def test_compiled_files_stay_for_sources_that_stay(root: Path, there: Path) -> None:
    make(root, same="x = 1", edited="x = 1", gone="x = 1", touched="x = 1")
    place(archive_of(root), there)
    # Until then what was written last may change and look no different.
    marker = there.parent / "marker"
    newest = max(path.stat().st_ctime_ns for path in there.rglob("*"))

    def ticked() -> bool:
        marker.write_text("")
        return marker.stat().st_ctime_ns > newest

    wait_until(ticked, 60, "the clock to tick")
    compileall.compile_dir(there, quiet=1)
    make(root, edited="x = 2")
    (root / "gone.py").unlink()
    make(there, touched="x = 1")
    (there / "__pycache__" / "strange.txt").write_text("")
    place(archive_of(root), there)
    left = {path.name.partition(".")[0] for path in (there / "__pycache__").iterdir()}
    assert left == {"same"}


def test_a_folder_is_handed_over_with_what_is_known_of_it(root: Path, there: Path, tmp_path: Path) -> None:
    place(archive_of(make(root, f="f")), there)
    before = inodes(there)
    (tmp_path / "next").mkdir()
    hand_over(there, tmp_path / "next" / "code")
    assert not there.exists()
    place(archive_of(make(root, g="g")), tmp_path / "next" / "code")
    after = inodes(tmp_path / "next" / "code")
    assert (after["f.py"], after.keys()) == (before["f.py"], {"f.py", "g.py"})


@pytest.mark.parametrize("missing", ["code", "code.json", "both"])
def test_what_is_not_whole_is_not_handed_over_as_known(missing: str, root: Path, there: Path, tmp_path: Path) -> None:
    place(archive_of(make(root, f="f")), there)
    if missing != "code.json":
        shutil.rmtree(there)
    if missing != "code":
        there.with_name("code.json").unlink()
    (tmp_path / "next").mkdir()
    hand_over(there, tmp_path / "next" / "code")
    place(archive_of(make(root, f="new")), tmp_path / "next" / "code")
    assert state(tmp_path / "next" / "code") == state(root)


def test_a_hostile_archive_leaves_the_folder_as_it_is(root: Path, there: Path) -> None:
    place(archive_of(make(root, f="f")), there)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        made.addfile(tarfile.TarInfo("../evil"))
    with pytest.raises(DataError):
        place(buffer.getvalue(), there)
    assert state(there) == state(root)
    assert there.with_name("code.json").exists()


# Packing again.


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read, as the interpreter tells."""
    found: list[str] = []

    def hear(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and isinstance(args[0], str | Path) and watching:
            found.append(Path(args[0]).name)

    watching = [True]
    sys.addaudithook(hear)  # can't be taken back, so it falls silent
    monkeypatch.setattr(sys, "kt_watching", watching, raising=False)
    yield found  # type: ignore[misc]
    watching.clear()


def test_only_what_was_edited_is_read_again(root: Path, reads: list[str]) -> None:
    make(root, a="1", b="1", c="1")
    for path in root.iterdir():
        os.utime(path, ns=(0, 0))
    packer = Packer()

    def settled() -> bool:
        reads.clear()
        packer.pack(scan(root, limit=LIMIT))
        return not {"a.py", "b.py", "c.py"} & {*reads}

    wait_until(settled, 60, "the last changes to be long ago")
    make(root, b="2")
    reads.clear()
    data = packer.pack(scan(root, limit=LIMIT))
    assert {"a.py", "b.py", "c.py"} & {*reads} == {"b.py"}
    assert data == archive_of(root)


def test_a_file_that_can_t_be_read_is_tried_again(root: Path) -> None:
    packer, entry = Packer(), Entry("f.py", root / "f.py", next(iter(scan(make(root, f="f"), limit=LIMIT))).kind, 1)
    (root / "f.py").unlink()
    assert not read_members(packer.pack([entry]))
    make(root, f="f")
    assert [member.name for member in read_members(packer.pack([entry]))] == ["f.py"]


# Reading.


@pytest.mark.parametrize("name", ["plain.py", "x" * 100, "x" * 101, "é.py", f"{'d' * 90}/{'e' * 90}/f.py"])
def test_names_of_every_length_are_read_as_tarfile_reads_them(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("content")
    path.with_name("link").symlink_to(path.name)
    data = archive_of(root)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        theirs = [(info.name, info.isdir(), info.issym(), info.size, info.linkname) for info in archive.getmembers()]
    ours = [
        (each.name, each.kind == "folder", each.kind == "link", each.size, each.target) for each in read_members(data)
    ]
    assert ours == theirs
    assert all(data[each.start : each.start + each.size] == b"content" for each in read_members(data) if each.size)
