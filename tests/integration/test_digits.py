"""The main job: digits on sixteen simulated devices, as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinetic_ray as kinetic
from examples import digits

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def _run(*words: str, devices: int, hosts: int, folder: Path) -> str:
    """Runs the script in another folder than its own, and gives its output after checking what any run must show."""
    command = [sys.executable, str(ROOT / "examples" / "digits.py"), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert f"training on {devices} devices of {hosts} hosts" in done.stdout
    return done.stdout


def _accuracy(stdout: str) -> float:
    printed, returned = re.search(r"test accuracy ([\d.]+)", stdout), re.search(r"the job returned ([\d.]+)", stdout)
    assert printed and returned and printed.group(1) == returned.group(1)
    return float(printed.group(1))


def test_trains_on_a_slice_and_saves_what_it_learned(cluster: Path, tmp_path: Path) -> None:
    stdout = _run(devices=16, hosts=4, folder=tmp_path)
    losses = [float(loss) for loss in re.findall(r"step +\d+ +loss ([\d.]+)", stdout)]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 5
    assert _accuracy(stdout) > 0.95
    job = kinetic.list_jobs()[0]
    ours = [path for path in cluster.rglob("*") if job.job_id in str(path)]
    saved = {path.name: path for path in ours if path.suffix in {".npz", ".png"}}
    assert sorted(saved) == ["checkpoint.npz", "learning-curve.png"]
    assert saved["learning-curve.png"].read_bytes().startswith(b"\x89PNG")
    checkpoint = np.load(saved["checkpoint.npz"])
    assert checkpoint["losses"].shape == (200,)
    assert checkpoint["losses"][19::20] == pytest.approx(losses, abs=5e-5)


def test_sixteen_devices_learn_what_one_learns(cluster: Path) -> None:
    """Same batches, same start: weights and losses agree to the rounding of float32."""
    learn, _ = digits.load_data()

    @kinetic.run(accelerator="tpu-v6e-16")
    def train(learn: digits.Digits, steps: int) -> tuple[int, dict[str, np.ndarray], list[float]]:
        import jax

        return jax.device_count(), *digits.fit(learn, steps, tell=lambda step, loss: None)

    devices, weights, losses = train(learn, 60)
    alone, weights_of_one, losses_of_one = train.local(learn, 60)
    assert (devices, alone) == (16, 1)
    assert losses == pytest.approx(losses_of_one, rel=1e-4)
    for name, value in weights.items():
        np.testing.assert_allclose(value, weights_of_one[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_trains_on_eight_hosts(cluster: Path, tmp_path: Path) -> None:
    stdout = _run("--accelerator", "tpu-v6e-32", devices=32, hosts=8, folder=tmp_path)
    assert _accuracy(stdout) > 0.95
