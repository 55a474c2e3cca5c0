"""`kinetic jobs logs --follow`: bars while they move, lost jobs, pending jobs, errors on lines of their own."""

import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinetic_ray.backends.base import Liveness, Observation
from kinetic_ray.cli.main import root
from kinetic_ray.core.state import Event, EventKind, JobStatus
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import open_store
from tests.screen import Screen, run_in_terminal
from tests.unit.cli_jobs import BACKEND, LiveBackend, Recorder

DOWN = "tests.unit.cli_jobs:DownBackend"


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("KINETIC_BACKEND", BACKEND)
    return Recorder(open_store(tmp_path / "store"))


def follow_in_terminal(*flags: str, interrupt_at: str = "", columns: int = 100) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "kinetic_ray", "jobs", "logs", "-f", *flags, "latest"]
    code, written = run_in_terminal(command, interrupt_at=interrupt_at, columns=columns)
    screen = Screen(columns)
    screen.feed(written.replace("^C", ""))
    return code, screen.text()


def test_a_bar_is_seen_while_it_moves(recorder: Recorder) -> None:
    """What has no newline yet is on the screen: it is what the interrupt waits for."""
    recorder.running(logs={0: b"\x1b]0;title\x07begun\n 10%|#         |\r 20%|##        |"})
    code, rows = follow_in_terminal(interrupt_at=" 20%|##")
    assert code == 130
    assert rows[:2] == ["begun", " 20%|##        |"]
    assert [row for row in rows if "goes on without you" in row]


@pytest.mark.parametrize("columns", [20, 21, 40])
def test_a_long_bar_takes_one_row_until_it_ends(recorder: Recorder, columns: int) -> None:
    recorder.running(logs={0: ("x" * 19 + "\u6f22" * 30).encode()})
    code, rows = follow_in_terminal(interrupt_at="x" * 19, columns=columns)
    assert code == 130
    assert rows[0].startswith("x" * 19)
    assert "".join(rows).count("x" * 19) == 1


def test_the_bars_of_all_ranks_are_seen_below_their_lines(recorder: Recorder) -> None:
    recorder.running(ranks=3, logs={0: b"zero\n 10%", 1: b"one\n 10%\r 70%", 2: b"two\n"})
    code, rows = follow_in_terminal("--rank", "all", interrupt_at="[1]  70%")
    assert code == 130
    assert sorted(rows[:3]) == ["[0] zero", "[1] one", "[2] two"]
    assert rows[3:5] == ["[0]  10%", "[1]  70%"]
    assert [row for row in rows if "%" in row] == ["[0]  10%", "[1]  70%"]  # each once: as lines, in the end


def test_a_lost_jobs_log_is_shown_and_then_the_loss(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", DOWN)
    text = b"".join(b"line %d\n" % number for number in range(150_000)) + b"half"
    job_id = recorder.running(logs={0: text}).job_id
    done = CliRunner().invoke(root, ["jobs", "logs", "--follow", job_id])
    assert done.exit_code == 1
    assert done.stdout_bytes == text
    assert done.stderr.startswith("\nkinetic: error: ")  # on a line of its own, where both are one terminal
    assert f"{job_id} is lost" in done.stderr


class StartsWhenAsked(LiveBackend):
    """Has nothing at first; when asked a third time, the job runs and prints."""

    asked = 0

    def observe(self, store_url: str, job_id: str) -> Observation:
        self.asked += 1
        journal = JobJournal(open_store(store_url), job_id)
        if self.asked == 3:
            log = journal.claim({"role": "test"})
            log.append(Event(EventKind.ATTEMPT_STARTED, time.time(), {"attempt": 1}))
            journal.store.create(journal.keys.log(1, 1, 0), b"from the first byte\n")
        elif self.asked == 4:
            journal.close(JobStatus.STOPPED, "Cancelled", "cancelled", time.time())
        return Observation(Liveness.WAITING, "" if self.asked == 1 else "1 job before this one")


def test_a_pending_job_is_followed_from_its_first_byte(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", f"{__name__}:{StartsWhenAsked.__name__}")
    done = CliRunner().invoke(root, ["jobs", "logs", "--follow", recorder.pending().job_id])
    assert done.stdout == "from the first byte\n"
    told = done.stderr.splitlines()
    assert told[0].endswith("has no log yet; queue: waiting for a driver")
    assert told[1].endswith("has no log yet; queue: 1 job before this one")


def test_a_stage_that_waits_for_nothing_is_told_without_a_colon(recorder: Recorder) -> None:
    recorder.running(ranks=1)
    code, rows = follow_in_terminal(interrupt_at="has no log yet")
    assert code == 130
    assert rows[0].endswith("has no log yet; run")
