"""What the kubelet does for the whole cluster: names, services, TPUs, faults of hosts, logs."""

import asyncio
import base64
import contextlib
import json
import socket
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.sim.kubelet import cgroups, faults, routing, tpu_webhook, tpus
from cluster.sim.kubelet.cgroups import CgroupTree
from cluster.sim.kubelet.faults import Fault, ForcedExit, NodeFault
from cluster.sim.kubelet.logs import LogQuery, LogView, Stamper, parse_query
from cluster.sim.kubelet.network import DnsServer, Network, splice
from cluster.sim.kubelet.options import parse
from cluster.sim.kubelet.streams import exit_status
from cluster.sim.kubelet.tpus import HostShape


def service(address: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "svc", "namespace": "ns"}, "spec": {"clusterIP": address, **spec}}


def endpoint_slice(*endpoints: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "svc-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "svc"}},
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": 8080}],
        "endpoints": list(endpoints),
    }


READY = {"addresses": ["10.0.0.1"], "hostname": "h-0", "conditions": {"ready": True}}
UNREADY = {"addresses": ["10.0.0.2"], "hostname": "h-1", "conditions": {"ready": False}}
SUFFIX = "svc.cluster.local"


@pytest.mark.parametrize(
    ("name", "spec", "expected"),
    [
        (f"svc.ns.{SUFFIX}", service("10.96.1.1"), ("10.96.1.1",)),
        (f"SVC.ns.{SUFFIX}.", service("10.96.1.1"), ("10.96.1.1",)),
        (f"svc.ns.{SUFFIX}", service("None"), ("10.0.0.1",)),
        (f"svc.ns.{SUFFIX}", service("None", publishNotReadyAddresses=True), ("10.0.0.1", "10.0.0.2")),
        (f"h-0.svc.ns.{SUFFIX}", service("None"), ("10.0.0.1",)),
        (f"h-1.svc.ns.{SUFFIX}", service("None"), None),
        (f"h-1.svc.ns.{SUFFIX}", service("None", publishNotReadyAddresses=True), ("10.0.0.2",)),
        (f"other.ns.{SUFFIX}", service("10.96.1.1"), None),
        ("storage.example.com", service("None"), ("10.244.0.1",)),
        ("example.com", service("None"), None),
    ],
)
def test_names_of_the_cluster(name: str, spec: dict[str, Any], expected: tuple[str, ...] | None) -> None:
    slices = [endpoint_slice(READY, UNREADY)]
    assert routing.resolve(name, {("ns", "svc"): spec}, slices, {"storage.example.com": "10.244.0.1"}) == expected


def test_ports_of_endpoints_go_by_name() -> None:
    (found,) = routing.endpoints([endpoint_slice(READY)], ("ns", "svc"))
    assert (found.address, found.port("web", 1), found.port("other", 1)) == ("10.0.0.1", 8080, 1)


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


@pytest.mark.parametrize(
    ("kind", "addresses", "code", "count"),
    [(1, ("10.0.0.1", "10.0.0.2"), 0, 2), (28, ("10.0.0.1",), 0, 0), (1, None, 3, 0), (1, (), 0, 0)],
)
def test_dns_packets(kind: int, addresses: tuple[str, ...] | None, code: int, count: int) -> None:
    packet = query("a.b", kind)
    assert routing.question(packet)[:2] == ("a.b", kind)
    answer = routing.answer(packet, addresses)
    ident, flags, _, answers = struct.unpack(">HHHH", answer[:8])
    assert (ident, flags & 15, answers) == (7, code, count)
    assert len(answer) == len(packet) + 16 * count


@given(st.binary(max_size=40))
def test_packets_that_are_no_question_are_refused(packet: bytes) -> None:
    with contextlib.suppress(ValueError):  # and nothing else
        routing.question(packet)


