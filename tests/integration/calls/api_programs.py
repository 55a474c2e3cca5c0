"""Scripts that call by `.remote()`, as users write them; each prints "fine" when what it asserts has held."""

PLAIN = """
import numpy as np, ray
import kinetic_ray as kinetic

@kinetic.remote
def add(a, b=0):
    print("adding", a, b)
    return a + b

@kinetic.remote
def look(pair, *, more):
    assert isinstance(pair[0], ray.ObjectRef) and isinstance(more["ref"], ray.ObjectRef), (pair, more)
    return kinetic.get(pair[0]) + kinetic.get(more["ref"])

@kinetic.remote
def measure(array):
    return array.nbytes, int(array[-1])

@kinetic.remote
def table(n):
    return {"array": np.arange(n), "made": add.remote(n, 1)}

@ray.remote(num_cpus=0)
def plain_task(x):
    return x * 10

class Mine(ValueError):
    def __init__(self, code, *, why):
        super().__init__(f"{code}: {why}")
        self.code, self.why = code, why

@kinetic.remote
def fails(code):
    try:
        {}["missing"]
    except KeyError as error:
        raise Mine(code, why="it must") from error

class Point:
    def __init__(self, x):
        self.x = x

if __name__ == "__main__":
    kinetic.init()
    ref = add.remote(1, b=2)
    assert type(ref) is ray.ObjectRef
    ready, rest = kinetic.wait([ref], timeout=120)
    assert (ready, rest) == ([ref], []) and ray.wait([ref], timeout=60) == ([ref], [])
    assert (kinetic.get(ref), ray.get(ref), ray.get(plain_task.remote(ref))) == (3, 3, 30)
    assert kinetic.get([add.remote(n, n) for n in range(20)]) == [2 * n for n in range(20)]
    assert kinetic.get((ref, add.remote(4))) == [3, 4]
    # Refs among the arguments are resolved, refs inside of them are handed over.
    assert kinetic.get(add.remote(ref, b=plain_task.remote(1))) == 13
    assert kinetic.get(look.remote([ref], more={"ref": ray.put(4)})) == 7
    put = kinetic.put(np.arange(100 << 17))  # 100 MB
    assert kinetic.get(measure.remote(put)) == (100 << 20, (100 << 17) - 1)
    assert kinetic.get(measure.remote(np.ones(1 << 20))) == (8 << 20, 1)
    assert kinetic.get(kinetic.put(Point(3))).x == 3
    assert kinetic.get(add.remote(kinetic.put(5), 1)) == 6
    made = kinetic.get(table.remote(1000))
    assert made["array"].sum() == 499500 and kinetic.get(made["made"], timeout=60) == 1001
    # Errors.
    for get, kind in ((kinetic.get, "is"), (ray.get, "isinstance")):
        try:
            get(fails.remote(7))
        except Mine as error:
            own = error if kind == "is" else error.cause
            assert type(own) is Mine and (own.code, own.why) == (7, "it must"), own
            assert "in fails" in own.__notes__[0] and type(own.__cause__) is KeyError, own.__notes__
        else:
            raise AssertionError("nothing was raised")
    try:
        kinetic.get(add.remote(ref, fails.remote(1)))
    except Mine as error:
        assert error.code == 1
    try:
        add(1, 2)
    except TypeError as error:
        assert "add.remote(...)" in str(error)
    kinetic.shutdown()
    try:
        kinetic.get(ref)
    except kinetic.UsageError as error:
        assert "no cluster" in str(error)
    assert not ray.is_initialized()
    assert kinetic.get(add.remote(2, 2)) == 4  # joins again
    print("fine")
"""

EDITS = """
import importlib, pathlib, sys
import kinetic_ray as kinetic
import helper

@kinetic.remote
def version(n):
    import helper
    return helper.VERSION, helper.more(n)

if __name__ == "__main__":
    file = pathlib.Path(helper.__file__)
    for n in range(100):
        file.write_text(f"VERSION = {n}\\ndef more(x): return x + {n}\\n")
        assert kinetic.get(version.remote(n), timeout=120) == (n, 2 * n), n
    print("fine")
"""

