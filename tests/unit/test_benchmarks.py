"""The benchmarks' harness: fair turns, honest figures."""

import time
import uuid
from pathlib import Path

import pytest

from benchmarks.edit import make_project
from benchmarks.harness import Aim, Contender, Limit, interleave, machine, table
from benchmarks.listing import make_jobs
from benchmarks.programs import Answering, peak_memory, run_python
from kinetic_ray.core.state import JobStatus
from kinetic_ray.journal import JobJournal, list_entries
from kinetic_ray.store import open_store


def test_rounds_are_interleaved_and_their_order_turns() -> None:
    order: list[str] = []

    def contender(name: str) -> Contender:
        def sample() -> float:
            order.append(name)
            return float(len(order))

        return Contender(name, sample)

    samples = interleave([contender("a"), contender("b")], rounds=2, warm_up=1)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert samples == {"a": [3.0, 6.0], "b": [4.0, 5.0]}


def test_table_prints_minimum_median_count_and_what_became_of_the_aim() -> None:
    samples = {"ours": [0.3, 0.1, 0.2], "theirs": [2.0]}
    text = table("a race", samples, [Aim("ours", "theirs", 0.12), Aim("theirs", "ours", 5), Aim("ours", "absent", 1)])
    assert [line.split() for line in text.splitlines()[:3]] == [
        ["a", "race", "min", "median", "n"],
        ["ours", "100.0", "ms", "200.0", "ms", "3"],
        ["theirs", "2.00", "s", "2.00", "s", "1"],
    ]
    assert text.splitlines()[3:] == [
        "  ours / theirs: 0.10x of the medians (aim <= 0.12x: reached)",
        "  theirs / ours: 10.00x of the medians (aim <= 5x: missed)",
    ]


def test_a_contender_without_samples_is_shown_as_such() -> None:
    assert table("t", {"skipped": []}).splitlines()[1].split() == ["skipped", "-", "-", "0"]


def test_machine_line_names_processor_cores_and_versions() -> None:
    line = machine()
    assert line.startswith("machine: ")
    assert all(word in line for word in ("cores", "GiB", "Python 3.", "ray "))


def test_a_limit_is_told_by_the_median_of_those_that_have_samples() -> None:
    text = table(
        "t", {"a": [0.1, 0.2, 9.0], "b": []}, [Limit("a", 0.25), Limit("a", 0.15), Limit("b", 1), Limit("c", 1)]
    )
    assert text.splitlines()[3:] == [
        "  a: 200.0 ms (aim <= 250.0 ms: reached)",
        "  a: 200.0 ms (aim <= 150.0 ms: missed)",
    ]


def test_a_project_has_as_many_files_as_are_asked_for_and_its_scripts_find_the_helper(tmp_path: Path) -> None:
    size = make_project(tmp_path, 120)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert abs(len(files) - 120) <= 1  # the last part may begin
    assert size == sum(path.stat().st_size for path in files)
    assert run_python("plain_script.py", cwd=tmp_path, PYTHONPATH="") == "0\n"


def test_the_records_that_are_listed_are_those_of_real_jobs() -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    begun = time.time()
    make_jobs(store, 120)
    entries = list_entries(store)
    assert len(entries) == 120
    assert {entry.state for entry in entries} == {str(status) for status in JobStatus} - {"NOT_FOUND"}
    for entry in entries:
        journal = JobJournal(store, entry.job_id)
        assert str(journal.state().status) == entry.state
        assert journal.spec().created_at < begun


def test_a_program_answers_line_by_line_and_its_death_is_told_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text("import sys\nfor x in sys.stdin: print(int(x) + 1, flush=True)\n")
    with Answering("echo.py", cwd=tmp_path) as program:
        assert [program.ask("1"), program.ask("2")] == ["2", "3"]
        with pytest.raises(RuntimeError, match="ValueError"):
            program.ask("nonsense")


def test_peak_memory_is_of_a_process_that_is_there() -> None:
    assert peak_memory() > 1 << 20
    with pytest.raises(OSError, match="No such file"):
        peak_memory(2**22 + 1)  # above any process id
