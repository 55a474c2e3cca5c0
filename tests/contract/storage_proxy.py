"""A proxy before a storage server that puts faults in, and keeps a list of what was asked."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Answer = tuple[int, list[tuple[str, str]], bytes]


@dataclass
class Fault:
    """What befalls the next requests of one kind.

    Attributes:
        how: "refuse" (never reaches the server), "busy" (reaches it, then `status`), "cut" (reaches it, no answer),
            "half" (half of the answer's body), "torn" (half of the request reaches it, no answer), "hang" (no answer,
            the connection stays).
        method: HTTP's.
        times: How many of them; -1 = all.
        status: Of "refuse" and "busy".
        body: Of these.
    """

    how: str
    method: str
    times: int = 1
    status: int = 503
    body: bytes = b'{"error":{"code":503,"message":"told so by the test"}}'


@dataclass
class Proxy:
    """Attributes:
    url: Its address.
    asked: "METHOD path" of every request, in order.
    """

    url: str = ""
    asked: list[str] = field(default_factory=list)
    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._faults += faults

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()
        self.asked.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault of this request, if any."""
        with self._lock:
            self.asked.append(f"{method} {path}")
            for fault in self._faults:
                if fault.method == method and fault.times:
                    fault.times -= 1
                    return fault
        return None


@contextmanager
def proxy_before(upstream: str) -> Iterator[Proxy]:
    """A proxy for as long as the block runs."""
    proxy = Proxy()
    server = _Server(proxy, urlsplit(upstream).netloc)
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: Proxy, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.upstream = upstream


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's
        pass

    def handle_any(self) -> None:
        fault = self.server.proxy.take(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault is None:
            self._answer(self._forward(body))
        else:
            self._misbehave(fault, body)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - the library's

    def _misbehave(self, fault: Fault, body: bytes) -> None:
        if fault.how == "refuse":
            self._answer((fault.status, [], fault.body))
            return
        if fault.how == "hang":
            self.server.proxy.released.wait(60)
            self.close_connection = True
            return
        status, headers, data = self._forward(body[: len(body) // 2] if fault.how == "torn" else body)
        if fault.how == "busy":
            self._answer((fault.status, [], fault.body))
            return
        self.close_connection = True
        if fault.how == "half":
            self._answer((status, headers, data), cut=len(data) // 2)

    def _forward(self, body: bytes) -> Answer:
        connection = http.client.HTTPConnection(self.server.upstream, timeout=30)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except OSError as error:
            return 502, [], str(error).encode()
        finally:
            connection.close()

    def _answer(self, answer: Answer, cut: int | None = None) -> None:
        status, headers, data = answer
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:cut])
