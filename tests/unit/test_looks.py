"""How files look, and whether they still do: whatever happens to them is seen, with the kernel's notes and without."""

import mmap
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_ray.calls.looks import Looks
from kinetic_ray.calls.notices import Notices, open_notices
from tests.waiting import wait_until

Open = Callable[[Iterable[str]], Notices | None]


def none_to_be_had(_folders: Iterable[str]) -> None:
    return None


both_ways = pytest.mark.parametrize("notices", [open_notices, none_to_be_had])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with what a project has."""
    root = tmp_path / "above" / "project"
    (root / "package" / "inner").mkdir(parents=True)
    for name in ("main.py", "package/__init__.py", "package/inner/deep.py", "weights.npy", "notes"):
        (root / name).write_text(f"# {name}, as it was\n")
    (root / "link.py").symlink_to("main.py")
    return root


def paths_of(root: Path) -> list[str]:
    return [str(root), *(str(path) for path in sorted(root.rglob("*")))]


def after_a_tick(root: Path) -> None:
    """Returns once the clock of files has gone on: a change within one tick of it may look no different."""
    marker = root.parent.parent / "marker"
    paths = [root, *root.rglob("*")]
    newest = max(status.st_ctime_ns for status in (path.lstat() for path in paths))

    def ticked() -> bool:
        marker.write_text("")
        return marker.stat().st_ctime_ns > newest

    wait_until(ticked, 60, "the clock to tick")


def looks_at(root: Path, notices: Open = open_notices, *more: str) -> Looks:
    looks = Looks([*paths_of(root), *more], notices)
    after_a_tick(root)
    assert looks.hold() and looks.hold()
    return looks


def same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def through_a_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0:1] = b"!"
        mapped.flush()


def replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def folder_swapped(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("other"))
    folder.rename(folder.with_name("away"))
    folder.with_name("other").rename(folder)


def project_swapped(root: Path) -> None:
    shutil.copytree(root, root.with_name("copy"), symlinks=True)
    root.rename(root.with_name("away"))
    root.with_name("copy").rename(root)


def what_is_above_swapped(root: Path) -> None:
    above = root.parent
    shutil.copytree(above, above.with_name("copied"), symlinks=True)
    above.rename(above.with_name("old"))
    above.with_name("copied").rename(above)


def link_turned(path: Path) -> None:
    path.unlink()
    path.symlink_to("package/__init__.py")


CHANGES: dict[str, Callable[[Path], object]] = {
    "an edit": lambda root: (root / "main.py").write_text("x = 1\n"),
    "an edit below": lambda root: (root / "package/inner/deep.py").write_text("x = 1\n"),
    "an edit that keeps size and time": lambda root: same_size_and_time(root / "main.py"),
    "a time": lambda root: os.utime(root / "main.py", (1, 1)),
    "a mode": lambda root: (root / "main.py").chmod(0o600),
    "a new file": lambda root: (root / "package/new.py").touch(),
    "a new folder": lambda root: (root / "package/inner/new").mkdir(),
    "a file deleted": lambda root: (root / "package/inner/deep.py").unlink(),
    "a file replaced": lambda root: replaced(root / "package/__init__.py"),
    "a file moved away": lambda root: (root / "main.py").rename(root.parent / "main.py"),
    "a folder deleted": lambda root: shutil.rmtree(root / "package"),
    "a folder swapped for its copy": lambda root: folder_swapped(root / "package"),
    "the project swapped for its copy": project_swapped,
    "what is above swapped for its copy": what_is_above_swapped,
    "a link turned": lambda root: link_turned(root / "link.py"),
    "data written": lambda root: (root / "weights.npy").write_bytes(b"0"),
    "data written through a mapping": lambda root: through_a_mapping(root / "weights.npy"),
    "a file without a suffix": lambda root: through_a_mapping(root / "notes"),
    "an edit of it": lambda root: (root / "notes").write_text("other\n"),
}


@both_ways
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change: Callable[[Path], object], notices: Open, tree: Path) -> None:
    looks = looks_at(tree, notices)
    change(tree)
    assert not looks.hold()
    assert not looks.hold()  # and is no news that is gone once it was told


@both_ways
def test_what_happens_before_the_first_question_is_seen(notices: Open, tree: Path) -> None:
    looks = Looks(paths_of(tree), notices)
    (tree / "main.py").write_text("x = 1\n")
    assert not looks.hold()


@both_ways
def test_a_project_that_is_reached_through_a_link_is_followed(notices: Open, tree: Path) -> None:
    other = tree.parent / "other"
    shutil.copytree(tree, other, symlinks=True)
    way = tree.parent / "way"
    way.symlink_to(tree)
    looks = looks_at(way, notices)
    (way / "main.py").write_text("x = 1\n")
    assert not looks.hold()
    looks = looks_at(way, notices)
    way.unlink()
    way.symlink_to(other)
    assert not looks.hold()


@both_ways
def test_a_file_that_was_missing_is_seen(notices: Open, tree: Path) -> None:
    above = tree.parent / ".gitignore"
    looks = looks_at(tree, notices, str(above))
    above.touch()
    assert not looks.hold()


@both_ways
def test_what_changes_nothing_is_no_change(notices: Open, tree: Path) -> None:
    looks = looks_at(tree, notices)
    for path in tree.rglob("*.py"):
        path.read_text()
    (tree.parent / "elsewhere.py").touch()
    assert looks.hold()


def test_after_more_has_happened_than_the_kernel_notes_a_change_is_seen(tree: Path) -> None:
    looks = looks_at(tree)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) if sys.platform == "linux" else 100
    for number in range(most // 2 + 100):
        os.utime(tree / ("main.py" if number % 2 else "package/__init__.py"), (number, number))
    (tree / "package/inner/deep.py").write_text("x = 1\n")
    assert not looks.hold()
    again = looks_at(tree)
    (tree / "main.py").touch()
    assert not again.hold()


@given(st.lists(st.sampled_from(["main.py", "package/__init__.py", "package/inner/deep.py"]), min_size=1, max_size=30))
@settings(max_examples=20, deadline=None)
def test_each_of_many_edits_is_seen(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    root = tmp_path_factory.mktemp("edits")
    for name in ("main.py", "package/__init__.py", "package/inner/deep.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for number, name in enumerate(names):
        looks = looks_at(root)
        (root / name).write_text(f"x = {number}\n")
        assert not looks.hold()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_takes_no_notes_away(tree: Path) -> None:
    looks = looks_at(tree)
    (tree / "main.py").write_text("x = 1\n")
    child = os.fork()
    if child == 0:
        os._exit(0 if not looks.hold() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not looks.hold()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes notes")
def test_notes_are_taken_where_they_are_reliable(tree: Path) -> None:
    notices = open_notices([str(tree)])
    assert notices is not None and notices.are_none()
    notices.close()
    assert open_notices(["/proc/self"]) is None  # as of a shared folder, whose other users are unseen
    assert open_notices([str(tree / "gone")]) is None
    assert open_notices([str(tree / "link.py")]) is None
    assert open_notices([]) is None
    assert open_notices(map(str, range(10_000))) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes notes")
def test_a_folder_that_is_above_another_by_way_of_a_link_is_still_watched(tree: Path) -> None:
    way = tree.parent / "way"
    way.symlink_to(tree)
    notices = open_notices([str(tree), str(way / "package")])
    assert notices is not None and notices.are_none()
    (tree / "main.py").write_text("x = 1\n")
    assert not notices.are_none()
    notices.close()


def test_descriptors_are_given_back(tree: Path) -> None:
    mine = Path("/proc/self/fd")
    if not mine.exists():
        pytest.skip("no /proc")
    before = len([*mine.iterdir()])
    many = [looks_at(tree) for _ in range(5)]
    assert len([*mine.iterdir()]) > before
    many.clear()
    assert len([*mine.iterdir()]) == before