def test_the_dns_answers_over_its_socket() -> None:
    async def ask() -> bytes:
        network, loop = Network({"a.b": "10.0.0.7"}), asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: DnsServer(network), ("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.setblocking(False)
            await loop.sock_connect(link, transport.get_extra_info("sockname"))
            await loop.sock_sendall(link, b"no question")
            await loop.sock_sendall(link, query("a.b"))
            answer = await asyncio.wait_for(loop.sock_recv(link, 512), 20)
        transport.close()
        return answer

    assert asyncio.run(ask()).endswith(socket.inet_aton("10.0.0.7"))


def test_bytes_pass_both_ways_until_both_have_ended() -> None:
    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    async def ask() -> bytes:
        behind = await asyncio.start_server(upper, "127.0.0.1", 0)
        place = behind.sockets[0].getsockname()

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await splice(reader, writer, *await asyncio.open_connection(*place))

        before = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*before.sockets[0].getsockname())
        writer.write(b"hello")
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 20)
        for one in (writer, before, behind):
            one.close()
            await one.wait_closed()
        return answer

    assert asyncio.run(ask()) == b"HELLO"


def test_files_that_every_container_finds() -> None:
    pod: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"hostname": "h", "subdomain": "s"}}
    assert f"10.0.0.1\th.s.ns.{SUFFIX}\th" in routing.hosts_file(pod, "10.0.0.1")
    text = routing.resolv_conf(pod, "10.96.0.10")
    assert text.splitlines() == [
        "nameserver 10.96.0.10",
        f"search ns.{SUFFIX} {SUFFIX} cluster.local",
        "options ndots:5",
    ]
    pod["spec"] = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "options": [{"name": "x"}]}}
    assert routing.resolv_conf(pod, "10.96.0.10").splitlines() == ["nameserver 1.1.1.1", "options x"]


@pytest.mark.parametrize(
    ("accelerator", "topology", "chips", "kind", "hosts", "bounds"),
    [
        ("tpu-v6e-slice", "4x4", 4, "v6e-16", 4, "2,2,1"),
        ("tpu-v6e-slice", "2x4", 8, "v6e-8", 1, "1,1,1"),
        ("tpu-v5-lite-podslice", "1x1", 1, "v5litepod-1", 1, "1,1,1"),
        ("tpu-v4-podslice", "2x2x2", 4, "v4-16", 2, "1,1,2"),
        ("tpu-v5p-slice", "4x4x4", 4, "v5p-128", 16, "2,2,4"),
        ("tpu7x", "2x2x1", 4, "tpu7x-8", 1, "1,1,1"),
    ],
)
def test_what_the_device_plugin_tells(
    accelerator: str, topology: str, chips: int, kind: str, hosts: int, bounds: str
) -> None:
    shape = tpus.host_shape({tpus.ACCELERATOR: accelerator, tpus.TOPOLOGY: topology}, chips)
    assert shape is not None
    assert (shape.type, shape.hosts) == (kind, hosts)
    env = tpus.device_variables(shape, chips, "10.0.0.9")
    assert (env["TPU_ACCELERATOR_TYPE"], env["TPU_TOPOLOGY"], env["TPU_HOST_BOUNDS"]) == (kind, topology, bounds)
    assert ("TPU_WORKER_ID" in env) is (hosts == 1)
    assert "TPU_NAME" not in env
    assert len(env["TPU_RUNTIME_METRICS_PORTS"].split(",")) == chips


def test_cubes_wrap_and_other_hosts_have_no_shape() -> None:
    cube = tpus.device_variables(HostShape("v5p-128", (4, 4, 4), 4), 4, "h")
    assert (cube["TPU_TOPOLOGY_WRAP"], cube["ENABLE_ICI_RESILIENCY"]) == ("true,true,true", "true")
    assert tpus.host_shape({}, 4) is None
    assert tpus.host_shape({tpus.ACCELERATOR: "tpu-v6e-slice", tpus.TOPOLOGY: "4x4"}, 0) is None


