"""What the embedded cluster takes from the shell that starts it, and where its folder lies."""

import os
from pathlib import Path

import pytest

from kinetic_ray.backends.local import env
from kinetic_ray.backends.local.need import check_need, usable_cpus
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.backends.local.pool import Limits
from kinetic_ray.core.accelerators import parse_accelerator
from kinetic_ray.errors import UsageError

RUNTIME = Path("/tmp/kr0-x")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An empty shell, for a test to fill."""
    for name in tuple(os.environ):
        monkeypatch.delenv(name)
    return monkeypatch


def _made() -> dict[str, str]:
    return env.cluster_environment(RUNTIME, RUNTIME / "token", RUNTIME / "sock", Path("secrets"))


def test_only_listed_variables_come_in(shell: pytest.MonkeyPatch) -> None:
    taken = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "KINETIC_HOME": "/k", "KINETIC_LOCAL_IDLE_S": "5"}
    left = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "RAY_TMPDIR": "/elsewhere",
        "RAY_AUTH_TOKEN": "secret",
        "RAY_AUTH_TOKEN_PATH": "/h/.ray/auth_token",
        "RAY_testing_rpc_failure": "x",
        "TPU_NAME": "mine",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "KINETIC_STORE": "/other",
        "LD_PRELOAD": "x.so",
        "PYTHONSTARTUP": "x.py",
    }
    for name, value in {**taken, **left}.items():
        shell.setenv(name, value)
    made = _made()
    assert taken.items() <= made.items()
    assert not set(left.values()) & set(made.values())
    assert made["KINETIC_SIMULATED"] == "1"
    assert made["RAY_AUTH_MODE"] == "token"
    assert made["RAY_AUTH_TOKEN_PATH"] == str(RUNTIME / "token")
    assert made["RAY_TMPDIR"] == str(RUNTIME)
    assert "RAY_ADDRESS" not in made
    assert made["RAY_memory_monitor_refresh_ms"] == "0"  # it would end what serves jobs, never the rank


def test_loopback_never_goes_through_a_proxy(shell: pytest.MonkeyPatch) -> None:
    assert not {name for name in _made() if "proxy" in name.lower()}
    shell.setenv("HTTPS_PROXY", "http://proxy:3128")
    shell.setenv("no_proxy", "intra.net")
    made = _made()
    assert made["HTTPS_PROXY"] == "http://proxy:3128"
    assert made["no_proxy"] == made["NO_PROXY"] == "intra.net,127.0.0.1,localhost,::1"


def test_children_find_this_package_first_and_by_whole_paths(shell: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell.chdir(tmp_path)
    shell.setenv("PYTHONPATH", os.pathsep.join(["here/site-packages", "", "/opt/dist-packages"]))
    found = _made()["PYTHONPATH"].split(os.pathsep)
    assert found[-2:] == [str(tmp_path / "here/site-packages"), "/opt/dist-packages"]
    assert "" not in found


def test_code_of_the_shell_that_starts_a_cluster_reaches_no_job(shell: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = _made()["PYTHONPATH"]
    shell.chdir(tmp_path)
    shell.setenv("PYTHONPATH", os.pathsep.join(["relative", ".", str(tmp_path / "src"), "/nowhere"]))
    assert _made()["PYTHONPATH"] == before


def test_a_host_says_what_a_host_of_gke_says(shell: pytest.MonkeyPatch) -> None:
    shell.setenv("PATH", "/bin")
    made = env.host_environment(parse_accelerator("tpu-v5e-16"), "tpu-v5e-16-1", 3, RUNTIME / "nursery")
    made.pop("PYTEST_CURRENT_TEST")
    assert made == {
        "PATH": "/bin",
        "TPU_NAME": "tpu-v5e-16-1",
        "TPU_WORKER_ID": "3",
        "TPU_ACCELERATOR_TYPE": "v5litepod-16",
        "TPU_TOPOLOGY": "4x4",
        "KINETIC_NURSERY": str(RUNTIME / "nursery"),
    }


def test_every_home_has_a_folder_of_its_own_short_enough_for_sockets(tmp_path: Path) -> None:
    one, other = runtime_of(tmp_path / "a"), runtime_of(tmp_path / "b")
    assert one == runtime_of(tmp_path / "a")
    assert one.root != other.root
    deepest = one.sockets / "tpu-v5p-16x16x16-1234.1023.p"
    assert len(str(deepest)) < 104


@pytest.mark.parametrize(
    ("need", "says"),
    [
        ({"accelerator": "cpu", "cpus": 1, "hosts": 1}, ""),
        ({"accelerator": "cpu", "cpus": usable_cpus(), "hosts": 1}, ""),
        ({"accelerator": "cpu", "cpus": usable_cpus(), "hosts": 2}, "CPUs at once never fit"),
        ({"accelerator": "cpu", "cpus": 1, "hosts": 1, "memory": 2**60}, "of memory at once never fit"),
        ({"accelerator": "tpu-v6e-16", "num_slices": 5}, "20 hosts"),
        ({"accelerator": "tpu-v6e-8", "chips_per_host": 4, "num_slices": 8}, ""),
        ({"accelerator": "l4"}, "no GPUs"),
    ],
)
def test_what_never_fits_is_told(need: dict[str, object], says: str) -> None:
    if not says:
        check_need(Limits(), need)
        return
    with pytest.raises(UsageError, match=says):
        check_need(Limits(), need)
