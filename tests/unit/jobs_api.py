"""A stand-in for Ray's Jobs API: the same words over HTTP, and a switch for each of its moods."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "t0k3n"


class FakeJobsApi:
    """Holds jobs by id; tests set what becomes of them.

    Attributes:
        jobs: Each job's "status" and "message".
        entrypoints: What was submitted, by id.
        unready: Submissions to refuse first, as Ray does before its job agent has reported.
        swallow: Submissions to take and then not answer, as on a broken connection.
        asked: Every request, "METHOD path".
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, str]] = {}
        self.entrypoints: dict[str, str] = {}
        self.unready = 0
        self.swallow = 0
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        self.asked.append(f"{method} {path}")
        job_id, _, act = path.removeprefix("/api/jobs/").partition("/")
        if method == "POST" and not job_id:
            return self._submit(body)
        if job_id not in self.jobs:
            return 404, f"Job {job_id} does not exist"
        if method == "GET":
            return 200, self.jobs[job_id]
        if method == "DELETE":
            del self.jobs[job_id]
            return 200, {"deleted": True}
        assert act == "stop"
        self.jobs[job_id] = {"status": "STOPPED", "message": "stopped"}
        return 200, {"stopped": True}

    def _submit(self, body: dict[str, Any]) -> tuple[int, Any] | None:
        if self.unready > 0:
            self.unready -= 1
            return 500, "No available agent to submit job, please try again later."
        job_id = body["submission_id"]
        if job_id in self.jobs:
            return 400, f"Traceback\nValueError: Job with submission_id {job_id} already exists."
        self.jobs[job_id] = {"status": "RUNNING", "message": "Job is currently running."}
        self.entrypoints[job_id] = body["entrypoint"]
        if self.swallow > 0:
            self.swallow -= 1
            return None
        return 200, {"submission_id": job_id}


def _handler(api: FakeJobsApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            answered = api.answer(self.command, self.path, body) if known else (401, "Unauthorized")
            if answered is None:
                self.close_connection = True
                return
            status, value = answered
            text = value if isinstance(value, str) else json.dumps(value)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for

        def log_message(self, *args: object) -> None:
            """Silent."""

    return Handler
