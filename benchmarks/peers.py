"""How long others take for a call of a function that does nothing: for orientation, where they are installed."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from benchmarks.harness import Contender, timed


def do_nothing() -> int:
    """What the others call."""
    return 1


@contextmanager
def peers() -> Iterator[list[Contender]]:
    """Those that are installed, warm; they end with the block."""
    with ExitStack() as stack:
        yield [
            Contender(name, timed(stack.enter_context(make())))
            for package, name, make in (
                ("joblib", "joblib (loky)", _joblib),
                ("distributed", "dask", _dask),
                ("submitit", "submitit (local)", _submitit),
            )
            if find_spec(package)
        ]


@contextmanager
def _joblib() -> Iterator[Callable[[], Any]]:
    import joblib

    with joblib.Parallel(n_jobs=2) as parallel:
        yield lambda: parallel([joblib.delayed(do_nothing)(), joblib.delayed(do_nothing)()])


@contextmanager
def _dask() -> Iterator[Callable[[], Any]]:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        yield lambda: client.submit(do_nothing, pure=False).result()


@contextmanager
def _submitit() -> Iterator[Callable[[], Any]]:
    import submitit

    with tempfile.TemporaryDirectory() as folder:
        executor = submitit.LocalExecutor(folder=folder)
        yield lambda: executor.submit(do_nothing).result()