GANG = """
import os, signal
import ray
import kinetic_ray as kinetic

@kinetic.remote(accelerator="tpu-v6e-16", runtime="plain")
class Counter:
    def __init__(self, start):
        self.value = start + kinetic.context().rank
    def add(self, n):
        self.value += n
        return self.value
    def refuse(self):
        raise LookupError(f"rank {kinetic.context().rank}")
    def die(self, rank):
        if kinetic.context().rank == rank:
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        import threading
        threading.Event().wait(600)

@kinetic.remote
def passed_on(counter, n):
    return kinetic.get(counter.add.options(gather="all").remote(n))

@kinetic.remote(accelerator="tpu-v6e-16", runtime="plain", gather="all")
def ranks(x):
    where = kinetic.context()
    return where.rank, where.world_size, x

def died(ref, *told):
    try:
        kinetic.get(ref, timeout=60)
    except ray.exceptions.ActorDiedError as error:
        missing = [word for word in told if word not in str(error)]
        assert not missing, (missing, str(error))
    else:
        raise AssertionError("it lives")

if __name__ == "__main__":
    assert kinetic.get(ranks.remote("x"), timeout=200) == [(rank, 4, "x") for rank in range(4)]
    assert kinetic.get(ranks.options(gather="leader").remote("y"), timeout=60) == (0, 4, "y")
    counter = Counter.remote(10)
    every = counter.add.options(gather="all")
    assert kinetic.get(counter.add.remote(1), timeout=200) == 11
    refs = [counter.add.remote(1) for _ in range(50)]
    assert kinetic.get(refs) == [*range(12, 62)]  # one after the other
    assert kinetic.get(every.remote(0)) == [61, 62, 63, 64]
    try:
        kinetic.get(counter.refuse.remote())
    except LookupError as error:
        assert "rank" in str(error)
    assert kinetic.get(counter.add.remote(0)) == 61  # it lives on
    assert kinetic.get(passed_on.remote(counter, 1), timeout=120) == [62, 63, 64, 65]
    died(counter.die.remote(2), "rank 2", "SIGKILL", "last words")
    died(counter.add.remote(1), "Counter")
    other = Counter.remote(0)
    assert kinetic.get(other.add.remote(1), timeout=200) == 1
    kinetic.kill(other)
    died(other.add.remote(1), "Counter")
    print("fine")
"""

NESTED = """
import kinetic_ray as kinetic

@kinetic.remote
def leaf(x):
    return x + 1

@kinetic.remote
def branch(x):
    return sum(kinetic.get([leaf.remote(x), leaf.remote(x)]))

@kinetic.remote(accelerator="tpu-v6e-8", runtime="plain")
def on_a_slice(x):
    return kinetic.get(branch.remote(x))

@kinetic.remote(accelerator="tpu-v6e-8", runtime="plain", capacity_timeout=30)
def slice_in_a_slice(x):
    return kinetic.get(on_a_slice.remote(x))

@kinetic.run(accelerator="cpu")
def job(x):
    return kinetic.get(leaf.remote(x)) + job_part(x)

@kinetic.run(accelerator="cpu")
def job_part(x):
    return 100

if __name__ == "__main__":
    assert kinetic.get(branch.remote(1), timeout=200) == 4
    assert kinetic.get(on_a_slice.remote(2), timeout=200) == 6
    try:
        kinetic.get(slice_in_a_slice.remote(1), timeout=200)
    except Exception as error:
        assert "tpu-v6e-8" in str(error), error
    else:
        raise AssertionError("a slice in a slice of a pool of one")
    assert job(1) == 102
    print("fine")
"""

