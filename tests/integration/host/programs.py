"""What the ranks of these tests run; imported by name on the simulated hosts, so it imports nothing at its top."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

_SHOWN = ("KINETIC_", "KERAS", "MY_", "JAX_", "TPU_", "TF_", "XLA_")


def all_reduce() -> tuple[int, float]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("d",))
    count = jax.device_count()
    shards = jax.make_array_from_callback(
        (count,), NamedSharding(mesh, PartitionSpec("d")), lambda index: np.arange(float(count), dtype="f4")[index]
    )
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))(shards)
    return count, float(total)


def rank() -> int:
    from kinetic_ray.runner import session

    return session.context().rank


def score_for_memory() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


def give(value: Any) -> Any:
    return value


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def raise_keyword_only() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise KeywordOnly(code=7) from error


def raise_group() -> None:
    raise ExceptionGroup("two at once", [ValueError("first"), KeywordOnly(code=2)])


def unpicklable() -> Any:
    return (number for number in range(3))


def leave(code: Any) -> None:
    sys.exit(code)


def leave_at_once(code: int) -> None:
    sys.stdout.write("on my way\n")
    os._exit(code)


def die_after_words() -> None:
    import ctypes

    ctypes.CDLL(None).printf(b"from C\n")
    sys.stdout.write("last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def die_on(victim: int) -> None:
    all_reduce()
    if rank() == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1_000_000):
        all_reduce()


def fail_on(victim: int) -> float:
    all_reduce()
    if rank() == victim:
        raise KeywordOnly(code=victim)
    for _ in range(1_000_000):
        all_reduce()
    return 0.0


def fail_late_on(victim: int) -> float:
    """The victim fails when all others have returned and wait for it at the end."""
    import jax

    everyone_else = [f"back-{other}" for other in range(jax.process_count()) if other != victim]
    client = jax._src.distributed.global_state.client
    if rank() == victim:
        for key in everyone_else:
            client.blocking_key_value_get(key, 60_000)
        raise KeywordOnly(code=victim)
    client.key_value_set(f"back-{rank()}", "yes")
    return 1.0


def leave_daemon(path: str, then: str) -> str:
    """Starts a grandchild with a session of its own whose parent has gone; writes its pid and goes on as told."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(path + ".new").write_text(str(os.getpid()))
            Path(path + ".new").rename(path)
            os.close(writing)
            signal.pause()
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
    if then == "wait":
        signal.pause()
    return then


def wait_forever() -> None:
    signal.pause()


def talk_to_the_agent(words: str) -> None:
    """Writes a line where only the child's own messages belong."""
    import contextlib
    import stat

    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, words.encode() + b"\n")
    wait_forever()


def users_own_initialize() -> tuple[int, float]:
    import jax
    from jax.distributed import initialize

    jax.distributed.initialize()
    initialize("10.0.0.1:1", num_processes=2, process_id=1)
    result = all_reduce()
    jax.distributed.shutdown()
    return result


def surroundings() -> dict[str, Any]:
    from kinetic_ray.runner import session

    here = session.context()
    (here.output_dir / f"{here.rank}.txt").write_text("kept")
    return {
        "cwd": str(Path.cwd()),
        "argv": sys.argv,
        "stdin": sys.stdin.read(),
        "main": sorted(name for name in vars(sys.modules["__main__"]) if not name.startswith("__")),
        "env": {name: value for name, value in os.environ.items() if name.startswith(_SHOWN)},
        "rank": here.rank,
        "output_dir": str(here.output_dir),
    }


def use_sibling() -> str:
    import sibling_module  # in the bundle only

    return str(sibling_module.NAME) + Path("data.txt").read_text()


def report_steps(count: int) -> None:
    from kinetic_ray.runner import session

    for step in range(count):
        session.report(step, total=count, loss=1.0 / (step + 1))


def register_exit(path: str) -> None:
    import atexit

    atexit.register(Path(path).write_text, "flushed")


def threads_at_start() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def random_numbers() -> tuple[float, float]:
    import random

    import numpy as np

    return random.random(), float(np.random.random())


def listening_addresses() -> set[str]:
    import psutil

    all_reduce()
    found = psutil.Process().net_connections("tcp")
    return {link.laddr.ip for link in found if link.status == psutil.CONN_LISTEN}


def trace_badly(name: str) -> None:
    import jax
    import numpy as np

    bad = {"TracerBoolConversionError": bool, "TracerArrayConversionError": np.asarray}[name]

    def traced(x: Any) -> Any:
        return bad(x)

    jax.jit(traced)(1.0)


def raise_kind(name: str) -> None:
    import asyncio
    import json
    import subprocess

    from tests.unit.payloads import errors

    makers: dict[str, Any] = {
        "decode": lambda: json.loads("{"),
        "process": lambda: subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=True),
        "unicode": b"\xff".decode,
        "cancelled": lambda: _raise(asyncio.CancelledError("cancelled")),
        "frozen": lambda: _raise(errors.Frozen(code=3)),
        "locked": lambda: _raise(errors.HoldsLock(3)),
        "sealed": lambda: _raise(errors.sealed()),
    }
    try:
        makers[name]()
    except BaseException as error:
        raise error from KeyError("root")


def _raise(error: BaseException) -> None:
    raise error


def nest(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value