def worker_pod(topology: str = "4x4", **container: Any) -> dict[str, Any]:
    labels = {
        tpu_webhook.CLUSTER: "c",
        tpu_webhook.GROUP: "g",
        tpu_webhook.REPLICA_NAME: "g-abc",
        tpu_webhook.REPLICA_INDEX: "1",
        tpu_webhook.HOST_INDEX: "2",
    }
    main = {"name": "ray", "resources": {"limits": {"google.com/tpu": "4"}}, **container}
    selector = {tpus.ACCELERATOR: "tpu-v6e-slice", tpus.TOPOLOGY: topology}
    spec = {"containers": [{"name": "side"}, main], "nodeSelector": selector}
    return {"metadata": {"name": "p", "labels": labels}, "spec": spec}


def patches(pod: dict[str, Any]) -> dict[str, Any]:
    answer = tpu_webhook.review({"request": {"uid": "u", "object": pod}})["response"]
    assert (answer["uid"], answer["allowed"]) == ("u", True)
    found = json.loads(base64.b64decode(answer.get("patch", base64.b64encode(b"[]"))))
    return {one["path"]: one["value"] for one in found}


def test_the_webhook_names_hosts_and_keeps_a_slice_together() -> None:
    found = patches(worker_pod())
    env = {one["name"]: one.get("value") for one in found["/spec/containers/1/env"]}
    assert (env["TPU_WORKER_ID"], env["TPU_NAME"]) == ("2", "g-1")
    hosts = str(env["TPU_WORKER_HOSTNAMES"]).split(",")
    assert hosts == [f"g-1-{host}.c-headless" for host in range(4)]
    assert (found["/spec/hostname"], found["/spec/subdomain"]) == ("g-1-2", "c-headless")
    assert set(found["/spec/affinity"]) == {"podAffinity", "podAntiAffinity"}
    assert "/spec/containers/0/env" not in found


def test_the_webhook_leaves_what_is_set_and_what_is_none_of_its_business() -> None:
    found = patches(worker_pod("2x2", env=[{"name": "TPU_NAME", "value": "mine"}]))
    env = {one["name"]: one.get("value") for one in found["/spec/containers/1/env"]}
    assert env["TPU_NAME"] == "mine"
    assert "TPU_WORKER_HOSTNAMES" not in env
    assert "/spec/affinity" not in found
    assert patches(worker_pod(resources={})) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("preempt", NodeFault(Fault.PREEMPT)),
        ("preempt:5", NodeFault(Fault.PREEMPT, 5)),
        ("maintenance:0.5", NodeFault(Fault.MAINTENANCE, 0.5)),
        ("silent", NodeFault(Fault.SILENT)),
        ("crash", NodeFault(Fault.CRASH)),
        ("", None),
        ("preempt:soon", None),
        ("other", None),
    ],
)
def test_faults_of_hosts(text: str, expected: NodeFault | None) -> None:
    assert faults.node_fault({faults.NODE_FAULT: text}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("main:1", ForcedExit("main", 1)),
        ("a-b:137:OOMKilled", ForcedExit("a-b", 137, "OOMKilled")),
        ("main", None),
        ("main:x", None),
    ],
)
def test_ends_of_containers(text: str, expected: ForcedExit | None) -> None:
    assert faults.forced_exit({faults.CONTAINER_EXIT: text}) == expected


def test_a_statement_that_still_holds_keeps_its_moment() -> None:
    first = faults.node_conditions(ready=True, shutting_down=False, now="1")
    again = faults.node_conditions(True, False, "2", {"status": {"conditions": first}})
    down = faults.node_conditions(False, True, "3", {"status": {"conditions": again}})
    assert {one["lastTransitionTime"] for one in again} == {"1"}
    assert {one["lastHeartbeatTime"] for one in again} == {"2"}
    ready = next(one for one in down if one["type"] == "Ready")
    assert (ready["status"], ready["lastTransitionTime"], ready["message"]) == ("False", "3", "node is shutting down")


def test_the_notice_of_a_hosts_end_is_a_taint_that_goes_again() -> None:
    own = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
    noticed = faults.taints({"taints": [own]}, notice=True)
    assert [one["key"] for one in noticed] == ["google.com/tpu", "cloud.google.com/impending-node-termination"]
    assert faults.taints({"taints": noticed}, notice=True) == noticed
    assert faults.taints({"taints": noticed}, notice=False) == [own]


