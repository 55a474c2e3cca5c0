"""Secrets on the hosts of an embedded cluster: set, changed, removed, while processes are warm."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.local import secret_program

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_hosts_set_what_is_stored_when_their_processes_start(cluster: Path, tmp_path: Path) -> None:
    shutil.copy(secret_program.__file__, tmp_path / "program.py")
    words = [sys.executable, "program.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=360, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
