"""Ray's documented Jobs API over HTTP, with the cluster's token."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kinetic_ray.errors import KineticError

_TIMEOUT_S = 30.0
TERMINAL = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


class ApiError(KineticError):
    """The API's answer was no.

    Attributes:
        status: The HTTP status; 0 when there was no answer at all.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_passing(self) -> bool:
        """Whether asking again may help: just after the start, say, when no job agent has reported yet."""
        return self.status == 0 or self.status >= 500


@dataclass(frozen=True, slots=True)
class JobsApi:
    """The Jobs API of one cluster. Every method blocks.

    Attributes:
        address: host:port of the dashboard.
        token: The cluster's token; never shown.
    """

    address: str
    token: str

    def submit(self, entrypoint: str, submission_id: str) -> None:
        """Starts a job.

        Raises:
            ApiError: Not accepted.
        """
        self._ask("POST", "", {"entrypoint": entrypoint, "submission_id": submission_id})

    def job(self, submission_id: str) -> Mapping[str, Any] | None:
        """What is known of a job: "status", "message", "driver_exit_code"; None when it was never submitted."""
        try:
            found: Mapping[str, Any] = self._ask("GET", submission_id)
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise
        return found

    def stop(self, submission_id: str) -> None:
        """Has a job stopped: SIGTERM, then SIGKILL after the time that the cluster gives drivers."""
        self._ask("POST", f"{submission_id}/stop")

    def delete(self, submission_id: str) -> None:
        """Forgets a job that has ended."""
        self._ask("DELETE", submission_id)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(self.address, timeout=_TIMEOUT_S)
        try:
            connection.request(method, f"/api/jobs/{path}", json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as exc:
            raise ApiError(f"{method} /api/jobs/{path}: {type(exc).__name__}: {exc}", 0) from exc
        finally:
            connection.close()
        if response.status != 200:
            raise ApiError(f"{method} /api/jobs/{path}: {response.status} {_last_line(text)}", response.status)
        return json.loads(text) if text else None

    def __repr__(self) -> str:
        return f"JobsApi({self.address!r})"


def _last_line(text: str) -> str:
    """The line of a traceback that says what is wrong."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
