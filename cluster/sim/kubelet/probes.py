"""Probes and hooks: what is asked of a container, and what its answers in a row mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster.sim.kubelet.shapes import Json


class ProbeKind(StrEnum):
    """The three questions, by the key of a container's spec."""

    STARTUP = "startupProbe"
    READINESS = "readinessProbe"
    LIVENESS = "livenessProbe"

    @property
    def word(self) -> str:
        """How events begin."""
        return self.value.removesuffix("Probe").capitalize()


@dataclass(frozen=True, slots=True)
class Command:
    """Run this inside the container."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask this of an HTTP server."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """See whether anybody listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait; only hooks do."""

    seconds: float


Action = Command | Fetch | Connect | Sleep


def action(spec: Json, container: Json, address: str) -> Action:
    """What a probe or a hook is to do.

    Raises:
        ValueError: It says nothing that is known here, or names a port that the container doesn't.
    """
    if "exec" in spec:
        return Command(tuple(spec["exec"].get("command") or ()))
    if "httpGet" in spec:
        get = spec["httpGet"]
        port = _port(get["port"], container)
        path = str(get.get("path") or "/").removeprefix("/")
        headers = tuple((one["name"], one["value"]) for one in get.get("httpHeaders") or [])
        scheme = str(get.get("scheme") or "HTTP").lower()
        return Fetch(f"{scheme}://{get.get('host') or address}:{port}/{path}", headers)
    if "tcpSocket" in spec:
        socket = spec["tcpSocket"]
        return Connect(str(socket.get("host") or address), _port(socket["port"], container))
    if "grpc" in spec:  # whether somebody listens is all that is asked here
        return Connect(address, int(spec["grpc"]["port"]))
    if "sleep" in spec:
        return Sleep(float(spec["sleep"]["seconds"]))
    raise ValueError(f"missing probe handler, or one that is not known here: {sorted(spec)}")


def _port(port: int | str, container: Json) -> int:
    named = {one.get("name"): int(one["containerPort"]) for one in container.get("ports") or []}
    if isinstance(port, str) and port in named:
        return named[port]
    return int(port)


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a container, with Kubernetes' defaults filled in."""

    kind: ProbeKind
    action: Action
    delay: float = 0
    period: float = 10
    timeout: float = 1
    successes: int = 1
    failures: int = 3
    grace: int | None = None


def probe(container: Json, kind: ProbeKind, address: str) -> Probe | None:
    """A container's probe of a kind, if it has one."""
    spec = container.get(kind.value)
    if not spec:
        return None
    return Probe(
        kind=kind,
        action=action(spec, container, address),
        delay=spec.get("initialDelaySeconds") or 0,
        period=spec.get("periodSeconds") or 10,
        timeout=spec.get("timeoutSeconds") or 1,
        successes=spec.get("successThreshold") or 1,
        failures=spec.get("failureThreshold") or 3,
        grace=spec.get("terminationGracePeriodSeconds"),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of asking once."""

    good: bool
    said: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """How often in a row the last answer was given."""

    good: int = 0
    bad: int = 0

    def after(self, answer: Answer) -> Tally:
        return Tally(good=self.good + 1) if answer.good else Tally(bad=self.bad + 1)


class Verdict(StrEnum):
    """What a row of answers comes to."""

    UNDECIDED = "undecided"
    PASSED = "passed"
    FAILED = "failed"


def judge(asked: Probe, tally: Tally) -> Verdict:
    """What the answers so far mean."""
    if tally.good >= asked.successes:
        return Verdict.PASSED
    if tally.bad >= asked.failures:
        return Verdict.FAILED
    return Verdict.UNDECIDED
