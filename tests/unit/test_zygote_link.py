"""What a zygote starts with, and how it is talked to."""

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import BundleRef, Fingerprint
from kinetic_ray.errors import ConfigError
from kinetic_ray.runner import ports
from kinetic_ray.runner.births import ways_to_begin, zygote_env
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.link import ZygoteLink
from kinetic_ray.runner.nursery import unlike
from kinetic_ray.runner.task import HostPlan, Limits, RankTask

SIMULATED = HostPlan("jax", 4, True)


def test_rays_own_settings_stay_in_its_worker() -> None:
    inherited = {
        "PATH": "/bin",
        "RAY_JOB_ID": "01",
        "RAY_ADDRESS": "127.0.0.1:1",
        "RAY_AUTH_MODE": "token",
        "TPU_NAME": "s-0",
        "OMP_NUM_THREADS": "1",
    }
    env = zygote_env(inherited, HostPlan(), {})
    assert {name for name in inherited if name in env} == {"PATH", "RAY_ADDRESS", "RAY_AUTH_MODE", "TPU_NAME"}
    assert zygote_env(inherited, HostPlan(), {"OMP_NUM_THREADS": "1"})["OMP_NUM_THREADS"] == "1"


def test_simulated_devices_are_asked_for_beside_the_users_flags() -> None:
    env = zygote_env({}, HostPlan("jax", 4, True, {"XLA_FLAGS": "--xla_dump_to=x"}), {})
    assert env["XLA_FLAGS"] == "--xla_dump_to=x --xla_force_host_platform_device_count=4"
    assert env["JAX_PLATFORMS"] == "cpu"
    assert env["OPENBLAS_NUM_THREADS"] == "1"
    assert "XLA_FLAGS" not in zygote_env({}, HostPlan("jax", 0, True), {})


def test_real_chips_never_become_cpus_in_silence() -> None:
    env = zygote_env({}, HostPlan("jax", 4, False), {})
    assert env["JAX_PLATFORMS"] == "tpu,cpu"
    assert "XLA_FLAGS" not in env


@pytest.mark.parametrize(
    ("name", "value"),
    [("KERAS_BACKEND", "torch"), ("OPENBLAS_NUM_THREADS", "8"), ("JAX_PLATFORMS", "cuda"), ("A", "b")],
)
def test_the_users_settings_win(name: str, value: str) -> None:
    assert zygote_env({name: "inherited"}, HostPlan("jax", 4, True, {name: value}), {})[name] == value


def test_plain_children_keep_all_threads_and_find_this_package() -> None:
    env = zygote_env({}, HostPlan(env_vars={"PYTHONPATH": "/mine"}), {})
    assert "OPENBLAS_NUM_THREADS" not in env
    assert env["KERAS_BACKEND"] == "jax"
    assert env["PYTHONPATH"].split(os.pathsep)[-1] == "/mine"
    assert any((Path(entry) / "kinetic_ray").is_dir() for entry in env["PYTHONPATH"].split(os.pathsep))


@pytest.mark.parametrize(
    ("plan", "served", "ways"),
    [
        (SIMULATED, True, ["nursery", "exec"]),
        (HostPlan("jax", 0, True), True, ["nursery", "exec"]),
        (SIMULATED, False, ["exec"]),
        (HostPlan("jax", 4, True, {"A": "b"}), True, ["exec"]),
        (HostPlan("jax", 4, False), True, ["exec"]),
        (HostPlan("plain", 4, True), True, ["exec"]),
    ],
)
def test_only_where_it_makes_no_difference_the_nursery_is_asked(
    plan: HostPlan, served: bool, ways: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "nursery"
    if served:
        path.touch()
    assert [way.name for way in ways_to_begin(plan, {"KINETIC_NURSERY": str(path)})] == ways
    assert [way.name for way in ways_to_begin(plan, {})] == ["exec"]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, []),
        ({"XLA_FLAGS": "--x", "TPU_NAME": "s-0", "RAY_ADDRESS": "a:1", "KINETIC_RAY_ADDRESS": "a:1"}, []),
        ({"JAX_ENABLE_X64": "1"}, ["JAX_ENABLE_X64"]),
        ({"PYTHONPATH": "/other", "LD_LIBRARY_PATH": "/l"}, ["LD_LIBRARY_PATH", "PYTHONPATH"]),
        ({"TPU_LIBRARY_PATH": "/libtpu.so"}, ["TPU_LIBRARY_PATH"]),
    ],
)
def test_what_an_import_may_have_read_must_be_equal(asked: dict[str, str], names: list[str]) -> None:
    own = {"PYTHONPATH": "/p", "JAX_PLATFORMS": "cpu", "KINETIC_HOME": "/k"}
    assert unlike({**own, **asked}, own) == names
    assert unlike({"PYTHONPATH": "/p"}, own) == ["JAX_PLATFORMS"]