MOMENT = "2026-01-01T00:00:00.000000Z"


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_every_line_is_stamped_once_however_it_comes(pieces: list[bytes]) -> None:
    stamper = Stamper()
    kept = b"".join(stamper.stamp(piece, MOMENT) for piece in pieces)
    whole = b"".join(pieces)
    assert kept.replace(f"{MOMENT} ".encode(), b"") == whole
    assert kept.count(MOMENT.encode()) == whole.count(b"\n") + (whole != b"" and not whole.endswith(b"\n"))


def line(second: int, text: str) -> bytes:
    return f"2026-01-01T00:00:{second:02}.000000Z {text}".encode()


KEPT = [line(1, "a\n"), line(2, "b\n"), line(3, "c\n")]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, b"a\nb\nc\n"),
        ({"tailLines": "2"}, b"b\nc\n"),
        ({"tailLines": "0"}, b""),
        ({"sinceTime": "2026-01-01T00:00:02Z"}, b"b\nc\n"),
        ({"sinceTime": "2026-01-01T00:00:02.5Z"}, b"c\n"),
        ({"limitBytes": "3"}, b"a\nb"),
        ({"timestamps": "true", "tailLines": "1"}, KEPT[2]),
    ],
)
def test_logs_as_they_are_asked_for(asked: dict[str, str], expected: bytes) -> None:
    query = parse_query(asked)
    view = LogView(query)
    assert b"".join(view.show(one) for one in query.last(KEPT)) == expected


def test_the_rest_of_a_line_is_shown_as_its_beginning_was() -> None:
    view = LogView(LogQuery())
    assert [view.show(piece) for piece in (line(1, "abc"), b"def\n", line(2, "g\n"))] == [b"abc", b"def\n", b"g\n"]
    late = LogView(LogQuery(since="2026-01-01T00:00:02"))
    assert [late.show(piece) for piece in (line(1, "abc"), b"def\n", line(2, "g\n"))] == [b"", b"", b"g\n"]


def test_seconds_are_counted_back_from_now() -> None:
    assert parse_query({"sinceSeconds": "5"}, datetime(2026, 1, 1, 0, 0, 8, tzinfo=UTC)).since == "2026-01-01T00:00:03"


@pytest.mark.parametrize(("code", "status"), [(0, "Success"), (7, "Failure")])
def test_ends_of_commands(code: int, status: str) -> None:
    found = exit_status(code)
    assert found["status"] == status
    assert code == 0 or found["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


def test_groups_of_memory_of_either_version(tmp_path: Path) -> None:
    assert cgroups.find_tree("p", tmp_path) is None
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert cgroups.find_tree("p", tmp_path) == CgroupTree(tmp_path / "p", unified=True)
    (tmp_path / "memory").mkdir()
    tree = cgroups.find_tree("p", tmp_path)
    assert tree == CgroupTree(tmp_path / "memory" / "p", unified=False)
    tree.prepare("uid")
    group = tree.group("uid", "main")
    group.create(100)
    assert (group.folder / "memory.limit_in_bytes").read_text() == "100"
    (group.folder / "memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    assert group.ran_out()


@pytest.mark.parametrize(("text", "count"), [("oom 3\noom_kill 2\noom_group_kill 0\n", 2), ("", 0)])
def test_the_kernels_account_of_what_it_killed(text: str, count: int) -> None:
    assert cgroups.killed(text) == count


def test_flags() -> None:
    words = "--server=s --prefix=p --token-file=t --ca=c --images=i --dir=d --tls-cert=x --tls-key=y --netns=n"
    found = parse([*words.split(), "--memory-limits", '--dns-extra={"a": "b"}'])
    assert (found.dir, found.memory_limits, found.dns_extra, found.node_type) == (
        Path("d"),
        True,
        {"a": "b"},
        "process",
    )
