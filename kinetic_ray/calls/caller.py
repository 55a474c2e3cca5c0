"""Makes calls of one function: its code as it is now, its options, its arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kinetic_ray import config
from kinetic_ray.bundle.origins import Source, origin_of
from kinetic_ray.calls.asking import check_variables, need_of, places_of, refuse_for_calls, secrets_of, wish_of
from kinetic_ray.calls.code import Code, CodeTracker
from kinetic_ray.calls.requests import Request, request_of
from kinetic_ray.calls.session import Session, current_session
from kinetic_ray.options import Options
from kinetic_ray.runner.calls.packing import NOTHING, pack_arguments
from kinetic_ray.runner.calls.wish import Order, Wish


def goes_by_value(module: str) -> bool:
    """Whether a loaded module can't be imported on a host, so that what it defines travels with the call."""
    return origin_of(module).source in (Source.MAIN, Source.LOOSE)


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A request, and what it was made for."""

    session: Session
    code: Code
    variables: Mapping[str, str] = field(repr=False)
    secrets: Mapping[str, str]
    request: Request

    def fits(self, session: Session, code: Code, variables: Mapping[str, str], secrets: Mapping[str, str]) -> bool:
        is_same = self.session is session and self.code is code
        return is_same and self.variables == variables and self.secrets == secrets


class Caller:
    """Makes calls of one function, or instances of one class. Thread-safe.

    Args:
        function: The plain function or class.
        options: How it is to run.
        name: Its name, for people.
        session: Gives the process's session.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        name: str,
        session: Callable[[], Session] = current_session,
    ) -> None:
        self._function = function
        self._options = options
        self._name = name
        self.session = session
        self._lock = threading.Lock()
        self._judged_for: Session | None = None
        self._tracker: CodeTracker | None = None
        self._prepared: _Prepared | None = None

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls the function; gives the ref of its value at once.

        Raises:
            UsageError, ConfigError, PayloadError: The call was refused.
        """
        session = self.session()
        request = self.request(session)
        packed = pack_arguments(args, kwargs, goes_by_value, self._name) if args or kwargs else NOTHING
        return session.send(request, packed)

    def request(self, session: Session) -> Request:
        """A call as it is now, but for its arguments; the very same one while nothing has changed.

        Raises:
            UsageError, ConfigError, PayloadError: It was refused.
        """
        if self._judged_for is not session:
            self._judge(session)
        assert self._tracker is not None
        code = self._tracker.current()
        variables = self._variables()
        secrets = secrets_of(self._options, session.connection.target)
        prepared = self._prepared
        if prepared is not None and prepared.fits(session, code, variables, secrets):
            return prepared.request
        check_variables(variables)
        order = self._make_order(session, code, wish_of(self._options, code, variables, secrets))
        request = request_of(order, session.code_refs(code))
        self._prepared = _Prepared(session, code, variables, secrets, request)
        return request

    def _variables(self) -> Mapping[str, str]:
        options = self._options
        return options.variables(config.environment()) if options.capture_env_vars else options.env_vars

    def _judge(self, session: Session) -> None:
        """Refuses what can never work, once per cluster that this process joins."""
        with self._lock:
            target = session.connection.target
            refuse_for_calls(self._name, self._options)
            session.check(need_of(self._options))
            self._tracker = CodeTracker(self._function, avoid=places_of(target))
            self._judged_for = session

    def _make_order(self, session: Session, code: Code, wish: Wish) -> Order:
        options = self._options
        return Order(
            wish=wish,
            function=code.digest,
            name=options.name or self._name,
            client=session.connection.client,
            gather=options.gather,
            priority=options.priority,
            capacity_timeout=options.capacity_timeout,
            timeout=options.timeout,
            ancestors=session.connection.ancestors,
            sizes=(code.function.nbytes, 0 if code.bundle is None else len(code.bundle.data)),
        )
