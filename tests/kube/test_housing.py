"""A plane's housing leaves nothing, whoever dies; shown with components that do their worst, no control plane."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster.sim.components import Component
from cluster.sim.control import ControlError
from cluster.sim.existing import end_plane, planes_in
from cluster.sim.folder import Folder
from cluster.sim.housing import Housing, HousingError
from tests.kube.traces import Traces, processes
from tests.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.usefixtures("namespaces_can_be_made")]

# What resists: it ignores signals, hides in a session and a network of its own, and mounts.
_STUBBORN = """
trap '' TERM INT HUP
mount -t tmpfs tmpfs /run/pods
ip netns add hidden
setsid nohup ip netns exec hidden sh -c 'echo settled; exec sleep 100000' &
wait
"""
STUBBORN = Component("stubborn", ("sh", "-ec", _STUBBORN), at_once=True)
SLEEPER = Component("sleeper", ("sleep", "100000"))
CRASHER = Component("crasher", ("false",))
COMPONENTS = (STUBBORN, SLEEPER, CRASHER)

# An owner: a program that makes a housing, says how far it is, and waits for its end.
_OWNER = """
import sys, pathlib, signal
from cluster.sim.housing import Housing
from tests.kube.test_housing import COMPONENTS
root, until = pathlib.Path(sys.argv[1]), sys.argv[2]
housing = Housing(root, "owned")
housing.prepare()
if until != "prepared":
    housing.start(COMPONENTS)
if until == "stays":
    housing.stay()
print(until, flush=True)
if until != "stays":
    signal.pause()