CONCURRENT = """
import threading
from concurrent.futures import ThreadPoolExecutor
import kinetic_ray as kinetic

@kinetic.remote(resources={"cpu": 0.5})
def square(x):
    return x * x

@kinetic.remote(resources={"cpu": 0.5})
class Log:
    def __init__(self):
        self.seen = []
    def add(self, x):
        self.seen.append(x)
    def take(self):
        seen, self.seen = self.seen, []
        return seen

if __name__ == "__main__":
    log = Log.remote()
    for round in range(12):
        assert kinetic.get(log.take.remote(), timeout=200) == []  # so that the next call goes straight to the host
        late = square.remote(0) if round % 3 == 0 else 0
        refs = [log.add.remote(late), *(log.add.remote(x) for x in range(1, 60))]
        assert kinetic.get(log.take.remote(), timeout=200) == [*range(60)]  # in the order in which they were made
    with ThreadPoolExecutor(8) as pool:
        values = [*pool.map(lambda x: kinetic.get(square.remote(x), timeout=200), range(100))]
    assert values == [x * x for x in range(100)]
    print("fine")
"""

LATE_THREAD = """
import threading
import kinetic_ray as kinetic

@kinetic.remote(resources={"cpu": 0.5})
def square(x):
    return x * x

def late():
    threading.main_thread().join()
    assert kinetic.get([square.remote(x) for x in range(3)], timeout=200) == [0, 1, 4]
    print("fine")

if __name__ == "__main__":
    threading.Thread(target=late).start()
"""

OTHER_CODE = """
import kinetic_ray as kinetic
from kinetic_ray.calls.connect import connect
from kinetic_ray.runner.calls.packing import pack_arguments

@kinetic.remote(resources={"cpu": 0.5})
def fail():
    raise KeyError("of the user")

if __name__ == "__main__":
    kinetic.init()
    nothing = pack_arguments((), {}, lambda name: False, "call")
    future = connect().desk.call.remote(b'{"of": "another version"}', [], nothing)
    for ref in (future, fail.remote()):
        try:
            kinetic.get(ref, timeout=200)
        except (kinetic.ConfigError, KeyError) as error:
            print(type(error).__name__, error)
"""

INTERRUPTED = """
import threading
import kinetic_ray as kinetic

@kinetic.remote
def slow(path):
    import pathlib, threading
    pathlib.Path(path).touch()
    threading.Event().wait(2)
    return "done"

@kinetic.remote
def quick():
    return "quick"

if __name__ == "__main__":
    import sys
    ref = slow.remote(sys.argv[1])
    try:
        kinetic.get(ref)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert kinetic.get(ref, timeout=120) == "done"  # the call went on
    assert kinetic.get(quick.remote(), timeout=120) == "quick"
    print("fine")
"""

PRINTS = """
import kinetic_ray as kinetic

@kinetic.remote(accelerator="tpu-v6e-16", runtime="plain")
def talk(n):
    rank = kinetic.context().rank
    for line in range(n):
        print(f"line {line} of {rank}")

if __name__ == "__main__":
    kinetic.get(talk.remote(3), timeout=200)
"""

STYLES = """
import kinetic_ray as kinetic
import helper

@kinetic.remote
def train(x):
    return x + helper.VERSION, __name__

if __name__ == "__main__":
    print("value", kinetic.get(train.remote(1), timeout=200))
"""

LOST = """
import os, pathlib, sys, threading
import kinetic_ray as kinetic
from kinetic_ray.calls.session import CURRENT

@kinetic.remote(accelerator="tpu-v6e-4", runtime="plain")
def where(mark=None):
    if mark:
        pathlib.Path(mark).write_text(os.environ["TPU_NAME"])
        threading.Event().wait()
    return os.getpid()

if __name__ == "__main__":
    warm = kinetic.get(where.remote(), timeout=200)
    while not any(line._seat for line in CURRENT.session._lines.values()):  # until it is lent to this process
        warm = kinetic.get(where.remote(), timeout=200)
    try:
        kinetic.get(where.remote(sys.argv[1]), timeout=200)
    except kinetic.JobFailed as exc:
        print(f"{exc.reason}: {exc}")
    assert kinetic.get(where.remote(), timeout=200) != warm
    print("fine")
"""
