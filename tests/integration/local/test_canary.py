"""Values that a program gives to its jobs are where they belong, and nowhere else: not in a file, not in an API."""

import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from kinetic_ray.backends.local import backend
from kinetic_ray.backends.local.paths import runtime_of
from tests.integration.local import canary_program
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

#: What the program gives, by the way it takes: see canary_program.py; the last three it has in its environment only.
_WAYS = ("ENV", "BIG", "CALL", "ARG", "OPTION", "URL", "STORED", "CAPTURED", "UNCAPTURED", "PROXY")
#: All GET points of the dashboard that tell of jobs, actors, tasks and hosts.
_POINTS = (
    "/api/jobs/",
    "/api/jobs/{job}",
    "/api/jobs/{job}/logs",
    "/api/v0/actors?detail=1&limit=1000",
    "/api/v0/tasks?detail=1&limit=1000",
    "/api/v0/workers?detail=1&limit=1000",
    "/api/v0/runtime_envs?detail=1",
    "/api/v0/placement_groups?detail=1",
    "/api/v0/objects?detail=1&limit=1000",
    "/api/v0/nodes?detail=1",
    "/logical/actors",
    "/nodes?view=summary",
    "/api/component_activities",
)
_COMMANDS = (
    ("jobs", "list", "--json"),
    ("jobs", "status", "{job}"),
    ("jobs", "status", "{job}", "--json"),
    ("jobs", "logs", "{job}"),
    ("local", "status", "--json"),
    ("local", "status", "--env"),
    ("secret", "list"),
    ("secret", "list", "--json"),
    ("config", "--explain", "--json"),
    ("doctor", "--json"),
)


@dataclass(frozen=True)
class Canaries:
    """The values that are looked for, by the way that they go."""

    values: Mapping[str, str]

    def in_data(self, data: bytes | str) -> set[str]:
        data = data.encode(errors="surrogateescape") if isinstance(data, str) else data
        return {way for way, value in self.values.items() if value.encode() in data}

    def in_files(self, *roots: Path, but: Iterable[Path] = ()) -> dict[str, set[str]]:
        """File -> ways."""
        left_out = tuple(but)
        found = {}
        for root in roots:
            for path in _files(root):
                if any(path.is_relative_to(place) for place in left_out):
                    continue
                try:
                    if stat.S_ISREG(path.lstat().st_mode) and (ways := self.in_data(path.read_bytes())):
                        found[str(path)] = ways
                except OSError:  # it has just gone
                    continue
        return found

    def in_command_lines(self) -> dict[str, set[str]]:
        told = {}
        for process in psutil.process_iter():
            try:
                words = " ".join([process.name(), *process.cmdline()])
            except psutil.Error:
                continue
            if ways := self.in_data(words):
                told[words[:200]] = ways
        return told


def _files(root: Path) -> Iterator[Path]:
    """All files below a folder, of which some come and go meanwhile."""
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names)


@pytest.fixture
def canaries() -> Canaries:
    return Canaries({way: f"CaNaRy{way}{secrets.token_hex(8)}" for way in _WAYS})


def _environment(canaries: Canaries) -> dict[str, str]:
    """That of the program and of its shell, from which the cluster is started; the stored one isn't in it."""
    values = dict(canaries.values)
    own = {"MY_CAPTURED": values.pop("CAPTURED"), "MY_OTHER": values.pop("UNCAPTURED")}
    own["http_proxy"] = f"http://ann:{values.pop('PROXY')}@127.0.0.1:9/"
    del values["STORED"]
    return {**os.environ, **own, "CANARIES": json.dumps(values)}


def _kinetic(*words: str, environment: Mapping[str, str], given: str = "") -> str:
    command = [sys.executable, "-m", "kinetic_ray", *words]
    done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def _told_by_apis(home: Path, job: str) -> dict[str, bytes]:
    environment = backend.environment(home)
    assert environment is not None
    token = Path(environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    told = {}
    for point in _POINTS:
        url = environment["RAY_API_SERVER_ADDRESS"] + point.format(job=job)
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with opener.open(asked, timeout=60) as answer:
                told[point] = answer.read()
        except urllib.error.HTTPError as error:
            told[point] = error.read()
    return told


def _values_may_be_in(home: Path) -> list[Path]:
    """Payloads, the env objects of jobs that run, and the vault: decided places, which only their owner can enter."""
    return [home / "store" / "blobs", home / "secrets", *(home / "store" / "jobs").glob("*/env")]


def test_values_are_nowhere_but_where_they_belong(own_cluster: Path, canaries: Canaries, tmp_path: Path) -> None:
    home, runtime, folder = own_cluster, runtime_of(own_cluster), tmp_path / "project"
    folder.mkdir()
    shutil.copy(canary_program.__file__, folder / "program.py")
    environment = _environment(canaries)
    stored = canaries.values["STORED"]
    assert "stored" in _kinetic("secret", "set", "canary", "MY_STORED", environment=environment, given=stored)
    words = [sys.executable, "program.py", str(folder)]
    with (tmp_path / "told").open("wb") as told:
        program = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: (folder / "live").exists() or program.poll() is not None, 240, "the program's jobs to run")
        assert program.poll() is None, (tmp_path / "told").read_text()
        job = (folder / "live").read_text()
        _look_at_what_lives(home, job, canaries, environment)
        (folder / "go on").touch()
        assert program.wait(600) == 0, (tmp_path / "told").read_text()
    finally:
        program.kill()
        program.wait()
    told_by_program = (tmp_path / "told").read_text()
    assert told_by_program.count("Traceback") > 10
    assert canaries.in_data(told_by_program) == set(), told_by_program
    kept = home / "store" / "jobs"
    wait_until(lambda: not [*kept.glob("*/env/*")], 60, "the values of ended jobs to go")
    assert canaries.in_files(home, runtime.root, but=_values_may_be_in(home)) == {}
    assert backend.stop(home, force=True)
    assert canaries.in_files(home, but=_values_may_be_in(home)) == {}


def _look_at_what_lives(home: Path, job: str, canaries: Canaries, environment: Mapping[str, str]) -> None:
    root = runtime_of(home).root
    assert canaries.in_command_lines() == {}
    assert canaries.in_files(home, root, but=_values_may_be_in(home)) == {}
    for point, answer in _told_by_apis(home, job).items():
        assert canaries.in_data(answer) == set(), point
    for words in _COMMANDS:
        text = _kinetic(*(word.format(job=job) for word in words), environment=environment)
        assert canaries.in_data(text) == set(), words
    # The search finds what is there: values in the decided places, each for its owner alone.
    found = canaries.in_files(home)
    assert set().union(*found.values()) == {"ENV", "BIG", "CAPTURED", "ARG", "STORED"}
    for path, ways in found.items():
        [place] = [place for place in _values_may_be_in(home) if Path(path).is_relative_to(place)]
        assert ways <= {"blobs": {"ARG"}, "secrets": {"STORED"}}.get(place.name, {"ENV", "BIG", "CAPTURED"})
        assert stat.S_IMODE(Path(path).stat().st_mode) & 0o077 == 0
