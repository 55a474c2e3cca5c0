"""How a rank's process makes itself at home before user code runs in it, and takes leave of it after."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import platform
import sys
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from kinetic_ray import bundle
from kinetic_ray.bundle.precedence import put_first
from kinetic_ray.errors import DataError, PayloadError
from kinetic_ray.runner import session
from kinetic_ray.runner.task import CODE, RankTask, mirrored_folder


def code_root(task: RankTask) -> Path:
    """The folder that the bundle is unpacked into."""
    return Path(task.work_dir, CODE)


def settle_in(task: RankTask, archive: bytes | None, reporter: session.Reporter) -> None:
    """The working folder, `sys.path`, the variables and the session, as user code will find them."""
    cwd = root = code_root(task)
    root.mkdir(parents=True, exist_ok=True)
    if archive is not None and task.bundle is not None:
        bundle.place(archive, root)
        cwd = root / task.bundle.cwd
        cwd.mkdir(parents=True, exist_ok=True)
        named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        put_first([os.path.normpath(root / entry) for entry in task.bundle.sys_path], named)
        importlib.invalidate_caches()
    os.chdir(cwd)
    sys.argv = list(task.argv)
    here = _context(task)
    os.environ.update(_variables(task, here))
    session.CURRENT.context = here
    session.CURRENT.reporter = reporter


def _context(task: RankTask) -> session.Context:
    folder = mirrored_folder(task)
    if folder is None and "://" in task.output_dir:
        raise DataError(f"output_dir={task.output_dir!r}: this version writes to folders only; files would be lost")
    folder = folder or (Path(task.output_dir) if task.output_dir else Path(task.work_dir, "outputs"))
    folder.mkdir(parents=True, exist_ok=True)
    return session.Context(
        job_id=task.job_id,
        rank=task.rank,
        world_size=task.world_size,
        slice_index=task.slice_index,
        num_slices=task.num_slices,
        role=task.role,
        attempt=task.attempt,
        output_dir=folder,
        output_uri=task.output_dir or str(folder),
        coordinator=task.coordinator or None,
    )


def check_python(client: str) -> None:
    """Functions travel as bytecode, which belongs to one minor version of Python.

    Raises:
        PayloadError: The client's differs from the host's.
    """
    here = platform.python_version()
    if here.split(".")[:2] != client.split(".")[:2]:
        raise PayloadError(
            f"the call was made with Python {client} and this host runs {here}: "
            "use the same minor version on both, or an image that has it"
        )


def _variables(task: RankTask, here: session.Context) -> dict[str, str]:
    """What programs that are not Python's can read; the driver's own additions win."""
    return {
        "KINETIC_JOB_ID": task.job_id,
        "KINETIC_ATTEMPT": str(task.attempt),
        "KINETIC_RANK": str(task.rank),
        "KINETIC_WORLD_SIZE": str(task.world_size),
        "KINETIC_SLICE_INDEX": str(task.slice_index),
        "KINETIC_SLICE_NAME": task.slice_name,
        "KINETIC_OUTPUT_DIR": here.output_uri,
        "KINETIC_ANCESTORS": task.job_id,  # whose lease this runs under: a call from here must not wait for it
        # A job's own durable calls, and commands, find the same jobs.
        **({"KINETIC_STORE": task.store_url} if task.store_url else {}),
        **task.env,
    }


def call(function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """Calls; a `sys.exit(0)` is a return, as the end of a script would be.

    A process that the function has forked ends when it comes back: its value and its errors are no answer to the call.
    """
    home = os.getpid()
    try:
        value = function(*args, **kwargs)
    except BaseException as exc:
        if os.getpid() != home:
            _end_fork(exc)
        if isinstance(exc, SystemExit) and exc.code in (None, 0):
            return None
        raise
    if os.getpid() != home:
        _end_fork(None)
    return value


def _end_fork(exc: BaseException | None) -> NoReturn:
    """Ends this process as the end of a script would, but for the exit handlers, which are its parent's."""
    code = 0
    if isinstance(exc, SystemExit):
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        if isinstance(exc.code, str):
            sys.stderr.write(f"{exc.code}\n")
    elif exc is not None:
        code = 1
        traceback.print_exception(exc)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user's own stream, perhaps closed by now
            stream.flush()
    os._exit(code & 0xFF)


def pose_as_main(function: Callable[..., object]) -> None:
    """Gives the user's `__main__` its names back, which `pickle` and so `multiprocessing` look up there.

    Without a function from `__main__` it is an empty module: never the zygote, which started this process.
    """
    while isinstance(function, functools.partial | types.MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    main = types.ModuleType("__main__")
    names = getattr(function, "__globals__", {})
    if names.get("__name__") == "__main__":
        kept = {name: value for name, value in names.items() if not name.startswith("__") or name == "__file__"}
        main.__dict__.update(kept)
    sys.modules["__main__"] = main


def await_threads(patience: float, silence: float = 10.0) -> None:
    """Waits for threads that are no daemons, as Python does at its end: one may be writing a checkpoint still.

    Those of executors are told first that nothing more comes. Not for ever, as Python would: the value is there, and
    one thread that was forgotten must not cost it, nor hold a slice.

    Args:
        patience: Seconds.
        silence: Seconds after which it is said that they are waited for.
    """
    joining = threading.Thread(target=_join_threads, name="kinetic-joining", daemon=True)
    joining.start()
    joining.join(min(silence, patience))
    if joining.is_alive() and patience > silence:
        _say_who(f"they are waited for, up to {patience:g} s")
        joining.join(patience - silence)
    if joining.is_alive():
        _say_who("they were left")


def _say_who(told: str) -> None:
    left = ", ".join(thread.name for thread in _open_threads())
    print(f"kinetic: threads that are no daemons still run ({left}): {told}", file=sys.__stderr__, flush=True)


def _join_threads() -> None:
    for tell in reversed([*getattr(threading, "_threading_atexits", ())]):  # of concurrent.futures
        with contextlib.suppress(Exception):
            tell()
    while threads := _open_threads():
        threads[0].join()


def _open_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]


def run_exit_handlers(timeout: float) -> None:
    """Runs what was registered with `atexit`, in a thread, since a handler may hang."""
    handlers = threading.Thread(target=atexit._run_exitfuncs, name="kinetic-atexit", daemon=True)  # noqa: SLF001
    handlers.start()
    handlers.join(timeout)
    if handlers.is_alive():
        print(f"kinetic: exit handlers took longer than {timeout:g} s and were left", file=sys.__stderr__, flush=True)
