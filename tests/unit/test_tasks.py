"""From a spec to a ticket, a plan and tasks."""

from dataclasses import replace
from pathlib import Path

from kinetic_ray.backends.local.env import cluster_environment
from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.runner import scaling
from kinetic_ray.runner.queue import Lease, Slice, Ticket
from kinetic_ray.runner.slices import hosts_of
from kinetic_ray.runner.tasks import Start, plan_of, tasks_of, ticket_of

JOB = make_id("job", 1, bytes(10))
CPU = JobSpec(JOB, "f", 1.0, "cpu", Blob("ab", 2), Fingerprint("3.11.7", "2.60.0", "3.1", "0.1"))
V6E = replace(CPU, accelerator="tpu-v6e-8", chips_per_host=4, num_slices=2, runtime="jax")


def test_tickets() -> None:
    assert ticket_of(V6E, 3) == Ticket(JOB, 3, "tpu-v6e-8", chips_per_host=4, slices=2, name="f")
    assert ticket_of(replace(V6E, chips_per_host=None), 3).chips_per_host == 8
    gang = Ticket(JOB, 1, "cpu", hosts=2, cpus=0.5, memory=7, name="f")
    assert ticket_of(replace(CPU, hosts=2, cpus=0.5, memory=7), 1) == gang
    assert ticket_of(replace(CPU, accelerator="cpu-2", cpus=2.0), 1) == Ticket(
        JOB, 1, "cpu", hosts=1, cpus=2.0, name="f"
    )
    named = ticket_of(replace(V6E, priority=7, name="nightly"), 1)
    assert (named.priority, named.name, named.yields, named.ancestors) == (7, "nightly", False, ())


def test_plans_carry_the_devices_and_the_values_of_variables() -> None:
    plan = plan_of(V6E, {"A": "1"}, simulated=True)
    assert (plan.runtime, plan.chips, plan.simulated, plan.env_vars) == ("jax", 4, True, {"A": "1"})
    assert plan_of(CPU, {}, simulated=True).chips == 0


def test_tasks_are_by_rank_and_share_what_all_share() -> None:
    lease = Lease(ticket_of(V6E, 2), (Slice("s-0", ("n0", "n1")), Slice("s-1", ("n2", "n3"))))
    start = Start(2, 1, "10.0.0.1:4000", "10.0.0.1:4001")
    tasks = tasks_of(V6E, start, hosts_of(lease), store_url="file:///s", output_dir="/s/out", simulated=True)
    assert [(t.rank, t.world_size, t.slice_index, t.slice_name) for t in tasks] == [
        (0, 4, 0, "s-0"),
        (1, 4, 0, "s-0"),
        (2, 4, 1, "s-1"),
        (3, 4, 1, "s-1"),
    ]
    assert {(t.epoch, t.attempt, t.coordinator, t.store_url, t.output_dir) for t in tasks} == {
        (2, 1, "10.0.0.1:4000", "file:///s", "/s/out")
    }
    assert tasks[2].env["MEGASCALE_SLICE_ID"] == "1"


def test_only_the_values_that_someone_gets_are_kept() -> None:
    lease = Lease(ticket_of(V6E, 2), (Slice("s-0", ("n0", "n1")), Slice("s-1", ("n2", "n3"))))
    start = Start(2, 1, "10.0.0.1:4000", "10.0.0.1:4001")
    for gather, kept in (("leader", [True, False, False, False]), ("all", [True] * 4)):
        spec = replace(V6E, gather=gather)
        tasks = tasks_of(spec, start, hosts_of(lease), store_url="file:///s", output_dir="/s/out", simulated=True)
        assert [task.keeps_value for task in tasks] == kept


def test_what_a_driver_reads_of_its_environment_an_embedded_cluster_sets() -> None:
    there = cluster_environment(Path("/r"), Path("/r/token"), Path("/r/sock"), Path("/r/secrets"))
    assert {scaling.SUPERVISOR: "/r/sock", scaling.SIMULATED: "1"}.items() <= there.items()
