"""Fixtures that all tests share, and the check that a test run leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.leaks import Leaks
from tests.waiting import wait_until

pytest.register_assert_rewrite("kinetic_ray.testing.store_contract")

# No test asserts how long something takes: on a busy machine that is chance.
settings.register_profile("kinetic", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kinetic")


def _short_folder(parent: str | None = None) -> Path:
    """A new folder with a short path: unix socket names end at 104 characters, pytest's own folders are too deep."""
    return Path(tempfile.mkdtemp(prefix="krt", dir=parent or "/tmp"))


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """Programs that tests start hear of Ctrl-C, also where this run was started in the background, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def test_homes() -> Iterator[Path]:
    """The folder of every KINETIC_HOME of this run; nothing outside it is touched, and nothing may outlive it."""
    root = _short_folder()
    settings_of_ours = ("KINETIC_", "RAY_", "GOOGLE_CLOUD_PROJECT")
    kept = {name: value for name, value in os.environ.items() if name.startswith(settings_of_ours)}
    for name in kept:
        del os.environ[name]
    os.environ["KINETIC_HOME"] = str(root / "default")
    leaks = Leaks(root)
    try:
        yield root
        wait_until(lambda: not leaks.found(), 60, "the run's processes, runtime folders and shared memory to be gone")
    except AssertionError as error:
        raise AssertionError(f"{error}\nleft behind:\n" + "\n".join(leaks.found())) from None
    finally:
        del os.environ["KINETIC_HOME"]
        os.environ.update(kept)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def kinetic_home(test_homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A KINETIC_HOME of the test's own; whoever starts an embedded cluster in it also stops it."""
    home = _short_folder(str(test_homes))
    monkeypatch.setenv("KINETIC_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def shared_home(test_homes: Path) -> Iterator[Path]:
    """The KINETIC_HOME whose embedded cluster the integration tests share: it starts with the first call, ends here."""
    home = _short_folder(str(test_homes))
    yield home
    stop_cluster(home)


@pytest.fixture
def cluster(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the shared embedded cluster the one that the test's calls go to; gives its KINETIC_HOME."""
    monkeypatch.setenv("KINETIC_HOME", str(shared_home))
    return shared_home


def stop_cluster(home: Path) -> None:
    """Ends the embedded cluster of a KINETIC_HOME and waits until all of it is gone."""
    command = [sys.executable, "-m", "kinetic_ray", "local", "stop", "--force"]
    subprocess.run(command, env={**os.environ, "KINETIC_HOME": str(home)}, check=True, timeout=120)
