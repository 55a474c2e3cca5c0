"""Call hosts as Ray actors: refs and actor handles in arguments and values, errors as users get them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.integration
def test_refs_handles_and_errors_pass_through_an_agent(kinetic_home: Path) -> None:
    program = Path(__file__).with_name("refs_program.py")
    env = {**os.environ, "PYTHONPATH": str(program.parents[3]), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    command = [sys.executable, str(program), str(kinetic_home / "r")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
