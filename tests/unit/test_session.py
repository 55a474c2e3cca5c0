"""context() and report(), in a job and outside of one."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray.errors import UsageError
from kinetic_ray.runner import session
from kinetic_ray.runner.session import QUEUE_LENGTH, Reporter, context, report


def test_outside_of_a_job_one_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = context()
    assert (here.job_id, here.rank, here.world_size, here.num_slices, here.attempt) == ("", 0, 1, 1, 0)
    assert here.output_dir == tmp_path / "kinetic_output"
    assert here.output_dir.is_dir()
    monkeypatch.setenv("KINETIC_OUTPUT_DIR", str(tmp_path / "elsewhere"))
    assert context().output_dir == tmp_path / "elsewhere"
    report(1, total=2, loss=0.5)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"step": "one"}, "step"),
        ({"step": 1.5}, "step"),
        ({"step": -1}, "step"),
        ({"step": 2**63}, "step"),
        ({"step": 1, "total": 10**5000}, "total"),
        ({"step": 1, "total": "ten"}, "total"),
        ({"step": 1, "loss": "low"}, "loss"),
        ({"step": 1, "loss": None}, "loss"),
        ({"step": 1, "checkpoint": "folder"}, "checkpoint"),
    ],
)
def test_what_can_not_be_told_is_refused_by_name(arguments: dict[str, Any], names: str) -> None:
    with pytest.raises(UsageError, match=rf"report\({names}=\)"):
        report(**arguments)


class Slow:
    """A value that a device is still computing."""

    def __init__(self) -> None:
        self.ready = threading.Event()

    def __float__(self) -> float:
        assert self.ready.wait(30)
        return 2.0


class Broken:
    def __float__(self) -> float:
        raise ValueError("two numbers, not one")


def _message(step: int, **metrics: Any) -> dict[str, Any]:
    return {"t": "report", "step": step, "metrics": metrics}


def test_a_report_does_not_wait_for_its_metrics() -> None:
    sent: list[dict[str, Any]] = []
    reporter = Reporter(sent.append)
    slow = Slow()
    reporter.put(_message(1, loss=slow))
    reporter.put(_message(2, loss=1))
    assert sent == []
    assert not reporter.drain(0.0)
    slow.ready.set()
    assert reporter.drain(30)
    assert [(m["step"], m["metrics"]) for m in sent] == [(1, {"loss": 2.0}), (2, {"loss": 1.0})]


def test_a_metric_that_turns_out_to_be_none_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[dict[str, Any]] = []
    reporter = Reporter(sent.append)
    reporter.put(_message(1, bad=Broken(), good=1))
    assert reporter.drain(30)
    assert sent[0]["metrics"] == {"good": 1.0}
    assert "metric 'bad' was dropped" in capsys.readouterr().err


def test_the_oldest_waiting_reports_make_room() -> None:
    sent: list[dict[str, Any]] = []
    reporter = Reporter(sent.append)
    slow = Slow()
    reporter.put(_message(0, loss=slow))
    for step in range(1, QUEUE_LENGTH + 11):
        reporter.put(_message(step))
    slow.ready.set()
    assert reporter.drain(30)
    assert sent[-1]["step"] == QUEUE_LENGTH + 10
    assert len(sent) in (QUEUE_LENGTH, QUEUE_LENGTH + 1)  # the first may have been dropped or be on its way


def test_a_lost_agent_ends_reporting_quietly() -> None:
    def lose(_message: dict[str, Any]) -> None:
        raise BrokenPipeError

    reporter = Reporter(lose)
    reporter.put(_message(1))
    assert reporter.drain(30)


def test_a_forked_process_may_not_report() -> None:
    reporter = Reporter(lambda _message: None)
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            reporter.put(_message(1))
        except UsageError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    assert b"call it in the rank's own" in os.read(reading, 4096)
    os.close(reading)


def test_nothing_is_reported_before_a_job_starts() -> None:
    assert session.CURRENT.reporter is None