def test_a_zygote_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    held: list[int] = []
    with pytest.raises(ConfigError, match=r"not ready after 0\.1 s"):
        ZygoteLink(SIMULATED, tmp_path, lambda _plan, fd, _scratch: held.append(os.dup(fd)), patience=0.1)
    [fd] = held
    with socket.socket(fileno=fd) as theirs:
        assert theirs.recv(1) == b""  # should it come later, it learns that nobody waits


def test_lines_carry_messages_and_descriptors(tmp_path: Path) -> None:
    left, right = map(Lines, socket.socketpair())
    with (tmp_path / "file").open("wb") as file:
        left.send({"op": "first"}, [file.fileno()])
    sending = threading.Thread(target=left.send, args=({"op": "second", "text": "ü" * 100_000},))
    sending.start()  # more than a socket holds
    assert right.receive() == {"op": "first"}
    [fd] = right.take_fds(1)
    assert not os.get_inheritable(fd)
    os.write(fd, b"through")
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"through"
    assert right.receive() == {"op": "second", "text": "ü" * 100_000}
    sending.join(30)
    left.close()
    assert right.receive() is None
    right.close()


def test_end_of_input_keeps_what_has_arrived() -> None:
    left, right = map(Lines, socket.socketpair())
    left.send({"n": 1})
    right.end_of_input()
    assert right.receive() == {"n": 1}
    assert right.receive() is None
    left.close()
    right.close()


def test_ports_are_given_once_and_kept_from_others() -> None:
    keeper = ports.PortKeeper()
    given_ports = [keeper.take() for _ in range(20)]
    assert len({*given_ports}) == 20
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", given_ports[0]))
    with socket.socket() as coordinator:
        coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        coordinator.bind(("127.0.0.1", given_ports[0]))
        coordinator.listen()
        socket.create_connection(("127.0.0.1", given_ports[0])).close()
    keeper.release()
    with socket.socket() as other:
        other.bind(("127.0.0.1", given_ports[1]))


def test_old_reservations_make_room() -> None:
    keeper = ports.PortKeeper()
    first = keeper.take()
    for _ in range(ports.KEPT):
        keeper.take()
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
    keeper.release()


_NUMBERS = st.integers(min_value=0, max_value=99)
_TASKS = st.builds(
    RankTask,
    store_url=st.text(),
    job_id=st.text(),
    epoch=_NUMBERS,
    attempt=_NUMBERS,
    rank=_NUMBERS,
    world_size=_NUMBERS,
    payload=st.builds(Blob, st.text(), _NUMBERS),
    bundle=st.none() | st.builds(BundleRef, st.builds(Blob, st.text(), _NUMBERS), st.tuples(st.text()), st.text()),
    client=st.none() | st.builds(Fingerprint, st.text(), st.text(), st.text(), st.text()),
    argv=st.tuples(st.text(), st.text()),
    env=st.dictionaries(st.text(), st.text()),
    limits=st.builds(Limits, heartbeat=st.none() | _NUMBERS),
)


@given(_TASKS)
def test_tasks_travel_as_json(task: RankTask) -> None:
    left, right = map(Lines, socket.socketpair())
    left.send(task.to_dict())
    message = right.receive()
    left.close()
    right.close()
    assert message is not None
    assert RankTask.from_dict(message) == task


@pytest.mark.parametrize(
    ("simulated", "limits", "seconds"),
    [(True, Limits(), 10), (False, Limits(), 600), (True, Limits(heartbeat=3), 3), (False, Limits(heartbeat=60), 60)],
)
def test_heartbeats_are_patient_with_real_devices(simulated: bool, limits: Limits, seconds: int) -> None:
    task = RankTask("s", "j", 1, 1, 0, 1, Blob("", 0), simulated=simulated, limits=limits)
    assert task.heartbeat == seconds
    assert HostPlan.from_dict(SIMULATED.to_dict()) == SIMULATED
