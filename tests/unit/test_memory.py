"""When a rank ends for memory: how much there is, who has to go, what is told, and what isn't memory's doing."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest

from kinetic_ray.core.memory import Memory, Sizes, amount, has_to_end, words_for, words_for_kernel
from kinetic_ray.core.state import Reason
from kinetic_ray.runner.deaths import cause_of_death, ended_by_ray_for_memory
from kinetic_ray.runner.link import Child
from kinetic_ray.runner.meter import Meter
from kinetic_ray.runner.shortage import MemoryGuard, Neighbours

GB, MB = 10**9, 10**6
SIXTEEN = 16 * GB
SHORT, FINE = Memory(300 * MB, SIXTEEN), Memory(9 * GB, SIXTEEN)


# The decision.


@pytest.mark.parametrize(
    ("limit", "reserve"), [(GB, 256 * MB), (SIXTEEN, 800 * MB), (24 * GB, 1200 * MB), (400 * GB, 4 * GB)]
)
def test_what_is_kept_free_grows_with_the_host_within_bounds(limit: int, reserve: int) -> None:
    memory = Memory(reserve - 1, limit)
    assert (memory.reserve, memory.is_short, memory.is_near) == (reserve, True, True)
    assert not Memory(reserve, limit).is_short


def test_the_closer_the_end_the_sooner_the_next_look() -> None:
    pauses = [Memory(available, SIXTEEN).pause for available in (SIXTEEN, 4 * GB, 2 * GB, GB, 0)]
    assert pauses == sorted(pauses, reverse=True)
    assert (pauses[0], pauses[-1]) == (1.0, 0.05)


@pytest.mark.parametrize(
    ("own", "sizes", "memory", "short_for", "ends"),
    [
        pytest.param("a", {"a": 9 * GB, "b": GB}, FINE, 99.0, False, id="there is enough"),
        pytest.param("a", {"a": 9 * GB, "b": GB}, SHORT, 0.0, True, id="the largest, at once"),
        pytest.param("b", {"a": 9 * GB, "b": GB}, SHORT, 1.9, False, id="the next leaves it to the largest"),
        pytest.param("b", {"a": 9 * GB, "b": GB}, SHORT, 2.1, True, id="whose agent may be stopped"),
        pytest.param("c", {"a": 9 * GB, "b": 9 * GB, "c": GB}, SHORT, 2.1, False, id="third in line"),
        pytest.param("b", {"a": GB, "b": GB}, SHORT, 0.0, False, id="equals: only one of them"),
        pytest.param("a", {"a": GB, "b": GB}, SHORT, 0.0, True, id="equals: always the same"),
        pytest.param("a", {"a": 200 * MB}, SHORT, 99.0, False, id="somebody else has it all"),
        pytest.param("a", {"b": 9 * GB}, SHORT, 99.0, False, id="one that has just ended"),
    ],
)
def test_who_has_to_end(own: str, sizes: dict[str, int], memory: Memory, short_for: float, ends: bool) -> None:
    assert has_to_end(own, Sizes(sizes), memory, short_for) is ends


@pytest.mark.parametrize(("allowed", "ends"), [(None, False), (300 * MB, False), (299 * MB, True)])
def test_ranks_have_no_more_together_than_they_may(allowed: int | None, ends: bool) -> None:
    sizes = Sizes({"a": 200 * MB, "b": 100 * MB}, allowed)
    assert has_to_end("a", sizes, FINE, 0.0) is ends
    assert not has_to_end("b", sizes, FINE, 0.0)


def test_what_is_told_has_the_figures() -> None:
    sizes = {"a": 14_200 * MB, "b": 500 * MB, "c": 500 * MB}
    assert words_for(sizes["a"], Sizes(sizes), SHORT) == (
        "out of memory: it had 14.2 GB with all its processes, 2 more here 1.0 GB, of the 16.0 GB that its host has, "
        "and 300 MB were left, so it was ended before others were: use less of it, or hosts with more"
    )
    alone = words_for(14_200 * MB, Sizes({"a": 14_200 * MB}), SHORT)
    assert "more here" not in alone
    bound = words_for(sizes["a"], Sizes(sizes, allowed=15 * GB), FINE)
    assert "of the 15.0 GB that KINETIC_LOCAL_MEMORY_MB lets all ranks have together" in bound
    assert "14.2 GB of 16.0 GB when last seen" in words_for_kernel(14_200 * MB, SHORT)
    assert words_for_kernel(0, SHORT).startswith("killed by the kernel because the host ran out of memory: use less")
    assert amount(1_049_000_000) == "1.0 GB"


# What the kernel tells.


def tree(root: Path, files: dict[str, str]) -> Path:
    meminfo = "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n"
    vmstat = "nr_free_pages 1\noom_kill 7\n"
    for name, text in {"proc/meminfo": meminfo, "proc/vmstat": vmstat, **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


V2_MOUNT = "30 23 0:26 {shown} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1_MOUNT = "33 24 0:29 {shown} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2_GROUP = {
    "memory.max": "4000000000\n",
    "memory.current": "3000000000\n",
    "memory.stat": "anon 2000000000\ninactive_file 400000000\nactive_file 200000000\nshmem 100000000\n",
    "memory.events": "low 0\nhigh 0\nmax 5\noom 2\noom_kill 3\n",
}
V1_GROUP = {
    "memory.limit_in_bytes": "4000000000\n",
    "memory.usage_in_bytes": "3000000000\n",
    "memory.stat": "cache 1\ntotal_inactive_file 400000000\ntotal_active_file 200000000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
}
NO_LIMIT = {"memory.max": "max\n", "memory.limit_in_bytes": "9223372036854771712\n"}


def group(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"sys/fs/cgroup/{folder}/{name}".replace("//", "/"): text for name, text in files.items()}


def without_limit(files: dict[str, str]) -> dict[str, str]:
    return {name: NO_LIMIT.get(name, text) for name, text in files.items()}


def process(cgroup: str, mounts: str) -> dict[str, str]:
    return {"proc/self/cgroup": cgroup, "proc/self/mountinfo": f"22 1 8:1 / / rw - ext4 /dev/x rw\n{mounts}"}


LIMITED = Memory(1_600 * MB, 4 * GB, kills=3, counts_others=False)
MACHINE = (8_192 * 10**6, 16_384 * 10**6)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, Memory(*MACHINE, 7, counts_others=True), id="no groups"),
        pytest.param(
            {**process("0::/\n", V2_MOUNT.format(shown="/")), **group("", V2_GROUP)}, LIMITED, id="v2, a container"
        ),
        pytest.param(
            {**process("0::/a/b\n", V2_MOUNT.format(shown="/")), **group("a/b", V2_GROUP)}, LIMITED, id="v2, its own"
        ),
        pytest.param(
            {
                **process("0::/a/b\n", V2_MOUNT.format(shown="/")),
                **group("a", V2_GROUP),
                **group("a/b", without_limit(V2_GROUP)),
            },
            LIMITED,
            id="v2, the limit of one around it",
        ),
        pytest.param(
            {**process("0::/a\n", V2_MOUNT.format(shown="/")), **group("a", without_limit(V2_GROUP))},
            Memory(*MACHINE, 3, counts_others=False),
            id="v2, no limit",
        ),
        pytest.param(
            {**process("0::/\n", V2_MOUNT.format(shown="/")), "sys/fs/cgroup/cgroup.procs": ""},
            Memory(*MACHINE, 7, counts_others=True),
            id="v2, the top of all, which counts nothing",
        ),
        pytest.param(
            {**process("4:memory:/a\n0::/\n", V1_MOUNT.format(shown="/")), **group("memory/a", V1_GROUP)},
            LIMITED,
            id="v1",
        ),
        pytest.param(
            {**process("9:cpu,memory:/box/x\n", V1_MOUNT.format(shown="/box/x")), **group("memory", V1_GROUP)},
            LIMITED,
            id="v1, a container that is told the path outside",
        ),
        pytest.param(
            {**process("4:memory:/a\n", V1_MOUNT.format(shown="/")), **group("memory/a", without_limit(V1_GROUP))},
            Memory(*MACHINE, 3, counts_others=False),
            id="v1, no limit",
        ),
        pytest.param(process("0::/gone\n", ""), Memory(*MACHINE, 7, counts_others=True), id="nothing is mounted"),
    ],
)
def test_the_limit_that_applies_is_read(files: dict[str, str], expected: Memory, tmp_path: Path) -> None:
    assert Meter(tree(tmp_path, files)).read() == expected


def test_a_machine_that_has_less_left_than_the_container_may_have_counts(tmp_path: Path) -> None:
    files = {**process("0::/\n", V2_MOUNT.format(shown="/")), **group("", V2_GROUP)}
    files["proc/meminfo"] = "MemTotal: 16000000 kB\nMemAvailable: 100000 kB\n"
    assert Meter(tree(tmp_path, files)).read().available == 100_000 * 1024


# The guard of one rank.

#: Of a small machine: not yet short, so nobody has to end.
NEAR = 400 * MB


class Rank:
    """A guard whose rank has this test's processes, on a machine of the test's own."""

    def __init__(self, root: Path, *, allowed: int | None = None) -> None:
        self.root = tree(root, {})
        self.child: Child = Child(12345, Future())
        self.ends = 0
        self.ranks = root / "ranks"
        above = psutil.Process().ppid()
        self.guard = MemoryGuard(above, self.child, self.end, Meter(self.root), self.ranks, allowed)
        Neighbours(self.ranks).enter(str(self.child.pid), above)

    def end(self) -> None:
        self.ends += 1

    def machine(self, available: int, kills: int = 7) -> None:
        """What the next look sees."""
        text = f"MemTotal: 100000 kB\nMemAvailable: {available // 1024} kB\n"
        tree(self.root, {"proc/meminfo": text, "proc/vmstat": f"oom_kill {kills}\n"})


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    found = Rank(tmp_path)
    yield found
    found.child.ended.cancel()


def test_a_rank_is_left_alone_while_there_is_enough(rank: Rank) -> None:
    rank.guard.look(0.0)
    assert (rank.ends, rank.guard.cause(-signal.SIGKILL)) == (0, "")


def test_a_rank_over_what_all_may_have_is_ended_and_told_so(tmp_path: Path) -> None:
    rank = Rank(tmp_path, allowed=MB)
    rank.guard.look(0.0)
    assert rank.ends == 1
    reason, text = cause_of_death(-9, "", "before the function returned", rank.guard.cause(-9))
    assert reason is Reason.OUT_OF_MEMORY
    assert "of the 1 MB that KINETIC_LOCAL_MEMORY_MB lets all ranks have together" in text


@pytest.mark.parametrize("code", [0, 1, 3, -signal.SIGTERM, -signal.SIGSEGV])
def test_one_that_ended_by_itself_meanwhile_died_of_that(code: int, tmp_path: Path) -> None:
    rank = Rank(tmp_path, allowed=MB)
    rank.guard.look(0.0)
    assert rank.guard.cause(code) == ""


def test_only_one_decides_at_a_time(tmp_path: Path) -> None:
    rank = Rank(tmp_path, allowed=MB)
    with Neighbours(rank.ranks).deciding() as mine:
        assert mine
        rank.guard.look(0.0)
        assert rank.ends == 0
    rank.guard.look(1.0)
    assert rank.ends == 1


def test_ranks_whose_agents_are_gone_are_forgotten(tmp_path: Path) -> None:
    neighbours = Neighbours(tmp_path / "ranks")
    neighbours.enter("1", psutil.Process().pid)
    (tmp_path / "ranks" / "2").write_text(f"{2**22 + 1} 0.0")  # no such process
    (tmp_path / "ranks" / "3").write_text(f"{psutil.Process().pid} 17.0")  # another process had its number
    (tmp_path / "ranks" / "4").write_text("")  # is just entering
    assert neighbours.sizes().keys() == {"1"}
    assert {file.name for file in (tmp_path / "ranks").iterdir()} == {"1", "4"}
    neighbours.leave("1")
    assert neighbours.sizes() == {}


def test_the_last_to_leave_takes_the_folder_along(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    first, second = Neighbours(folder), Neighbours(folder)
    first.enter("1", os.getpid())
    second.enter("2", os.getpid())
    with first.deciding():
        first.leave("1")
        assert folder.exists()
    second.leave("2")
    assert not folder.exists()
    first.enter("3", os.getpid())
    assert first.sizes().keys() == {"3"}
    first.leave("3")
    first.leave("3")
    assert not folder.exists()


def test_a_kill_by_the_kernel_is_told_from_anyone_elses(rank: Rank) -> None:
    """The machine's counter rises for any process: only a machine that was seen to be short makes it this rank's."""
    rank.guard.look(0.0)
    rank.machine(8 * GB, kills=8)
    assert rank.guard.cause(-signal.SIGKILL) == ""  # somebody else's, in a container of its own
    rank.machine(NEAR, kills=8)
    rank.guard.look(1.0)
    rank.machine(8 * GB, kills=9)
    assert "killed by the kernel because the host ran out of memory" in rank.guard.cause(-signal.SIGKILL)
    assert rank.guard.cause(None) == ""
    assert rank.guard.cause(1) == ""


@pytest.mark.parametrize(("later", "is_its_own"), [(9.0, True), (30.0, False)])
def test_a_kill_of_long_ago_is_not_this_ranks(later: float, is_its_own: bool, rank: Rank) -> None:
    """What had much memory takes a while to end, in which there are many looks."""
    rank.machine(NEAR, kills=7)
    rank.guard.look(0.0)
    rank.machine(NEAR, kills=8)
    for step in range(31):
        rank.guard.look(1.0 + later * step / 30)
    assert bool(rank.guard.cause(-signal.SIGKILL)) is is_its_own


def test_the_count_of_the_own_container_is_enough(tmp_path: Path) -> None:
    files = {**process("0::/\n", V2_MOUNT.format(shown="/")), **group("", V2_GROUP)}
    root = tree(tmp_path, files)
    guard = MemoryGuard(1, Child(2, Future()), lambda: None, Meter(root), tmp_path / "ranks")
    tree(tmp_path, {**files, "proc/vmstat": "oom_kill 99\n"})
    assert guard.cause(-signal.SIGKILL) == ""
    tree(tmp_path, {"sys/fs/cgroup/memory.events": "oom 3\noom_kill 4\n"})
    assert "killed by the kernel" in guard.cause(-signal.SIGKILL)


# What Ray tells.

_ANY_DEATH = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: HostAgent\nThe actor is dead because its "
    "worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
    "connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer "
    "due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV."
)
_FOR_MEMORY = (
    "Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1, ID: ab) where the lease "
    "(actor ID: 12, name=HostAgent.__init__, pid=7, memory used=0.06GB) was running was 15.30GB / 16.00GB (0.956), "
    "which exceeds the memory usage threshold of 0.95."
)


@pytest.mark.parametrize(("words", "is_memory"), [(_ANY_DEATH, False), (_FOR_MEMORY, True), ("", False)])
def test_an_agent_that_ray_has_ended_for_memory_is_told_from_one_that_died(words: str, is_memory: bool) -> None:
    told = ended_by_ray_for_memory(words)
    assert bool(told) is is_memory
    assert "\n" not in told
