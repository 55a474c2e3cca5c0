"""A rank as its host agent sees it: from the start of a child to a published outcome."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.outcome import Blob, Outcome
from kinetic_ray.core.state import RankPhase, Reason
from kinetic_ray.journal import JobJournal
from kinetic_ray.runner.deaths import cause_of_death, last_lines
from kinetic_ray.runner.feed import Feed
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.link import ZygoteLink
from kinetic_ray.runner.process import is_running
from kinetic_ray.runner.shipping import Courier, LogShipper, OutputMirror
from kinetic_ray.runner.shortage import MemoryGuard
from kinetic_ray.runner.task import RankTask, mirrored_folder
from kinetic_ray.store import Growing, Store
from kinetic_ray.store.patience import BLIPS, BUDGET, retried

_TAIL_BYTES = 64 << 10
#: Seconds for which the last words are waited for; the reason why a rank ended is worth more.
_FOR_WORDS = 5.0


class HostedRank:
    """A running or ended rank of one attempt. Thread-safe.

    Attributes:
        feed: What the driver gets to hear.
    """

    def __init__(self, task: RankTask, store: Store, zygote: ZygoteLink) -> None:
        """Starts the child.

        Raises:
            ConnectionError: The zygote is gone.
        """
        self.feed = Feed()
        self._task = task
        self._store = store
        self._zygote = zygote
        self._fenced = False
        self._begun = self._is_going = False
        self._notice_lock = threading.Lock()  # of these two
        self._phase = str(RankPhase.FETCH)
        self._log, is_elsewhere = retried(lambda: _log_path(task, store))
        ours, theirs = socket.socketpair()
        self._lines = Lines(ours)
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self._child = zygote.start_child(theirs.fileno(), log)
        finally:
            os.close(log)
            theirs.close()
        self._courier = _courier(task, store, self._log) if is_elsewhere else None
        self._memory = MemoryGuard(zygote.pid, self._child, lambda: zygote.kill(self._child))
        self._memory.begin()
        # Where the zygote died, a process that it couldn't end may hold the child's end open.
        self._child.ended.add_done_callback(lambda _: self._hang_up())
        threading.Thread(target=self._follow, name=f"kinetic-rank-{task.rank}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def terminate(self) -> None:
        """Sends the rank SIGTERM, and does no more: what it does about that, if anything, is up to the user's code."""
        with self._notice_lock:
            self._is_going = True
            if self._begun:
                self._send_notice()

    def _begin(self) -> None:
        """The child has said its first word: until then it could still have the zygote's handler of SIGTERM."""
        with self._notice_lock:
            if self._is_going and not self._begun:
                self._send_notice()
            self._begun = True

    def _send_notice(self) -> None:
        if not self._child.ended.done():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signal.SIGTERM)

    def fence(self) -> None:
        """Ends the child and all below it; returns when they are gone and the end is in the feed."""
        if not self.feed.ended:
            # One that is dead already died of a cause of its own, which must be heard.
            self._fenced = self._fenced or is_running(self.pid)
            self._zygote.kill(self._child)
        self.feed.await_end()

    def _follow(self) -> None:
        """The rank's thread: tells the task, passes messages on, settles the outcome."""
        code = None
        try:
            told = self._converse()
            code = self._child.ended.result()
            outcome = self._settle(told, code)
            self._ship_rest()
            if told is not None or not self._fenced:
                retried(partial(self._publish, outcome))
        except Exception as exc:  # noqa: BLE001 - the driver must hear of an end whatever happens here
            outcome = self._broken(exc, code)
        finally:
            self._lines.close()
        self.feed.put({"t": "ended", "ok": outcome.ok, "fenced": self._fenced, "outcome": outcome.to_dict()})

    def _ship_rest(self) -> None:
        """What only this host has goes to the store; of a job that was cleaned up meanwhile nothing stays there."""
        if self._courier is None:
            return
        self._courier.finish(_FOR_WORDS if self._fenced else BUDGET)
        with contextlib.suppress(*BLIPS):
            if not JobJournal(self._store, self._task.job_id).exists():
                self._store.delete_tree(JobKeys(self._task.job_id).root)

    def _publish(self, outcome: Outcome) -> None:
        journal = JobJournal(self._store, self._task.job_id)
        journal.publish_outcome(self._task.epoch, self._task.attempt, outcome)

    def _broken(self, exc: Exception, code: int | None) -> Outcome:
        """The outcome of a rank that can't be followed any further, which ends it, or whose outcome can't be stored."""
        reason, what = Reason.RESULT_ERROR, "record the outcome"
        if not self._child.ended.done():
            reason, what = Reason.PROCESS_DIED, "understand the rank, and has ended it"
            self._zygote.kill(self._child)
        text = f"the host agent could not {what}: {type(exc).__name__}: {exc}"
        return Outcome(self._task.rank, False, str(reason), self._phase, text, exit_code=code)

    def _converse(self) -> Outcome | None:
        """Until the child's end: gives it its task, passes on what it says; returns the last outcome it told."""
        told = None
        try:
            self._lines.send(self._task.to_dict())
        except OSError:  # dead before it could listen
            return None
        while (message := self._lines.receive()) is not None:
            self._begin()
            if message["t"] == "outcome":
                told = Outcome.from_dict(message["outcome"])
                continue
            if message["t"] == "phase":
                self._phase = str(RankPhase(message["phase"]))
            elif message["t"] != "report":
                raise ValueError(f"a message of no known kind: {str(message)[:80]}")
            self.feed.put(message)
        return told

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):  # the conversation has ended by itself
            self._lines.end_of_input()

    def _settle(self, told: Outcome | None, code: int | None) -> Outcome:
        """The outcome that counts: what the child told, unless its end or its stored bytes say otherwise."""
        if told is not None and not told.ok:
            return replace(told, exit_code=code, log_tail=last_lines(self._words()))
        shortage = self._memory.cause(code)
        # Another code is its own doing, just before the fence.
        if self._fenced and not shortage and code in (0, None, -signal.SIGKILL):
            return self._failure(Reason.CANCELLED, "stopped by the driver", code)
        if told is None or code != 0:
            return self._died(code, shortage, returned=told is not None)
        if not self._task.keeps_value:
            return replace(told, exit_code=0)
        key = JobKeys(self._task.job_id).value(self._task.epoch, self._task.attempt, self._task.rank)
        if told.value is None or not retried(partial(self._is_stored, key, told.value)):
            return self._failure(Reason.RESULT_ERROR, f"the stored value {key} differs from what was written", code)
        return replace(told, exit_code=0)

    def _is_stored(self, key: str, value: Blob) -> bool:
        if self._store.verify_object(key, value):
            return True
        self._store.require()  # one that is away looks empty
        return self._store.verify_object(key, value)

    def _died(self, code: int | None, shortage: str, *, returned: bool) -> Outcome:
        when = "after the function had returned" if returned else "before the function returned"
        reason, text = cause_of_death(code, self._words(), when, shortage)
        return self._failure(reason, text, code)

    def _failure(self, reason: Reason, message: str, code: int | None) -> Outcome:
        tail = last_lines(self._words())
        return Outcome(self._task.rank, False, str(reason), self._phase, message, exit_code=code, log_tail=tail)

    def _words(self) -> str:
        """The end of the rank's log; nothing, where the store that it lies in is away."""
        try:
            return retried(self._read_words, _FOR_WORDS)
        except OSError:
            return ""

    def _read_words(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            return log.read().decode(errors="replace")


def _log_path(task: RankTask, store: Store) -> tuple[Path, bool]:
    """In the store itself where that is a folder, else beside the attempt; whether it is elsewhere than the store."""
    path = store.append_path(JobKeys(task.job_id).log(task.epoch, task.attempt, task.rank))
    return (Path(task.work_dir, "rank.log"), True) if path is None else (path, False)


def _courier(task: RankTask, store: Store, log: Path) -> Courier:
    keys = JobKeys(task.job_id)
    shipper = LogShipper(Growing(store, keys.log(task.epoch, task.attempt, task.rank)), log)
    outputs = mirrored_folder(task)
    return Courier(shipper, None if outputs is None else OutputMirror(store, keys.outputs, outputs))
