"""What a pod's containers come to: phases, conditions, restarts, probes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.sim.kubelet import events, probes, quantities
from cluster.sim.kubelet.phases import Phase, conditions, gates_of, phase
from cluster.sim.kubelet.probes import Answer, Command, Connect, Fetch, Probe, ProbeKind, Sleep, Tally, Verdict
from cluster.sim.kubelet.restarts import BackOff, is_restarted, spoken
from cluster.sim.kubelet.shapes import Json
from cluster.sim.kubelet.states import (
    CREATING,
    ContainerStatus,
    Ended,
    Kind,
    Running,
    State,
    Waiting,
    exit_reason,
    lost,
)

RUNNING, DONE, FAILED = Running("t"), Ended(0, "Completed", "t", "t"), Ended(1, "Error", "t", "t")
LOOPING = Waiting("CrashLoopBackOff")


def container(state: State, kind: Kind = Kind.MAIN, **fields: object) -> ContainerStatus:
    made = ContainerStatus(f"{kind}-1", "image", kind, state)
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Always", [CREATING], Phase.PENDING),
        ("Always", [RUNNING], Phase.RUNNING),
        ("Always", [RUNNING, CREATING], Phase.PENDING),
        ("Always", [DONE], Phase.RUNNING),
        ("Never", [DONE, DONE], Phase.SUCCEEDED),
        ("Never", [DONE, FAILED], Phase.FAILED),
        ("Never", [RUNNING, FAILED], Phase.RUNNING),
        ("OnFailure", [FAILED], Phase.RUNNING),
        ("OnFailure", [DONE], Phase.SUCCEEDED),
    ],
)
def test_phase_of_main_containers(policy: str, states: list[State], expected: Phase) -> None:
    assert phase(policy, [container(state) for state in states]) is expected


@pytest.mark.parametrize(
    ("policy", "init", "main", "expected"),
    [
        ("Never", container(RUNNING, Kind.INIT), CREATING, Phase.PENDING),
        ("Never", container(FAILED, Kind.INIT), CREATING, Phase.FAILED),
        ("Always", container(FAILED, Kind.INIT), CREATING, Phase.PENDING),
        ("Always", container(DONE, Kind.INIT), RUNNING, Phase.RUNNING),
        ("Always", container(CREATING, Kind.SIDECAR), CREATING, Phase.PENDING),
        ("Never", container(RUNNING, Kind.SIDECAR, started=True), DONE, Phase.SUCCEEDED),
    ],
)
def test_phase_with_init_containers(policy: str, init: ContainerStatus, main: State, expected: Phase) -> None:
    assert phase(policy, [init, container(main)]) is expected


def test_a_container_that_waits_to_restart_counts_as_running() -> None:
    assert phase("Always", [container(LOOPING, last=FAILED)]) is Phase.RUNNING
    assert phase("Always", [container(LOOPING)]) is Phase.PENDING


@pytest.mark.parametrize(
    ("state", "expected"), [(DONE, Phase.SUCCEEDED), (FAILED, Phase.FAILED), (CREATING, Phase.FAILED)]
)
def test_phase_of_a_pod_that_was_stopped(state: State, expected: Phase) -> None:
    assert phase("Always", [container(state)], stopped=True) is expected


def stated(
    now: Phase, *containers: ContainerStatus, gates: dict[str, bool] | None = None
) -> dict[str, tuple[bool, str]]:
    return {one.type: (one.holds, one.reason) for one in conditions(now, containers, True, gates)}


def test_conditions_name_what_is_not_ready() -> None:
    found = stated(Phase.RUNNING, container(RUNNING, ready=False))
    assert found["Ready"] == found["ContainersReady"] == (False, "ContainersNotReady")
    assert found["Initialized"] == (True, "")
    message = next(one.message for one in conditions(Phase.RUNNING, [container(RUNNING)], True) if one.type == "Ready")
    assert message == "containers with unready status: [main-1]"


def test_conditions_of_ready_and_of_ended_pods() -> None:
    assert stated(Phase.RUNNING, container(RUNNING, ready=True))["Ready"] == (True, "")
    assert stated(Phase.SUCCEEDED, container(DONE))["Ready"] == (False, "PodCompleted")
    assert stated(Phase.FAILED, container(FAILED))["ContainersReady"] == (False, "PodFailed")
    waiting = stated(Phase.PENDING, container(RUNNING, Kind.INIT), container(CREATING))
    assert waiting["Initialized"] == (False, "ContainersNotInitialized")


def test_a_readiness_gate_holds_a_pod_back() -> None:
    pod = {
        "spec": {"readinessGates": [{"conditionType": "example.com/ok"}]},
        "status": {"conditions": [{"type": "example.com/ok", "status": "False"}]},
    }
    assert gates_of(pod) == {"example.com/ok": False}
    found = stated(Phase.RUNNING, container(RUNNING, ready=True), gates=gates_of(pod))
    assert found["ContainersReady"] == (True, "")
    assert found["Ready"] == (False, "ReadinessGatesNotReady")


@pytest.mark.parametrize(
    ("policy", "kind", "code", "expected"),
    [
        ("Always", Kind.MAIN, 0, True),
        ("OnFailure", Kind.MAIN, 0, False),
        ("OnFailure", Kind.MAIN, 1, True),
        ("Never", Kind.MAIN, 1, False),
        ("Never", Kind.SIDECAR, 1, True),
        ("Always", Kind.INIT, 0, False),
        ("Always", Kind.INIT, 1, True),
        ("Never", Kind.INIT, 1, False),
    ],
)
def test_which_containers_restart(policy: str, kind: Kind, code: int, expected: bool) -> None:
    assert is_restarted(policy, kind, code) is expected


def test_back_off_doubles_up_to_five_minutes_and_is_forgotten() -> None:
    off, seen = BackOff(), []
    for _ in range(8):
        seen.append(off.nominal)
        off = off.after(lasted=1)
    assert seen == [0, 10, 20, 40, 80, 160, 300, 300]
    assert off.after(lasted=601).nominal == 10
    assert BackOff(0.1, 2).delay == pytest.approx(2)


@pytest.mark.parametrize(("seconds", "expected"), [(0, "0s"), (40, "40s"), (80, "1m20s"), (300, "5m0s")])
def test_durations_are_told_as_go_does(seconds: int, expected: str) -> None:
    assert spoken(seconds) == expected


@pytest.mark.parametrize(
    ("code", "killed", "expected"), [(0, False, "Completed"), (1, False, "Error"), (137, True, "OOMKilled")]
)
def test_exit_reasons(code: int, killed: bool, expected: str) -> None:
    assert exit_reason(code, killed) == expected


PORTS = {"ports": [{"name": "web", "containerPort": 8080}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"exec": {"command": ["a", "b"]}}, Command(("a", "b"))),
        ({"httpGet": {"port": "web"}}, Fetch("http://10.0.0.1:8080/")),
        ({"httpGet": {"port": 1, "path": "/x", "scheme": "HTTPS", "host": "h"}}, Fetch("https://h:1/x")),
        ({"tcpSocket": {"port": "web"}}, Connect("10.0.0.1", 8080)),
        ({"grpc": {"port": 5}}, Connect("10.0.0.1", 5)),
        ({"sleep": {"seconds": 3}}, Sleep(3)),
    ],
)
def test_actions_of_probes_and_hooks(spec: dict[str, object], expected: probes.Action) -> None:
    assert probes.action(spec, PORTS, "10.0.0.1") == expected


def test_a_probe_has_kubernetes_defaults() -> None:
    found = probes.probe({"livenessProbe": {"tcpSocket": {"port": 1}}}, ProbeKind.LIVENESS, "a")
    assert found == Probe(ProbeKind.LIVENESS, Connect("a", 1), 0, 10, 1, 1, 3, None)
    assert probes.probe({}, ProbeKind.LIVENESS, "a") is None


def test_verdicts_need_answers_in_a_row() -> None:
    asked = Probe(ProbeKind.READINESS, Sleep(0), successes=2, failures=2)
    tally, seen = Tally(), []
    for good in (True, False, True, True, False, False):
        tally = tally.after(Answer(good))
        seen.append(probes.judge(asked, tally))
    undecided = Verdict.UNDECIDED
    assert seen == [undecided, undecided, undecided, Verdict.PASSED, undecided, Verdict.FAILED]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500m", 0.5), ("2", 2), ("1Ki", 1024), ("1.5Gi", 1.5 * 2**30), ("3k", 3000), ("1e3", 1000), ("2E", 2e18), (4, 4)],
)
def test_quantities(text: str | int, expected: float) -> None:
    assert float(quantities.amount(text)) == expected


@pytest.mark.parametrize("text", ["", "x", "1Qi", "1 Gi", "--1"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        quantities.amount(text)


@given(st.integers(0, 10**15), st.sampled_from(["1", "1Mi", "1k", "7"]))
def test_units_are_rounded_up(value: int, unit: str) -> None:
    found, size = quantities.in_units(value, unit), int(quantities.amount(unit))
    assert (found - 1) * size < value <= found * size or value == found == 0


def test_events_are_the_sentences_of_a_kubelet() -> None:
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
    assert events.waiting_to_restart("c", pod, 20) == "back-off 20s restarting failed container=c pod=p_n(u)"
    assert events.probe_kill("c", ProbeKind.LIVENESS, True).message == (
        "Container c failed liveness probe, will be restarted"
    )
    record = events.record(events.mount_failed("v", "gone"), pod, "node-1", "p.1", "now")
    assert record["involvedObject"]["namespace"] == record["metadata"]["namespace"] == "n"
    assert record["source"] == {"component": "kubelet", "host": "node-1"}
    assert (record["type"], record["reason"]) == ("Warning", "FailedMount")


@pytest.mark.parametrize(
    ("policy", "state", "is_lost"),
    [
        ("Never", {"running": {"startedAt": "1"}}, True),
        ("Never", {"waiting": {"reason": "ContainerCreating"}}, False),
        ("Always", {"running": {"startedAt": "1"}}, False),
    ],
)
def test_what_must_not_be_done_twice_is_lost_with_its_kubelet(policy: str, state: Json, is_lost: bool) -> None:
    status = {"containerStatuses": [{"name": "main", "state": state, "ready": True, "started": True}]}
    found = lost({"spec": {"restartPolicy": policy}, "status": status}, "2")
    assert (found is not None) is is_lost
    if found:
        ended = found["containerStatuses"][0]
        assert (found["phase"], ended["ready"]) == ("Failed", False)
        terminated = ended["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"], terminated["startedAt"]) == (
            137,
            "ContainerStatusUnknown",
            "1",
        )


def test_a_new_pod_is_not_lost() -> None:
    assert lost({"spec": {"restartPolicy": "Never"}, "status": {}}, "2") is None
