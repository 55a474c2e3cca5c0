"""Whether and when a container that ended is started again."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.sim.kubelet.states import Kind

FIRST, LONGEST, FORGET_AFTER = 10.0, 300.0, 600.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long to wait before something that failed is tried again; doubles with each failure.

    Attributes:
        scale: What all times are multiplied by: tests have no five minutes.
        failures: How often it has failed in a row.
    """

    scale: float = 1.0
    failures: int = 0

    def after(self, lasted: float = 0.0) -> BackOff:
        """After one more failure of something that had run for a time: what ran long enough starts anew."""
        return BackOff(self.scale, 1 if lasted > FORGET_AFTER * self.scale else self.failures + 1)

    @property
    def nominal(self) -> int:
        """The seconds that Kubernetes would wait, and tells of; nothing before the first failure."""
        if self.failures == 0:
            return 0
        return int(min(FIRST * 2 ** min(self.failures - 1, 16), LONGEST))

    @property
    def delay(self) -> float:
        """The seconds to wait here."""
        return self.nominal * self.scale


def is_restarted(policy: str, kind: Kind, code: int) -> bool:
    """Whether a container that ended by itself runs again.

    Args:
        policy: The pod's restartPolicy.
        kind: What part it plays: a sidecar always runs again, an init container that has done its work never.
        code: How it ended.
    """
    if kind is Kind.SIDECAR:
        return True
    if policy == "Never":
        return False
    if kind is Kind.INIT or policy == "OnFailure":
        return code != 0
    return True


def spoken(seconds: int) -> str:
    """Seconds as Go prints a duration: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
