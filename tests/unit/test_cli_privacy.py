"""What doctor says of values that are kept: secrets that others could read, variables of jobs that nobody runs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kinetic_ray.cli.main import root
from kinetic_ray.cli.privacy import check_secrets, check_values, judge_values, judge_vault
from kinetic_ray.core.state import JobStatus
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import open_store
from kinetic_ray.vault import Vault
from tests.unit.cli_jobs import BACKEND, Recorder


def _with_values(recorder: Recorder, number: int) -> JobJournal:
    journal = recorder.pending(number, env_names=("A",))
    journal.store.create(journal.keys.env("0f"), b"values")
    return journal


def test_secrets_are_counted_and_open_ones_told(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "secrets")
    assert judge_vault(vault).message == "none stored"
    vault.put("hf", {"HF_TOKEN": "CANARY"})
    assert judge_vault(vault).message == f"1 in {vault.folder}"
    (vault.folder / "hf.json").chmod(0o604)
    found = judge_vault(vault)
    assert (found.level, "chmod go=" in found.message, "CANARY" in found.message) == ("warn", True, False)


def test_lost_jobs_with_values_are_named(tmp_path: Path) -> None:
    recorder = Recorder(open_store(str(tmp_path / "store")))
    assert judge_values(recorder.store, lambda _: False).level == "ok"
    recorder.pending(1)
    driven, *lost = [_with_values(recorder, number) for number in range(2, 7)]
    ended = _with_values(recorder, 7)
    recorder.ended(ended, JobStatus.STOPPED)
    found = judge_values(recorder.store, lambda job_id: job_id == driven.job_id)
    assert found.level == "warn"
    names = ", ".join(journal.job_id for journal in lost[:3])
    assert found.message == f"nobody runs {names} and 1 more, and values of variables are kept for them"
    assert "kinetic jobs cancel JOB" in found.fix
    for journal in lost:
        recorder.ended(journal, JobStatus.STOPPED)
    assert judge_values(recorder.store, lambda job_id: job_id == driven.job_id).level == "ok"


@pytest.mark.parametrize(("backend", "level"), [(BACKEND, "ok"), (BACKEND.replace("Live", "Down"), "warn")])
def test_the_backend_says_who_is_driven(
    kinetic_home: Path, monkeypatch: pytest.MonkeyPatch, backend: str, level: str
) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", backend)
    assert check_values().level == "ok"  # no store yet, and none is made
    assert not (kinetic_home / "store").exists()
    _with_values(Recorder(open_store(str(kinetic_home / "store"))), 1)
    assert (check_values().level, check_secrets().level) == (level, "ok")
    shown = CliRunner().invoke(root, ["doctor"]).output
    assert ("kinetic jobs cancel JOB" in shown) == (level == "warn")
