"""From a user's program to every host and back, on the real embedded cluster."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend
from tests.unit.test_start_styles import FILES, PROGRAMS, WORK
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SUBMIT = "\nif __name__ == '__main__':\n    print(train.run_async(4).job_id)\n"

STYLES = {
    "root script": ["train.py"],
    "script in a folder": ["scripts/train.py"],
    "module of a package": ["-m", "pkg.train"],
    "function of a sibling module": ["train.py"],
    "classes of the script": ["train.py"],
    "src layout": ["scripts/train.py"],
}

GANG = """
import os, helper, kinetic_ray as kinetic
import work

class Refused(ValueError):
    def __init__(self, rank, *, why):
        super().__init__(f"rank {rank}: {why}")
        self.why = why

@kinetic.run(accelerator="tpu-v6e-16", gather="all", runtime="plain", env_vars={"COLOUR": "green"}, tags=["gang"])
def meet():
    here = kinetic.context()
    (here.output_dir / f"{here.rank}.txt").write_text(helper.NAME)
    return here.rank, here.world_size, os.environ["COLOUR"], inner(here.rank), os.environ["KINETIC_SLICE_NAME"]

@kinetic.run(accelerator="tpu-v6e-256")  # never granted here: inside of a job it is a plain call
def inner(rank):
    return rank * 10 + work.calls(rank)

@kinetic.run(accelerator="tpu-v6e-16", runtime="plain")
def fail():
    rank = kinetic.context().rank
    print("words of rank", rank)
    if rank == 2:
        try:
            {}["missing"]
        except KeyError as error:
            raise Refused(rank, why="it must") from error
    import threading
    threading.Event().wait(600)

@kinetic.run(accelerator="tpu-v6e-16", runtime="plain")
def vanish():
    print("last words of rank", kinetic.context().rank, flush=True)
    if kinetic.context().rank == 1:
        os.kill(os.getpid(), 9)
    import threading
    threading.Event().wait(600)
"""
CALLS = """
@kinetic.run(accelerator="tpu-v6e-256")
def calls(x):
    return 1
"""


@pytest.fixture(scope="module")
def home(test_homes: Path) -> Iterator[Path]:
    """A KINETIC_HOME with a cluster that this module's programs start by using it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(tempfile.mkdtemp(prefix="krt", dir=test_homes))
        patch.setenv("KINETIC_HOME", str(folder))
        yield folder
        backend.stop(folder, force=True)


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    """A folder with sibling modules, packages and data, that no test's own folder lies above."""
    folder = Path(tempfile.mkdtemp(prefix="project", dir=home))
    for name, text in {**FILES, "work.py": WORK + CALLS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def environment(**more: str) -> Mapping[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [more.pop("PYTHONPATH", "")])])
    return {**os.environ, "PYTHONPATH": path, **more}


def start(command: list[str], cwd: Path, **more: str) -> str:
    """Runs a program; the last line that it prints."""
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def test_every_start_style_on_the_cluster(project: Path) -> None:
    jobs = {}
    for name, command in STYLES.items():
        program = PROGRAMS[name]
        (project / program.file).write_text(program.text + SUBMIT)
        more = {"PYTHONPATH": str(project / "src")} if name == "src layout" else {}
        jobs[name] = start(command, project, **more)
        (project / program.file).unlink()
    values = {name: repr(kinetic.attach(job_id).result(timeout=120)) for name, job_id in jobs.items()}
    assert values == {name: PROGRAMS[name].value for name in STYLES}


def gang(project: Path, function: str) -> "kinetic.JobHandle[object]":
    (project / "gang.py").write_text(f"{GANG}\nif __name__ == '__main__':\n    print({function}.run_async().job_id)\n")
    return kinetic.attach(start(["gang.py"], project))


def test_every_host_of_a_slice_finds_the_project(project: Path) -> None:
    job = gang(project, "meet")
    expected = [(rank, 4, "green", rank * 10 + 1, "tpu-v6e-16-0") for rank in range(4)]
    assert job.result(timeout=120) == expected
    assert job.result() == expected
    assert [Path(name).read_text() for name in job.outputs()] == ["helper of the root"] * 4
    assert [handle.job_id for handle in kinetic.list_jobs(tag="gang")] == [job.job_id]


