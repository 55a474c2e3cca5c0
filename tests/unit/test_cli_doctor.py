"""What doctor finds, and how it grades what it measures."""

import os
import sys
from pathlib import Path

import pytest

from kinetic_ray.cli import findings
from kinetic_ray.cli.findings import GIB, Finding


@pytest.mark.parametrize(
    ("version", "wanted", "level"),
    [
        ("2.60.0", ">=2.60,<2.61", "ok"),
        ("2.60.1rc1", ">=2.60,<2.61", "ok"),
        ("2.61.0", ">=2.60,<2.61", "fail"),
        ("2.9.0", ">=2.60,<2.61", "fail"),
        (None, ">=2.60,<2.61", "fail"),
        ("1.0", "", "ok"),
    ],
)
def test_a_version_is_graded_by_the_range_that_is_wanted(version: str | None, wanted: str, level: str) -> None:
    found = findings.judge_version("ray", version, wanted)
    assert found.level == level
    assert (level == "ok") == (found.fix == "")
    assert level == "ok" or f"pip install 'ray{wanted}'" in found.fix


def test_the_range_of_ray_comes_from_our_own_metadata() -> None:
    assert findings.wanted_range("ray").count(",") == 1
    assert findings.wanted_range("no-such-package") == ""


def test_an_installation_that_cannot_be_imported_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('libfoo.so: wrong ELF class')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = findings.check_jax()
    assert (found.level, "wrong ELF class" in found.message) == ("fail", True)
    assert "reinstall" in found.fix


@pytest.mark.parametrize(("version", "level"), [((3, 10), "fail"), ((3, 11), "ok"), ((3, 13), "ok"), ((3, 15), "warn")])
def test_python_is_graded(version: tuple[int, int], level: str) -> None:
    assert findings.judge_python(version, "here").level == level


@pytest.mark.parametrize(("free", "level"), [(3 * GIB, "ok"), (GIB, "warn"), (0, "fail")])
def test_space_is_graded_and_trouble_names_the_way_out(free: int, level: str) -> None:
    found = findings.judge_space("disk", free, (2 * GIB, GIB // 2), "free", "make room")
    assert (found.level, found.fix) == (level, "" if level == "ok" else "make room")


@pytest.mark.parametrize(
    ("soft", "hard", "level"),
    [(1024, 512, "fail"), (1024, 65536, "warn"), (65536, 65536, "ok"), (sys.maxsize, sys.maxsize, "ok")],
)
def test_open_files_are_graded(soft: int, hard: int, level: str) -> None:
    assert findings.judge_files(soft, hard).level == level


def test_a_folder_that_can_be_made_is_fine_and_not_made(tmp_path: Path) -> None:
    found = findings.judge_folder("home", tmp_path / "a" / "b", "set KINETIC_HOME")
    assert found == Finding("home", "ok", f"{tmp_path}/a/b (will be made)")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = findings.judge_folder("home", tmp_path / "file" / "home", "set KINETIC_HOME")
    assert (found.level, found.fix) == ("fail", "set KINETIC_HOME")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert findings.judge_folder("home", tmp_path, "set KINETIC_HOME").level == "fail"


def test_a_store_of_a_newer_version_fails_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path))
    (tmp_path / "format.json").write_text('{"format": "kinetic-store", "version": 99}')
    found = findings.check_store()
    assert (found.level, "version 99" in found.message) == ("fail", True)


def test_a_folder_of_other_things_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path))
    (tmp_path / "thesis.tex").touch()
    assert findings.check_store().level == "fail"


def test_foreign_ray_variables_are_named() -> None:
    found = findings.check_ray_variables({"RAY_ADDRESS": "10.0.0.1:6379", "PATH": "/bin"})
    assert (found.level, "RAY_ADDRESS" in found.message, "10.0.0.1" in found.message) == ("warn", True, False)
    assert findings.check_ray_variables({"PATH": "/bin"}).level == "ok"


def test_a_container_limit_counts(tmp_path: Path) -> None:
    assert findings.cgroup_free(tmp_path) == sys.maxsize
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert findings.cgroup_free(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert findings.cgroup_free(tmp_path) == sys.maxsize


def test_every_check_answers_on_this_machine(kinetic_home: Path) -> None:
    found = [check() for check in findings.CHECKS]
    assert {finding.level for finding in found} <= {"ok", "warn", "fail"}
    assert all(finding.fix for finding in found if finding.level != "ok")
    assert len({finding.check for finding in found}) == len(found)