"""


@pytest.fixture
def housing(tmp_path: Path) -> Iterator[Housing]:
    made = Housing(tmp_path / "planes")
    made.prepare()
    made.start(COMPONENTS)
    settled(made.folder)
    yield made
    made.end()


def settled(folder: Folder) -> Traces:
    """Waits until the stubborn component has done what it does; gives what is to be gone later."""
    wait_until(lambda: "settled" in _text(folder.log("stubborn")), 60, "the component to settle")
    keeper = folder.read_facts().keeper.pid
    inside = psutil.Process(keeper).children(recursive=True)
    return Traces.of(folder.path, *(process.pid for process in inside))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _is_gone(traces: Traces) -> None:
    wait_until(lambda: not traces.left(), 60, f"all to be gone: {traces.left()}")


def _owner(root: Path, until: str) -> "subprocess.Popen[str]":
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(root), until],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    assert owner.stdout.readline().strip() == until
    owner.stdout.close()
    return owner


def test_the_end_leaves_nothing(housing: Housing) -> None:
    traces = settled(housing.folder)
    assert len(traces.namespaces) > 3  # its own three, and the hidden network
    assert traces.left() != []
    housing.end()
    assert traces.left() == []
    assert not housing.folder.path.parent.exists()
    housing.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("until", ["prepared", "started"])
def test_an_owner_that_dies_leaves_nothing(until: str, number: signal.Signals, tmp_path: Path) -> None:
    owner = _owner(tmp_path / "planes", until)
    folder = Folder(tmp_path / "planes" / "owned")
    traces = settled(folder) if until == "started" else Traces.of(folder.path)
    assert traces.left() != []
    owner.send_signal(number)
    owner.wait()
    _is_gone(traces)


def test_an_owner_that_dies_with_its_keeper_leaves_a_folder_that_the_next_one_removes(tmp_path: Path) -> None:
    root = tmp_path / "planes"
    owner = _owner(root, "started")
    folder = Folder(root / "owned")
    traces = settled(folder)
    keeper = folder.read_facts().keeper
    owner.kill()
    os.kill(keeper.pid, signal.SIGKILL)
    owner.wait()
    wait_until(lambda: all(line.startswith("folder") for line in traces.left()), 60, "its processes to be gone")
    following = Housing(root)
    following.prepare()
    following.end()
    _is_gone(traces)


def test_a_keeper_that_is_killed_takes_all_processes_along(housing: Housing) -> None:
    traces = settled(housing.folder)
    os.kill(housing.facts.keeper.pid, signal.SIGKILL)
    wait_until(lambda: all(line.startswith("folder") for line in traces.left()), 60, "its processes to be gone")
    assert not housing.lives()
    housing.end()
    assert traces.left() == []


def test_a_first_process_that_is_killed_ends_the_plane(housing: Housing) -> None:
    traces = settled(housing.folder)
    [outside] = psutil.Process(housing.facts.keeper.pid).children()
    [first] = outside.children()
    first.kill()
    wait_until(lambda: not housing.lives(), 60, "the keeper to see it")
    _is_gone(traces)
    with pytest.raises(ControlError, match="no plane runs"):
        housing.control.components()


def test_a_plane_that_stays_outlives_its_owner_until_it_is_ended(tmp_path: Path) -> None:
    root = tmp_path / "planes"
    owner = _owner(root, "stays")
    assert owner.wait() == 0
    [folder] = planes_in(root)
    traces = settled(folder)
    assert folder.path.name == "owned"
    assert folder.read_facts().keeper.lives()
    end_plane(folder)
    assert traces.left() == []
    assert list(planes_in(root)) == []


def test_components_are_started_and_stopped(housing: Housing) -> None:
    assert housing.control.components()["sleeper"].pid == 0
    housing.control.start("sleeper")
    first = housing.control.components()["sleeper"]
    assert first.pid > 1
    housing.control.start("sleeper")
    assert housing.control.components()["sleeper"] == first
    housing.control.stop("sleeper")
    assert housing.control.components()["sleeper"].pid == 0
    housing.control.stop("sleeper")
    housing.control.start("sleeper")
    assert housing.control.components()["sleeper"].pid not in {0, first.pid}
    with pytest.raises(ControlError, match="nobody"):
        housing.control.start("nobody")


def test_a_component_that_dies_is_started_again_until_it_is_stopped(housing: Housing) -> None:
    housing.control.start("crasher")
    wait_until(lambda: housing.control.components()["crasher"].restarts >= 2, 60, "it to be started again")
    housing.control.stop("crasher")
    counted = housing.control.components()["crasher"].restarts
    housing.control.start("sleeper")
    os.kill(_outside(housing, "sleep"), signal.SIGKILL)
    wait_until(lambda: housing.control.components()["sleeper"].restarts, 60, "the other one to be started again")
    assert housing.control.components()["crasher"].restarts == counted


def _outside(housing: Housing, program: str) -> int:
    """The id, as the host knows it, of the component that runs a program."""
    [outside] = psutil.Process(housing.facts.keeper.pid).children()
    [first] = outside.children()
    return next(child.pid for child in first.children() if child.name() == program)


def test_a_plane_sees_neither_the_network_nor_the_processes_of_its_machine(housing: Housing) -> None:
    first = _outside(housing, "sh")
    inside = ["nsenter", "--target", str(first), "--net", "--pid", "--mount", "--wd=/"]
    routes = subprocess.run([*inside, "ip", "route", "get", "192.0.2.1"], capture_output=True, text=True)
    assert "unreachable" in routes.stderr
    seen = subprocess.run([*inside, "ls", "/proc"], capture_output=True, text=True, check=True).stdout.split()
    assert len([name for name in seen if name.isdigit()]) < len(list(processes()))
    assert "1" in seen


def test_two_planes_are_up_at_once_and_one_of_each_name(housing: Housing, tmp_path: Path) -> None:
    other = Housing(housing.root, "other")
    other.prepare()
    other.start(COMPONENTS)
    traces = settled(other.folder)
    assert {folder.path.name for folder in planes_in(housing.root)} == {"other", housing.folder.path.name}
    again = Housing(housing.root, "other")
    with pytest.raises(HousingError, match="exists"):
        again.prepare()
    again.end()
    assert other.lives()
    assert other.control.components()["stubborn"].pid
    other.end()
    assert traces.left() == []
    assert housing.control.components()["stubborn"].pid


def test_a_port_that_is_taken_is_named(housing: Housing, tmp_path: Path) -> None:
    taken = housing.facts.api_port
    other = Housing(tmp_path / "others", port=taken)
    with pytest.raises(HousingError, match="in use"):
        other.prepare()
    other.end()
    assert not (tmp_path / "others").exists()


def test_a_plane_whose_first_process_cannot_go_on_tells_what_it_said(tmp_path: Path) -> None:
    made = Housing(tmp_path / "planes")
    made.prepare()
    made.folder.path.joinpath("control").mkdir()  # where its socket belongs
    made.start(COMPONENTS)
    wait_until(lambda: not made.lives(), 60, "it to end")
    assert "in use" in made.last_words()
    made.end()
    assert not (tmp_path / "planes").exists()


def test_a_component_without_a_program_is_refused(tmp_path: Path) -> None:
    made = Housing(tmp_path / "planes")
    made.prepare()
    with pytest.raises(HousingError, match="ghost can't start: /nothing"):
        made.start((Component("ghost", ("/nothing/here",)),))
    made.end()
    assert not (tmp_path / "planes").exists()


def test_a_client_that_says_nothing_does_not_stop_the_others(housing: Housing) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        handle = os.open(housing.folder.path, os.O_PATH)
        silent.connect(f"/proc/self/fd/{handle}/control")
        os.close(handle)
        assert housing.control.components()["stubborn"].pid


def test_a_keeper_does_not_hold_the_outputs_of_who_started_it(tmp_path: Path) -> None:
    """Whoever runs `up` and reads its output would wait for the plane's end."""
    reader, writer = os.pipe()
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path / "planes"), "stays"],
        stdout=writer,
        stderr=writer,
        cwd=Path(__file__).parents[2],
    )
    os.close(writer)
    assert owner.wait() == 0
    said = b""
    while select.select([reader], (), (), 60)[0]:
        block = os.read(reader, 1 << 12)
        if not block:
            break
        said += block
    else:
        pytest.fail("something still has the outputs")
    os.close(reader)
    assert said == b"stays\n"
    end_plane(Folder(tmp_path / "planes" / "owned"))
