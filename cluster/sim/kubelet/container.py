"""The life of one container: its image, its start, its probes, its end, and its next start."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from cluster.sim.kubelet import environment, events, launches, probes, shapes
from cluster.sim.kubelet.client import ApiError, log
from cluster.sim.kubelet.events import Event
from cluster.sim.kubelet.images import Image
from cluster.sim.kubelet.launches import Launch, Setting
from cluster.sim.kubelet.objects import MissingError
from cluster.sim.kubelet.pod_side import PodSide
from cluster.sim.kubelet.prober import Prober, perform
from cluster.sim.kubelet.probes import Answer, Probe, ProbeKind, Verdict
from cluster.sim.kubelet.processes import Exit, Process, StartError
from cluster.sim.kubelet.pulling import Puller
from cluster.sim.kubelet.restarts import BackOff, is_restarted
from cluster.sim.kubelet.sandbox import CommandError
from cluster.sim.kubelet.shapes import Json, stamp
from cluster.sim.kubelet.states import CREATING, ContainerStatus, Ended, Kind, Running, Waiting, exit_reason
from cluster.sim.kubelet.surroundings import Surroundings
from cluster.sim.kubelet.volumes import VolumeError

_LAST_GRACE, _KILLED_WITHIN, _CONFIG_RETRY, _HOOK_LIMIT = 2.0, 10.0, 1.0, 600.0
_START_FAILED = 128
_MESSAGE_BYTES, _MESSAGE_FROM_LOG = 4096, 2048


class ContainerWorker:
    """Runs one container, again and again if its pod says so."""

    def __init__(self, spec: Json, kind: Kind, pod: PodSide, around: Surroundings, first: Waiting) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.kind = kind
        self.status = ContainerStatus(self.name, spec["image"], kind, first)
        self.started = asyncio.Event()  # for the first time
        self.process: Process | None = None
        self._pod = pod
        self._around = around
        self._runs = 0  # how often it was started
        self._stopping = asyncio.Event()
        self._over = asyncio.Event()
        self._over.set()
        self._policy = str(pod.record["spec"].get("restartPolicy") or "Always")

    async def run(self) -> None:
        """Run it until it has ended for good, or is told to stop."""
        back_off = BackOff(self._around.options.backoff_scale)
        while True:
            await self._pod.present()
            launch = await self._prepare()
            if launch is None:
                return
            began = time.monotonic()
            code = await self._live(launch)
            lasted = time.monotonic() - began
            if code is None:
                continue
            if self._stopping.is_set() or not is_restarted(self._policy, self.kind, code):
                return
            await self._pod.present()
            if back_off.failures and not await self._wait_to_restart(back_off):
                return
            back_off = back_off.after(lasted)
            self._set(last=self._last())

    async def _wait_to_restart(self, back_off: BackOff) -> bool:
        said = events.waiting_to_restart(self.name, self._pod.record, back_off.nominal)
        self._tell(events.restart_back_off(self.name, self._pod.record))
        self._set(state=Waiting("CrashLoopBackOff", said), last=self._last())
        return await self._pause(back_off.delay)

    def _last(self) -> Ended | None:
        state = self.status.state
        return state if isinstance(state, Ended) else self.status.last

    def log_run(self, previous: bool) -> int:
        """The number of the run whose output is asked for."""
        waits = isinstance(self.status.state, Waiting)  # then its last run is both this one and the one before
        return self._runs - (2 if previous and not waits else 1)

    # Before it runs.

    async def _prepare(self) -> Launch | None:
        """Work out its next start, as soon as all that it needs is there; None if it is to stop."""
        if isinstance(self.status.state, Waiting) and self.status.last is None:
            self._set(state=CREATING)
        puller = Puller(self._around, self._tell, lambda waiting: self._set(state=waiting), self._pause)
        image = await puller.pull(self.spec, first=self._runs == 0)
        if image is not None and self.kind is Kind.INIT:
            image = image.for_waiting()
        while image is not None and not self._stopping.is_set():
            try:
                return await self._plan(image)
            except (MissingError, VolumeError) as missing:
                self._set(state=Waiting("CreateContainerConfigError", str(missing)))
                self._tell(events.error(str(missing)))
            except ApiError as refused:
                log(self.name, refused)
            await self._pause(_CONFIG_RETRY)
        return None

    async def _plan(self, image: Image) -> Launch:
        record = self._pod.record
        found = await self._around.objects(shapes.namespace_of(record), environment.references(self.spec))
        services = environment.service_variables(record, self._around.services())
        given = {**image.env, **self._pod.device_variables(self.spec)}
        env = environment.resolve(self.spec, self._pod.facts(), found, services, given)
        shown = launches.volume_mounts(self.spec, env, self._pod.sources, self._pod.read_only)
        launch = launches.plan(record, self.spec, self._pod.place, Setting(image, env, shown, self._runs))
        for mount in shown:
            if not mount.source.exists():
                mount.source.mkdir(parents=True)
        launch.folder.mkdir(parents=True, exist_ok=True)
        (launch.folder / "termination-log").write_text("")
        (launch.folder / "termination-log").chmod(0o666)
        return launch

    # While it runs.

    async def _live(self, launch: Launch) -> int | None:
        """One run, from its start to its end; gives its exit code, None if there was no place for it."""
        try:
            self.process = process = await self._pod.sandbox.launch(launch)
        except CommandError as wrong:
            self._pod.tell(events.sandbox_failed(str(wrong)))
            await self._pause(_CONFIG_RETRY)
            return None
        except StartError as wrong:
            return self._not_started(str(wrong))
        self._over.clear()
        began = stamp()
        if self._stopping.is_set():
            process.kill()
        self._begin(process, began)
        minders = [asyncio.create_task(self._mind(process))] if not process.nominal else []
        try:
            how = await process.wait()
        finally:
            for minder in minders:
                minder.cancel()
        self.process = None
        self._end(how, began, process.id, launch)
        self._over.set()
        return how.code

    def _begin(self, process: Process, began: str) -> None:
        self._tell(events.created())
        self._tell(events.started())
        has_startup = bool(self.spec.get(ProbeKind.STARTUP.value)) and not process.nominal
        has_readiness = bool(self.spec.get(ProbeKind.READINESS.value)) and not process.nominal
        started = not has_startup
        counts = self.kind is not Kind.INIT
        self._set(
            state=Running(began),
            restarts=self._runs,
            container_id=process.id,
            started=started and counts,
            ready=started and not has_readiness and counts,
        )
        self._runs += 1
        if started:
            self.started.set()

    def _end(self, how: Exit, began: str, container_id: str, launch: Launch) -> None:
        reason = how.reason or exit_reason(how.code, how.out_of_memory)
        message = self._last_words(how, launch)
        done = self.kind is Kind.INIT and how.code == 0
        ended = Ended(how.code, reason, began, stamp(), message, container_id)
        self._set(state=ended, ready=done, started=False)

    def _not_started(self, why: str) -> int:
        message = f"failed to create containerd task: {why}: unknown"
        self._tell(events.error(message))
        self._set(state=Ended(_START_FAILED, "StartError", stamp(), stamp(), message), restarts=self._runs)
        self._runs += 1
        return _START_FAILED

    def _last_words(self, how: Exit, launch: Launch) -> str:
        try:
            words = (launch.folder / "termination-log").read_bytes()[-_MESSAGE_BYTES:]
            wanted = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
            if not words and how.code and wanted:
                stamper = len(stamp()) + 8
                lines = launch.log.read_bytes().splitlines(keepends=True)[-80:]
                words = b"".join(line[stamper:] for line in lines)[-_MESSAGE_FROM_LOG:]
        except OSError:
            return ""
        return words.decode(errors="replace")

    async def _mind(self, process: Process) -> None:
        """Run the hook of its start, then its probes; it is killed when they say so."""
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        if hook and not await self._hook(hook, process, _HOOK_LIMIT):
            self._tell(events.hook_failed("PostStart"))
            await self._finish(process, self._pod_grace())
            return
        startup = self._prober(ProbeKind.STARTUP, process)
        if startup is not None:
            if await startup.until_decided() is Verdict.FAILED:
                await self._unfit(process, ProbeKind.STARTUP)
                return
            self._set(started=True, ready=not self.spec.get(ProbeKind.READINESS.value))
            self.started.set()
        await asyncio.gather(self._readiness(process), self._liveness(process))

    async def _readiness(self, process: Process) -> None:
        prober = self._prober(ProbeKind.READINESS, process)
        if prober is not None:
            await prober.for_ever(lambda verdict: self._set(ready=verdict is Verdict.PASSED))

    async def _liveness(self, process: Process) -> None:
        prober = self._prober(ProbeKind.LIVENESS, process)
        if prober is not None:
            unfit = asyncio.Event()
            asking = asyncio.create_task(
                prober.for_ever(lambda verdict: unfit.set() if verdict is Verdict.FAILED else None)
            )
            try:
                await unfit.wait()
            finally:
                asking.cancel()
            await self._unfit(process, ProbeKind.LIVENESS)

    def _prober(self, kind: ProbeKind, process: Process) -> Prober | None:
        probe = probes.probe(self.spec, kind, self._pod.sandbox.address)
        if probe is None:
            return None
        asked, options = probe, self._around.options

        async def ask() -> Answer:
            await self._pod.present()  # nobody asks while the host is away
            limit = asked.timeout * options.probe_timeout_scale
            return await perform(asked.action, process, self._around.http, limit)

        return Prober(probe, ask, options.probe_scale, lambda answer: self._unhealthy(kind, answer))

    def _unhealthy(self, kind: ProbeKind, answer: Answer) -> None:
        self._tell(events.unhealthy(kind, answer.said))

    async def _unfit(self, process: Process, kind: ProbeKind) -> None:
        again = is_restarted(self._policy, self.kind, 1)
        self._tell(events.probe_kill(self.name, kind, again))
        probe: Probe | None = probes.probe(self.spec, kind, self._pod.sandbox.address)
        grace = probe.grace if probe and probe.grace is not None else self._pod_grace()
        ending = asyncio.create_task(self._finish(process, grace))
        await asyncio.shield(ending)  # the end of the container cancels who minds it, not its ending

    # Its end.

    def _pod_grace(self) -> float:
        grace = self._pod.record["spec"].get("terminationGracePeriodSeconds")
        return 30 if grace is None else float(grace)

    async def stop(self, grace: float) -> None:
        """End it for good: ask, wait, kill."""
        self._stopping.set()
        process = self.process
        if process is not None:
            self._tell(events.stopping(self.name))
            await self._finish(process, grace)

    def kill(self) -> None:
        """End it for good, now."""
        self._stopping.set()
        self.cut_power()

    def cut_power(self) -> None:
        """Its processes end as if they had never been asked; whether they come back is its pod's rule."""
        if self.process is not None:
            self.process.kill()

    async def _finish(self, process: Process, grace: float) -> None:
        until = time.monotonic() + grace
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace > 0 and not process.nominal and not await self._hook(hook, process, grace):
            self._tell(events.hook_failed("PreStop"))
        if grace > 0:
            process.terminate()
            if await self._ends_within(max(until - time.monotonic(), _LAST_GRACE)):
                return
        process.kill()
        await self._ends_within(_KILLED_WITHIN)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _hook(self, hook: Json, process: Process, limit: float) -> bool:
        try:
            action = probes.action(hook, self.spec, self._pod.sandbox.address)
        except ValueError:
            return False
        try:
            return (await asyncio.wait_for(perform(action, process, self._around.http, limit), limit)).good
        except TimeoutError:
            return False

    # Telling.

    def _set(self, **changes: Any) -> None:
        fresh = replace(self.status, **changes)
        if fresh != self.status:
            self.status = fresh
            self._pod.changed()

    def _tell(self, event: Event) -> None:
        place = "spec.containers" if self.kind is Kind.MAIN else "spec.initContainers"
        self._pod.tell(replace(event, container=f"{place}{{{self.name}}}"))

    async def _pause(self, seconds: float) -> bool:
        """Wait; False as soon as it is to stop."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return True
        return False
