"""`.remote()` from a user's program to its hosts and back, on the real embedded cluster."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kinetic_ray.testing.clusters import LocalCluster
from tests.conftest import stop_cluster
from tests.integration.calls import api_programs
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

HELPER = "VERSION = 41\n"


class Folder:
    """A user's project with a program in it."""

    def __init__(self, root: Path, program: str) -> None:
        self.root = root
        self.script = root / "program.py"
        self.script.write_text(program)
        (root / "helper.py").write_text(HELPER)
        (root / "pyproject.toml").touch()

    def start(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *(command or [str(self.script)])],
            cwd=self.root,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Its output; fails where it does."""
        process = self.start(*command, env=env)
        out, err = process.communicate(timeout=360)
        assert process.returncode == 0, f"{out[-4000:]}\n{err[-8000:]}"
        return out


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Folder:
    return Folder(tmp_path, request.param)


def of(program: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("project", [program], indirect=True, ids=["program"])


@of(api_programs.PLAIN)
def test_refs_arguments_values_and_errors_are_what_they_are_in_ray(cluster: Path, project: Folder) -> None:
    out = project.run()
    assert "fine" in out.splitlines()
    assert "(add rank=0 host 0) adding 1 2" in out


@pytest.mark.slow
@of(api_programs.EDITS)
def test_a_helper_that_is_edited_a_hundred_times_is_never_old(cluster: Path, project: Folder) -> None:
    assert "fine" in project.run().splitlines()


@of(api_programs.GANG)
def test_a_class_is_a_gang_actor_with_state_on_every_host(cluster: Path, project: Folder) -> None:
    assert "fine" in project.run().splitlines()


@pytest.fixture
def pool_of_one(kinetic_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KINETIC_LOCAL_SLICES", '{"tpu-v6e-8": 1}')
    yield kinetic_home
    stop_cluster(kinetic_home)


@pytest.mark.slow
@of(api_programs.NESTED)
def test_calls_make_calls(pool_of_one: Path, project: Folder) -> None:
    assert "fine" in project.run().splitlines()


@of(api_programs.CONCURRENT)
def test_many_threads_call_at_once(cluster: Path, project: Folder) -> None:
    assert "fine" in project.run().splitlines()


@of(api_programs.LATE_THREAD)
def test_a_first_call_may_come_when_the_main_thread_has_ended(cluster: Path, project: Folder) -> None:
    assert "fine" in project.run().splitlines()


@of(api_programs.OTHER_CODE)
def test_a_desk_that_does_not_understand_is_told_of_with_the_way_out(cluster: Path, project: Folder) -> None:
    first, second = [line for line in project.run().splitlines() if "Error" in line]
    assert first.startswith("ConfigError the cluster can't make anything of the call (KeyError: 'ancestors'"), first
    assert "kinetic local stop --force" in first
    assert second == "KeyError 'of the user'"


@of(api_programs.INTERRUPTED)
def test_ctrl_c_ends_the_waiting_and_not_the_call(cluster: Path, project: Folder) -> None:
    started = project.root / "started"
    process = project.start(str(project.script), str(started))
    try:
        wait_until(started.exists, 200, "the call to run")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert out.splitlines() == ["interrupted", "fine"], out + err


@of(api_programs.PRINTS)
def test_what_calls_print_is_shown_whole_before_the_process_ends(cluster: Path, project: Folder) -> None:
    shown = sorted(line for line in project.run().splitlines() if "line" in line)
    assert len(shown) == 12, shown
    assert [line.partition(") ")[2] for line in shown if "rank=1" in line] == [f"line {n} of 1" for n in range(3)]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("preempted", "Preempted: {}: rank 0: its host was (being )?preempted"),  # its process may end before it
        ("killed", "NodeLost: {}: rank 0: its host is gone"),
    ],
)
@of(api_programs.LOST)
def test_a_host_that_is_lost_under_a_call_straight_to_it_is_named(
    cluster: LocalCluster, project: Folder, how: str, told: str
) -> None:
    mark = project.root / "mark"
    process = project.start(str(project.script), str(mark))
    try:
        wait_until(lambda: mark.exists() and mark.read_text(), 200, "the call to run")
        if how == "preempted":
            cluster.preempt(mark.read_text(), grace=0.0, return_after=0.5)
        else:
            cluster.kill_host(f"{mark.read_text()}.0")
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    said = out.splitlines()  # Ray says in between that it misses a node
    assert re.match(told.format(f"where on {mark.read_text()}"), said[0]), out + err
    assert said[-1] == "fine", out + err


NOTEBOOK = "import sys\nexec(compile(open('program.py').read().partition('if __name__')[0], '<cell>', 'exec'))\n"
NOTEBOOK += "print('value', kinetic.get(train.remote(1), timeout=200))\n"


@pytest.mark.parametrize("command", [["program.py"], ["-m", "program"], ["-c", NOTEBOOK]], ids=["script", "-m", "cell"])
@of(api_programs.STYLES)
def test_however_a_program_is_started(cluster: Path, project: Folder, command: list[str]) -> None:
    assert "value (42, '__main__')" in project.run(*command)
