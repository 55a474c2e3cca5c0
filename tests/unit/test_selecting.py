"""A project is gone through again only where more than the content of files may have changed, and then it is seen."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_ray.bundle import Project, Selection
from kinetic_ray.calls.files import sent_now
from kinetic_ray.calls.selecting import Selecting
from kinetic_ray.errors import PayloadError
from tests.unit.test_code_tracking import called
from tests.waiting import wait_until

#: What goes through folders.
GOING = {"scandir", "iterdir", "listdir"}
READING = {"open", "read", "read_bytes", *GOING}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    for name in ("pyproject.toml", "a.py", "b.dat", "sub/c.py"):
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "sub" / "link").symlink_to("c.py")
    for rules, link in (
        (folder / "rules.txt", folder / "sub" / ".gitignore"),
        (tmp_path / "rules", folder / ".kineticignore"),
    ):
        rules.write_text("*.tmp\n")
        link.symlink_to(rules)
    return folder


def facts(selection: Selection) -> set[tuple[object, ...]]:
    return {(each.name, each.kind, each.size, each.executable, each.target) for each in selection.entries}


class Selected:
    """A selecting that has gone through the project long enough ago."""

    def __init__(self, root: Path) -> None:
        self.project = Project(root, root)
        self.selecting = Selecting(self.project)
        wait_until(lambda: not self.goes_through(), 60, "the last changes to be long ago")

    def now(self) -> Selection:
        return self.selecting.select(self.project.needs(), tuple(sys.path))[0]

    def goes_through(self) -> bool:
        return bool(GOING & {*called(self.now)})


# What is done, and whether the folders have to be gone through for it.

CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "nothing": (lambda root: None, False),
    "an edit": (lambda root: (root / "a.py").write_text("edited, and longer"), False),
    "an edit in a folder": (lambda root: (root / "sub" / "c.py").write_text("edited"), False),
    "a file that runs": (lambda root: (root / "a.py").chmod(0o755), False),
    "an edit of what a link leads to": (lambda root: (root / "sub" / "link").write_text("edited"), False),
    "a new file": (lambda root: (root / "new.py").write_text("new"), True),
    "a new file in a folder": (lambda root: (root / "sub" / "new.py").write_text("new"), True),
    "a file that git ignores": (lambda root: (root / "new.log").write_text("new"), True),
    "a file less": (lambda root: (root / "a.py").unlink(), True),
    "an edit by way of another file": (
        lambda root: ((root / "n").write_text("edited"), (root / "n").rename(root / "a.py")),
        True,
    ),
    "a folder in a file's place": (lambda root: ((root / "a.py").unlink(), (root / "a.py").mkdir()), True),
    "another ignore file": (lambda root: (root / ".gitignore").write_text("*.dat\n"), True),
    "a new ignore file": (lambda root: (root / "sub" / ".kineticignore").write_text("c.py\n"), True),
    "no ignore file": (lambda root: (root / ".gitignore").unlink(), True),
    "an edit of what an ignore file leads to": (lambda root: (root / "rules.txt").write_text("c.py\n"), True),
    "an edit of what one leads to elsewhere": (lambda root: (root.parent / "rules").write_text("*.dat\n"), True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_and_costs_what_it_must(root: Path, change: str) -> None:
    selected = Selected(root)
    do, goes_through = CHANGES[change]
    do(root)
    names = called(selected.now)
    assert bool(GOING & {*names}) == goes_through
    assert facts(selected.now()) == facts(selected.project.select())


def test_a_project_that_grows_too_large_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BUNDLE_LIMIT_MB", "1")
    selected = Selected(root)
    (root / "a.py").write_bytes(bytes(2_000_000))
    with pytest.raises(PayloadError, match=r"a\.py"):
        selected.now()


def test_another_limit_is_another_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a.py").write_bytes(bytes(2_000_000))
    selected = Selected(root)
    monkeypatch.setenv("KINETIC_BUNDLE_LIMIT_MB", "1")
    with pytest.raises(PayloadError):
        selected.now()


def test_another_path_is_another_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selected = Selected(root)
    monkeypatch.setattr(sys, "path", [*sys.path, str(root / "sub")])
    assert "sub" in selected.now().sys_path


def test_whoever_keeps_nothing_between_calls_reads_nothing_again(root: Path) -> None:
    project = Project(root, root)
    before = sent_now(project, [])

    def reads() -> bool:
        return bool(READING & {*called(lambda: sent_now(Project(root, root), []))})

    wait_until(lambda: not reads(), 60, "the last changes to be long ago")
    assert sent_now(project, []).digest == before.digest
    (root / "a.py").write_text("edited")
    assert sent_now(project, []).digest != before.digest
