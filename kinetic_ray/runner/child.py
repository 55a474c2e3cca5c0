"""The child: one rank of one attempt, from its task to its outcome.

It goes through named phases (:class:`~kinetic_ray.core.state.RankPhase`) and tells the agent each of them; an error is
reported with the phase that raised it. Meeting the peers comes before unpickling, because importing the user's modules
may already use devices.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from kinetic_ray import payload
from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.outcome import Blob, Outcome
from kinetic_ray.core.state import RankPhase
from kinetic_ray.errors import DataError
from kinetic_ray.runner import distributed, session
from kinetic_ray.runner.capture import describe_error, dump_exception, dump_value, reason_of
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.process import be_first_to_go, die_with_parent, leave_no_cores
from kinetic_ray.runner.settling import await_threads, call, code_root, pose_as_main, run_exit_handlers, settle_in
from kinetic_ray.runner.shipping import fetch_outputs
from kinetic_ray.runner.task import RankTask, mirrored_folder
from kinetic_ray.runner.versions import check_versions
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.patience import retried

#: Seconds for exit handlers that user code has registered: a tracker's last flush, say.
_EXIT_HANDLERS_OK, _EXIT_HANDLERS_FAILED = 60.0, 5.0
_DRAIN = 10.0
#: For threads that are no daemons, after a return: an upload of a large model takes a while.
_THREADS = 1800.0
#: The mask of new files of whoever started the cluster, whose own files are for nobody else; set on the embedded one.
UMASK = "KINETIC_UMASK"
_IOLBF = 1  # C's name for a stream that is written at each line


class Rank:
    """One rank's life; :meth:`run` gives the exit code."""

    def __init__(self, task: RankTask, link: Lines) -> None:
        self._task = task
        self._link = link
        self._keys = JobKeys(task.job_id)
        self._phase = RankPhase.FETCH
        self._reporter = session.Reporter(link.send)

    def run(self) -> int:
        """All phases. Never raises: this is the process's edge."""
        try:
            store = open_store(self._task.store_url, create=False)
        except BaseException as exc:  # noqa: BLE001
            return self._fail(exc, None)
        try:
            value = self._work(store)
            self._enter(RankPhase.STORE)
            blob = self._write(store, self._keys.value, dump_value(value).chunks) if self._task.keeps_value else None
            self._tell(Outcome(self._task.rank, True, phase=RankPhase.FINISH, value=blob))
            self._enter(RankPhase.FINISH)
            self._finish()
        except BaseException as exc:  # noqa: BLE001
            return self._fail(exc, store)
        return 0

    def _work(self, store: Store) -> object:
        task = self._task
        self._enter(RankPhase.FETCH)
        if task.payload is None:
            raise DataError(f"{task.job_id}: the task names no call")
        pickled = retried(partial(store.get_blob, task.payload))
        archive = None if task.bundle is None else retried(partial(store.get_blob, task.bundle.blob))
        self._enter(RankPhase.VERIFY)
        if task.client is not None:
            check_versions(task.client)
        self._enter(RankPhase.UNPACK)
        settle_in(task, archive, self._reporter)
        if (outputs := mirrored_folder(task)) is not None and (task.epoch, task.attempt) > (1, 1):
            retried(partial(fetch_outputs, store, self._keys.outputs, outputs))
        self._enter(RankPhase.INIT)
        if task.runtime == "jax":
            distributed.join(task)
        self._enter(RankPhase.LOAD)
        fetch = lambda blob: retried(partial(store.get_blob, blob))  # noqa: E731
        function, args, kwargs = payload.load_call(pickled, code_root(task), fetch)
        pose_as_main(function)
        self._enter(RankPhase.CALL)
        return call(function, args, kwargs)

    def _finish(self) -> None:
        self._reporter.drain(_DRAIN)
        await_threads(_THREADS)
        run_exit_handlers(_EXIT_HANDLERS_OK)
        if self._task.runtime == "jax":
            distributed.leave(self._task)

    def _fail(self, exc: BaseException, store: Store | None) -> int:
        """Reports a failure: in the log for people, as an outcome for the agent."""
        error = describe_error(exc)
        with contextlib.suppress(Exception):  # what was printed before stands before; the user's stream may be closed
            sys.stdout.flush()
        print(error.traceback, end="", file=sys.__stderr__, flush=True)
        pickled = dump_exception(exc)
        if pickled is not None and store is not None:
            try:
                error = replace(error, pickled=self._write(store, self._keys.error, lambda: [pickled]))
            except Exception as broken:  # noqa: BLE001 - the words are worth more than the bytes
                print(f"kinetic: the exception could not be stored: {broken}", file=sys.__stderr__, flush=True)
        reason = reason_of(exc, self._phase)
        message = f"{error.type_name}: {error.message}" if error.message else error.type_name
        self._reporter.drain(1.0)
        self._tell(Outcome(self._task.rank, False, str(reason), str(self._phase), message, error=error))
        await_threads(_EXIT_HANDLERS_FAILED)
        run_exit_handlers(_EXIT_HANDLERS_FAILED)
        return 1

    def _enter(self, phase: RankPhase) -> None:
        self._phase = phase
        self._link.send({"t": "phase", "phase": str(phase), "at": time.time()})

    def _tell(self, outcome: Outcome) -> None:
        self._link.send({"t": "outcome", "outcome": outcome.to_dict()})

    def _write(self, store: Store, key: Callable[[int, int, int], str], chunks: Callable[[], Iterable[bytes]]) -> Blob:
        """Stores what the chunks make; they are asked for again at each try."""
        where = key(self._task.epoch, self._task.attempt, self._task.rank)
        return retried(lambda: store.write_object(where, chunks()))


