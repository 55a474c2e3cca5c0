"""Requests to Google Cloud Storage: one connection pool, credentials, time-outs, and bounded patience with blips.

Imported only where a `gs://` store is opened: urllib3 takes its time, google-auth as well.
"""

from __future__ import annotations

import errno
import json
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from kinetic_ray.errors import ConfigError
from kinetic_ray.store.patience import Trouble

#: Where the real one is.
GOOGLE = "https://storage.googleapis.com"

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_COME_BACK = frozenset({408, 429, 500, 502, 503, 504})
_CONNECTIONS = 32
_WORDS = 300
_LOG_IN = "run `gcloud auth application-default login`, or name a key file with GOOGLE_APPLICATION_CREDENTIALS"

Body = Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which a request is given up.

    Attributes:
        connect: To get a connection.
        silence: Without a byte on one.
        unreachable: Of nothing but failures to get a connection.
        trouble: Of nothing but failures of any kind, counted from the first: of a server that is silent a caller hears
            after two or three silences. Who calls may have more patience; see `store.patience`.
    """

    connect: float = 10.0
    silence: float = 30.0
    unreachable: float = 10.0
    trouble: float = 40.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status.

    Attributes:
        status: HTTP's number.
        data: All of the body.
        headers: By name, in any case.
        is_repeated: Whether an earlier try, of which no answer came, may have done the same already.
    """

    status: int
    data: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeated: bool = False

    def json(self) -> dict[str, Any]:
        """The body, where it is an object; {} else."""
        try:
            found = json.loads(self.data)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def words(self) -> str:
        """What the server says about a refusal, in one short line."""
        error = self.json().get("error")
        text = error.get("message", "") if isinstance(error, dict) else self.data.decode("utf-8", "replace")
        return " ".join(str(text).split())[:_WORDS]


class Access(Protocol):
    """Who we are."""

    def headers(self, *, anew: bool = False) -> dict[str, str]:
        """What a request has to carry; `anew` after it was refused."""


class Nobody:
    """For a fake server."""

    def headers(self, *, anew: bool = False) -> dict[str, str]:  # noqa: ARG002 - of the seam
        return {}


class Wire:
    """Sends requests. Safe to use from several threads, not across a fork."""

    def __init__(
        self,
        access: Access,
        pool: urllib3.PoolManager,
        limits: Limits | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._access = access
        self._pool = pool
        self._limits = limits or Limits()
        self._wait = wait

    def send(self, method: str, url: str, body: Body | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Sends a request until there is an answer that counts.

        Args:
            method: HTTP's.
            url: All of it.
            body: Makes the body; called again at each try.
            headers: Beside those of the credentials.

        Raises:
            OSError: There is none: unreachable, or in trouble for too long.
        """
        troubles = {True: Trouble(self._limits.unreachable), False: Trouble(self._limits.trouble)}
        broken = repeated = anew = False
        while True:
            try:
                answer = self._once(method, url, body, {**(headers or {}), **self._access.headers(anew=anew)})
            except HTTPError as error:
                was_sent = not isinstance(error, (NewConnectionError, ConnectTimeoutError))
                problem: OSError = _problem(error, url, was_sent=was_sent)
                if isinstance(problem, _Untrusted):
                    raise problem from error
            except ConnectionError as error:  # of the log-in
                was_sent, problem = False, error
            else:
                if answer.status == 401 and not anew:
                    anew = True
                    continue
                if answer.status not in _COME_BACK:
                    return Answer(answer.status, answer.data, answer.headers, repeated)
                was_sent, problem = True, _busy(answer)
            repeated = repeated or was_sent
            if was_sent and not broken and not isinstance(problem, TimeoutError):
                broken = True  # as a rule a connection that was idle for too long: nothing to wait for
                continue
            self._wait(troubles[not was_sent].pause(problem) * random.uniform(0.5, 1.0))

    def _once(self, method: str, url: str, body: Body | None, headers: dict[str, str]) -> Answer:
        answer = self._pool.request(
            method,
            url,
            body=None if body is None else body(),
            headers=headers,
            retries=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=self._limits.connect, read=self._limits.silence),
        )
        return Answer(answer.status, answer.data, answer.headers)


class _Untrusted(PermissionError):
    """A certificate that doesn't hold: no use to try again."""


def _problem(error: HTTPError, url: str, *, was_sent: bool) -> OSError:
    """An exception of urllib3's as one of the operating system's, which the store explains."""
    where = urlsplit(url).netloc
    words = " ".join(str(error).split())[:_WORDS]
    if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in words:
        return _Untrusted(errno.EACCES, f"the certificate of {where} can't be trusted: {words}")
    if not was_sent:
        return ConnectionError(errno.EHOSTUNREACH, f"{where} can't be reached ({words}): is this machine online?")
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, f"{where} does not answer: {words}")
    return ConnectionError(errno.ECONNRESET, f"the connection to {where} broke: {words}")


def _busy(answer: Answer) -> OSError:
    what = "too many requests" if answer.status == 429 else "in trouble"
    return OSError(errno.EBUSY, f"the storage is {what} (HTTP {answer.status}): {answer.words()}")


class GoogleAccess:
    """Google's own search for credentials: a key file, gcloud's log-in, or the account of the machine or pod."""

    def __init__(self, pool: urllib3.PoolManager) -> None:
        """Looks for credentials.

        Raises:
            ConfigError: There are none, or google-auth is missing.
        """
        try:
            import google.auth
            import google.auth.exceptions
            import google.auth.transport.urllib3
        except ImportError as error:
            raise ConfigError(f"a gs:// store needs google-auth: pip install 'kinetic-ray[gcs]' ({error})") from error
        try:
            self._credentials, _ = google.auth.default(scopes=[_SCOPE])
        except google.auth.exceptions.GoogleAuthError as error:
            words = " ".join(str(error).split())[:_WORDS].partition(". ")[0].rstrip(".")
            raise ConfigError(f"no Google credentials can be used for a gs:// store: {words}: {_LOG_IN}") from error
        self._errors: Any = google.auth.exceptions
        self._request: Any = google.auth.transport.urllib3.Request(pool)
        self._lock = threading.Lock()

    def headers(self, *, anew: bool = False) -> dict[str, str]:
        found: dict[str, str] = {}
        with self._lock:
            try:
                if anew:
                    self._credentials.refresh(self._request)
                self._credentials.before_request(self._request, "GET", GOOGLE, found)
            except self._errors.GoogleAuthError as error:
                words = " ".join(str(error).split())[:_WORDS]
                if error.retryable or isinstance(error, self._errors.TransportError):
                    raise ConnectionError(errno.EHOSTUNREACH, f"Google's log-in can't be reached: {words}") from error
                raise PermissionError(errno.EACCES, f"Google's credentials are refused: {words}: {_LOG_IN}") from error
        return found


def new_pool(address: str) -> urllib3.PoolManager:
    """Connections to an address, through the proxy that the environment names for it."""
    parts = urlsplit(address)
    options: dict[str, Any] = {"maxsize": _CONNECTIONS}
    if parts.scheme == "https":
        options["ssl_context"] = _trust()
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname or ""):
        return urllib3.ProxyManager(proxy, **options)
    return urllib3.PoolManager(**options)


def _trust() -> Any:
    """The system's certificates, and the usual ones beside them: an image may have none of its own."""
    import ssl

    context = ssl.create_default_context()
    try:
        import certifi

        context.load_verify_locations(certifi.where())
    except (ImportError, OSError):  # the system's must do
        pass
    return context
