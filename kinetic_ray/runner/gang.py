"""The host agents of one placement, and what happens to them in an attempt."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from kinetic_ray.core.policy import AttemptEnd
from kinetic_ray.core.state import EventKind
from kinetic_ray.runner.agent import HostAgent
from kinetic_ray.runner.book import AttemptBook, Note
from kinetic_ray.runner.deaths import ended_by_ray_for_memory
from kinetic_ray.runner.inbox import Answer, HostGoing, HostLost, Inbox
from kinetic_ray.runner.recorder import Recorder
from kinetic_ray.runner.slices import Host, Placement, check_hosts, node_address, node_is_alive
from kinetic_ray.runner.task import HostPlan, RankTask
from kinetic_ray.runner.titles import Title

#: Concurrent calls of an agent: a long poll, a fence, and room for those of a restart.
_CONCURRENCY = 8
_POLL = 30.0
#: How long the cause of a lost peer, or of a lost agent, is looked for.
_LOOK_AROUND = 2.0
#: How long the last words of ranks that were stopped are waited for, where they can't change the cause.
_LAST_WORDS = 0.2
#: Until an agent that doesn't answer a fence is killed itself; its processes die with it.
_FENCE_TIMEOUT = 5.0
#: After an answer that only says "can't be reached now".
_AGAIN = 0.5


class Gang:
    """One agent per host.

    Attributes:
        hosts: By rank; with their nodes once :meth:`open` has returned.
    """

    def __init__(
        self, title: Title, placement: Placement, hosts: Sequence[Host], inbox: Inbox, recorder: Recorder
    ) -> None:
        """Asks for the agents; returns before they run."""
        self.hosts = tuple(hosts)
        self._title = title
        self._placement = placement
        self._inbox = inbox
        self._recorder = recorder
        actor = ray.remote(HostAgent)
        self._agents = [actor.options(**self._options(host)).remote(title.words(host)) for host in hosts]
        self._again: dict[int, tuple[float, str]] = {}
        self._tasks: dict[int, RankTask] = {}

    def open(self, plan: HostPlan, store_url: str, placed_by: float) -> None:
        """Waits for the hosts, checks them, has them import the runtime.

        Args:
            plan: For every host.
            store_url: Where the ranks' logs are, to which hosts that can't be made ready say why.
            placed_by: When all agents must run, on the monotonic clock; importing may take longer.

        Raises:
            Misplaced: See :func:`check_hosts`.
            TimedOut: Not placed in time.
            HostsGone: A host was lost.
            RayError: An agent died, or its runtime can't be imported.
        """
        needed = frozenset(host.node_id for host in self.hosts if host.node_id)
        described = {host.rank: self._agents[host.rank].describe.remote() for host in self.hosts}
        prepared = {
            host.rank: self._agents[host.rank].prepare.remote(plan.to_dict(), (store_url, self._title.log(host)))
            for host in self.hosts
        }
        self._inbox.gather(self._placement.ready(), placed_by, needed)
        found = self._inbox.gather(described, placed_by, needed)
        self.hosts = check_hosts(self.hosts, [found[host.rank] for host in self.hosts])
        placed = [host.to_event() for host in self.hosts]
        self._recorder.add(EventKind.PLACED, hosts=placed)
        self._inbox.gather(prepared, needed=self._nodes())

    def address(self) -> str:
        """A fresh `host:port` on rank 0's host, with a port that nothing has used before."""
        port = self._inbox.gather({0: self._agents[0].free_port.remote()}, needed=self._nodes())[0]
        return f"{node_address(self.hosts[0].node_id)}:{port}"

    def run(self, tasks: Sequence[RankTask], deadline: float | None) -> AttemptEnd:
        """One attempt: starts every rank and hears them until all have succeeded or one has failed.

        Args:
            tasks: By rank, all of one attempt.
            deadline: Of the job, on the monotonic clock.

        Raises:
            Overdue: The deadline passed; the ranks are gone.
            Stopped: The ranks are gone.
        """
        book = AttemptBook(tasks[0].attempt, self.hosts)
        self._tasks = {task.rank: task for task in tasks}
        self._again = {}
        try:
            for rank in self._tasks:
                self._ask(book, rank, "start")
            for going in self._inbox.going:
                self._announce(book, going)
            self._hear_until_over(book, deadline)
        except BaseException:
            self.fence(book.number)
            raise
        if book.failures:
            self.fence(book.number)
            self._look_around(book)
        self._warn(book.progress.at_the_end())
        return book.end()

    def fence(self, attempt: int) -> None:
        """Ends an attempt on every host; returns when no rank of it runs, or its agent was killed for not answering."""
        fences = {self._call(rank, "fence", attempt).remote(attempt): agent for rank, agent in enumerate(self._agents)}
        _, silent = ray.wait(list(fences), num_returns=len(fences), timeout=_FENCE_TIMEOUT)
        for ref in silent:
            ray.kill(fences[ref], no_restart=True)

    def close(self) -> None:
        """Ends the agents with all that they run; safe to repeat."""
        stops = [agent.stop.remote() for agent in self._agents]
        ray.wait(stops, num_returns=len(stops), timeout=_FENCE_TIMEOUT)
        while self._agents:
            ray.kill(self._agents.pop(), no_restart=True)

    def _options(self, host: Host) -> dict[str, Any]:
        options = {"max_concurrency": _CONCURRENCY, "max_restarts": 0, "name": self._title.agent(host)}
        return {**options, **self._placement.actor_options(host)}

    def _call(self, rank: int, method: str, attempt: int) -> Any:
        """A method of a rank's agent, under the name that Ray shows for the call."""
        name = self._title.call(self.hosts[rank], attempt, method)
        return getattr(self._agents[rank], method).options(name=name)

    # Hearing.

    def _hear_until_over(self, book: AttemptBook, deadline: float | None) -> None:
        while not book.is_over:
            times = [deadline, book.progress.next_look(), *(when for when, _ in self._again.values())]
            item = self._inbox.take(min((t for t in times if t is not None), default=None))
            now = time.monotonic()
            if item is not None:
                self._hear(book, item, now)
            elif deadline is not None and now >= deadline:
                raise book.overdue()
            self._warn(book.progress.silent(now))
            self._ask_again(book, now)

    def _look_around(self, book: AttemptBook) -> None:
        """After the fence: the other ranks' last words, and word of lost hosts, may tell the cause."""
        started = time.monotonic()
        while book.running or not book.is_clear:
            item = self._inbox.take(started + (_LAST_WORDS if book.is_clear else _LOOK_AROUND))
            if item is None:
                break
            self._hear(book, item, time.monotonic())
        for host in book.unsure():
            if not node_is_alive(host.node_id):
                lost = HostLost(host.node_id, host.slice_name, host.worker_id, "Silent")
                self._note(book.lose_host(lost))

    def _hear(self, book: AttemptBook, item: Answer | HostGoing | HostLost, now: float) -> None:
        if isinstance(item, HostLost):
            self._note(book.lose_host(item))
            return
        if isinstance(item, HostGoing):
            self._announce(book, item)
            return
        match item.tag:
            case (str(kind), number, int(rank)) if number == book.number:
                if item.error is not None:
                    self._failed(book, rank, kind, item.error)
                elif kind == "start" or not self._take(book, rank, item.value, now):
                    self._ask(book, rank, "next")

    def _announce(self, book: AttemptBook, going: HostGoing) -> None:
        """Has the rank of a host that is about to go be told so; it may save what it has."""
        rank = book.rank_on(going.node_id)
        if rank is not None:
            self._note(book.expect_loss(rank, going.grace))
            self._call(rank, "announce_end", book.number).remote(book.number)

    def _take(self, book: AttemptBook, rank: int, messages: Sequence[Mapping[str, Any]], now: float) -> bool:
        for message in messages:
            self._note(book.hear(rank, message, now))
        return any(message["t"] == "ended" for message in messages)

    def _failed(self, book: AttemptBook, rank: int, kind: str, error: BaseException) -> None:
        if isinstance(error, ActorUnavailableError):  # unknown yet: it may answer in a moment
            self._again[rank] = (time.monotonic() + _AGAIN, kind)
        elif told := ended_by_ray_for_memory(str(error)) if isinstance(error, RayError) else "":
            self._note(book.lose_to_memory(rank, told))
        elif isinstance(error, RayActorError):
            self._note(book.lose_agent(rank, "it died", unsure=True))
        else:
            self._note(book.lose_agent(rank, words_of(error), unsure=False))

    def _ask(self, book: AttemptBook, rank: int, kind: str) -> None:
        method = self._call(rank, kind, book.number)
        ref = method.remote(self._tasks[rank].to_dict()) if kind == "start" else method.remote(book.number, _POLL)
        self._inbox.watch((kind, book.number, rank), ref)

    def _ask_again(self, book: AttemptBook, now: float) -> None:
        for rank, (when, kind) in list(self._again.items()):
            if when <= now:
                del self._again[rank]
                self._ask(book, rank, kind)

    # Telling.

    def _note(self, notes: Sequence[Note]) -> None:
        for kind, fields in notes:
            self._recorder.add(kind, **fields)

    def _warn(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self._recorder.add(EventKind.WARNED, message=sentence)

    def _nodes(self) -> frozenset[str]:
        return frozenset(host.node_id for host in self.hosts)


def words_of(error: BaseException) -> str:
    """What an error says; of a Ray task's that is what its cause says, without the remote traceback."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return str(cause).strip() or type(cause).__name__