def test_the_first_failing_hosts_exception_comes_back_as_itself(project: Path) -> None:
    job = gang(project, "fail")
    with pytest.raises(ValueError, match="rank 2: it must") as caught:
        job.result(timeout=120)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.why == "it must"  # type: ignore[attr-defined]
    (note,) = caught.value.__notes__
    for told in (job.job_id, "rank 2 (tpu-v6e-16-", "worker 2", "phase call", 'raise Refused(rank, why="it must")'):
        assert told in note
    assert job.logs(rank=2).startswith("words of rank 2\n")  # type: ignore[union-attr]
    assert job.phase().reason == "UserError"


OWN_CLASSES = """
import sys, kinetic_ray as kinetic
from dataclasses import dataclass

class Torn(Exception):
    def __init__(self, row):
        super().__init__(f"row {row}")
        self.row = row

@dataclass
class Scores:
    best: float

@kinetic.run(accelerator="cpu")
def train(fails):
    if fails:
        raise Torn(7)  # as it ran
    return [Scores(0.5)]

if __name__ == "__main__" and len(sys.argv) == 1:
    print(train.run_async(False).job_id + "," + train.run_async(True).job_id)
elif __name__ == "__main__":
    good, bad = map(kinetic.attach, sys.argv[1].split(","))
    assert [type(each) for each in good.result(timeout=120)] == [Scores]
    try:
        bad.result(timeout=120)
    except Torn as error:
        assert error.row == 7
        assert "raise Torn(7)  # as it ran" in error.__notes__[0], error.__notes__
        print("known")
"""


def test_a_script_that_is_run_again_knows_its_own_classes(project: Path) -> None:
    script = project / "own.py"
    script.write_text(OWN_CLASSES)
    jobs = start(["own.py"], project)
    script.write_text("# edited\n" + OWN_CLASSES.replace("  # as it ran\n", "\n"))
    assert start(["own.py", jobs], project) == "known"


def test_a_host_that_vanishes_is_named(project: Path) -> None:
    job = gang(project, "vanish")
    with pytest.raises(kinetic.JobFailed) as caught:
        job.result(timeout=120)
    text = str(caught.value)
    for told in (job.job_id, "rank 1 (tpu-v6e-16-", "ProcessDied", "last words of rank 1", f"{job.job_id} --rank 1"):
        assert told in text
    assert caught.value.reason == "ProcessDied"


def test_a_job_outlives_the_process_that_submitted_it(project: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    program = (
        "import kinetic_ray as kinetic, pathlib, sys, threading\n"
        "@kinetic.run(accelerator='cpu')\n"
        "def wait(gate):\n"
        "    print('waiting', flush=True)\n"
        "    while not pathlib.Path(gate).exists(): threading.Event().wait(0.05)\n"
        "    return 'done'\n"
        "if __name__ == '__main__': wait(sys.argv[1])\n"
    )
    (project / "wait.py").write_text(program)
    command = [sys.executable, "-u", "wait.py", str(gate)]
    with subprocess.Popen(command, cwd=project, env=environment(), stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "waiting\n"
        client.send_signal(signal.SIGKILL)
    (job,) = kinetic.list_jobs(name="wait")
    assert job.status() == "RUNNING"
    gate.touch()
    assert job.result(timeout=60) == "done"
    assert (job.tail(1), job.logs()) == ("waiting", "waiting\n")


def test_cancel_and_cleanup(project: Path, tmp_path: Path) -> None:
    (project / "gang.py").write_text(GANG)
    job = gang(project, "fail.options(accelerator='cpu')")
    wait_until(lambda: job.status() == "RUNNING", 60, "the job to run")
    job.cancel()
    job.cancel()
    assert (job.phase().status, job.phase().reason) == ("STOPPED", "Cancelled")
    with pytest.raises(kinetic.JobCancelled, match=job.job_id):
        job.result()
    job.cleanup()
    assert job.status() == "NOT_FOUND"