def _own_descriptors(log: int) -> None:
    """Sends descriptors 1 and 2 to the log before anything can write, so that C code's output is there too.

    All streams flush at each line: what was printed before a SIGKILL has been written.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in (null, log):
        if fd > 2:
            os.close(fd)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0, "r", closefd=False))  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _line_buffered(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _line_buffered(2)  # type: ignore[misc]
    libc = ctypes.CDLL(None)
    name = "__stdoutp" if sys.platform == "darwin" else "stdout"
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, _IOLBF, 0)
    faulthandler.enable(file=2)


def _line_buffered(fd: int) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _forget_the_zygote() -> None:
    """Undoes what a child should not inherit: signal handlers, NumPy's random numbers (Python renews its own).

    Nor what is right for the cluster's own processes only: signals that are held back, files for nobody else.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if mask := os.environ.get(UMASK):
        os.umask(int(mask, 8))
    for signum in signal.valid_signals():
        if signum in (signal.SIGCHLD, signal.SIGTERM) or _is_passed_over(signum):
            signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


def _is_passed_over(signum: int) -> bool:
    """Whether the cluster ignores a signal, as what a shell has put into the background does, and Python doesn't."""
    return signal.getsignal(signum) is signal.SIG_IGN and signum not in (signal.SIGPIPE, signal.SIGXFSZ)


def run_child(control: int, log: int, parent: int) -> int:
    """A child's life on its two descriptors; `parent` is the zygote's pid. Returns the exit code."""
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return 70
    be_first_to_go()
    leave_no_cores()
    _own_descriptors(log)
    _forget_the_zygote()
    link = Lines(socket.socket(fileno=control))
    message = link.receive()
    if message is None:
        return 70
    task = RankTask.from_dict(message)
    code = _serve(task, link, control) if task.serves else _run_once(task, link)
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # the user's own stream, perhaps closed by now
            stream.flush()  # type: ignore[union-attr]
    return code


def _run_once(task: RankTask, link: Lines) -> int:
    if sys.platform != "linux":
        threading.Thread(target=_end_with_agent, args=(link,), name="kinetic-agent", daemon=True).start()
    return Rank(task, link).run()


def _serve(task: RankTask, link: Lines, control: int) -> int:
    """From here on the talk is another one, see :mod:`kinetic_ray.runner.calls.frames`."""
    from kinetic_ray.runner.calls.frames import Frames
    from kinetic_ray.runner.calls.serving import Server

    frames = Frames(socket.socket(fileno=os.dup(control)), link.take_rest(), link.take_all_fds())
    return Server(task, frames).run()


def _end_with_agent(link: Lines) -> None:
    """For macOS, where no kernel ends us with our parent: the agent says nothing more, so its next word is its end."""
    link.receive()
    os.killpg(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> None:
    """A child in an interpreter of its own, where a fork isn't safe."""
    control, log, parent = map(int, argv)
    os.set_inheritable(control, False)
    os._exit(run_child(control, log, parent))


if __name__ == "__main__":
    main(sys.argv[1:])
