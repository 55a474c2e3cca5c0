"""The decorators, and the functions that they give."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, Unpack, cast, overload

from kinetic_ray import config
from kinetic_ray.errors import UsageError
from kinetic_ray.frames import own_frames_hidden, raise_told
from kinetic_ray.options import OptionKwargs, check_options, copy_given, shown_signature

if TYPE_CHECKING:
    from kinetic_ray.jobs import JobHandle

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])
Rest = ParamSpec("Rest")

#: What a decorator without `accelerator=` takes; upstream's for `run`.
RUN_DEFAULT, REMOTE_DEFAULT = "tpu-v5e-1", "cpu"

_NESTED = (
    "{name} can't start a job inside of a job in this version of kinetic_ray: every rank would start one, and might "
    "wait for the very slice that this job holds. Call it plainly, {name}.local(...), or {name}(...) where it is a run "
    "function: it then runs here, as a part of this job. A script that submits jobs does so under if __name__ == "
    '"__main__" and is started without --accelerator'
)


class RemoteFunction(Generic[P, R]):
    """A function that runs as a job; what both decorators give.

    Attributes:
        calls_run: Whether calling it is `.run`; else calling it is an error.

    Example:
        >>> import kinetic_ray as kinetic
        >>> @kinetic.remote
        ... def double(x: int) -> int:
        ...     return 2 * x
        >>> double.local(21)
        42
        >>> job = double.run_async(21)  # doctest: +SKIP
        >>> job.result()  # doctest: +SKIP
        42
    """

    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], given: OptionKwargs, *, calls_run: bool) -> None:
        functools.update_wrapper(self, function)  # first: a function's own attributes must not replace ours
        self._given = copy_given(given)
        self._options = check_options(self._given)
        self._name = _name_of(function)
        self.calls_run = calls_run

    def __repr__(self) -> str:
        decorator = "run" if self.calls_run else "remote"
        return f"<kinetic.{decorator} function {self._name} on {self._options.accelerator.name}>"

    @own_frames_hidden()
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """`.run(...)` for a `run` function, inside of a job the plain call; a TypeError for a `remote` function."""
        if not self.calls_run:
            told = (
                f"{self._name} is a remote function and isn't called directly: {self._name}.run(...) waits for its "
                f"value, {self._name}.run_async(...) gives a handle, {self._name}.local(...) calls it in this process"
            )
            raise_told(TypeError(told))
        return self.local(*args, **kwargs) if _inside_a_job() else self._waited_for(args, kwargs)

    @own_frames_hidden()
    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs it as a durable job: shows stages and the leader's log, waits, returns the value.

        Ctrl-C ends the waiting, not the job; what is printed then says how to go on.

        Raises:
            TypeError: The function doesn't take these arguments.
            UsageError, ConfigError, PayloadError: The call was refused; nothing was created.
            Exception: As for :meth:`JobHandle.result`.
        """
        return self._waited_for(args, kwargs)

    @own_frames_hidden()
    def run_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Runs it as a durable job and returns its handle once the job is recorded; the laptop may close.

        Raises:
            TypeError: The function doesn't take these arguments.
            UsageError, ConfigError, PayloadError: The call was refused, as it is inside of a job; nothing was created.
            SubmissionError: The job is recorded, but could not be started.
        """
        return self._submitted(args, kwargs)

    def _waited_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        from kinetic_ray import ui

        handle = self._submitted(args, kwargs)
        subject = ui.Subject(handle.job_id, self._name, self._options.accelerator.name)
        return handle.follow(ui.open_reporter(subject, color=config.color()))

    def _submitted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobHandle[R]:
        from kinetic_ray.jobs.submitting import Call, submit

        if _inside_a_job():
            raise UsageError(_NESTED.format(name=self._name))
        _check_arguments(self._name, self.__wrapped__, args, kwargs)
        return submit(Call(self.__wrapped__, args, kwargs, self._name), self._options)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the plain function in this process, for unit tests."""
        return self.__wrapped__(*args, **kwargs)

    @own_frames_hidden()
    def remote(self, *_args: P.args, **_kwargs: P.kwargs) -> NoReturn:
        """Not in this version: will give a `ray.ObjectRef`."""
        raise UsageError(
            f"{self._name}.remote(...) comes with a later version of kinetic_ray; "
            f"{self._name}.run_async(...) gives a durable handle, {self._name}.run(...) waits for the value"
        )

    @own_frames_hidden()
    def options(self, **overrides: Unpack[OptionKwargs]) -> RemoteFunction[P, R]:
        """The same function with other options; None takes an option back.

        Raises:
            UsageError: As at decoration.

        Example:
            >>> import kinetic_ray as kinetic
            >>> kinetic.remote(max).options(accelerator="tpu-v6e-16", timeout="2h")
            <kinetic.remote function max on tpu-v6e-16>
        """
        given = cast(OptionKwargs, {**self._given, **overrides})
        return RemoteFunction(self.__wrapped__, given, calls_run=self.calls_run)

    @overload
    def __get__(self, instance: None, owner: type) -> RemoteFunction[P, R]: ...
    @overload
    def __get__(
        self: RemoteFunction[Concatenate[S, Rest], R], instance: S, owner: type | None = None
    ) -> RemoteFunction[Rest, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Binds as functions do; the instance is pickled with the call."""
        if instance is None:
            return self
        bound = MethodType(self.__wrapped__, instance)
        return RemoteFunction(bound, cast(OptionKwargs, self._given), calls_run=self.calls_run)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as the plain function: inside of a job a decorated function is just called."""
        from kinetic_ray.payload.pickling import plain

        return plain, (self.__wrapped__,)

    def __copy__(self) -> RemoteFunction[P, R]:
        return self

    def __deepcopy__(self, _memo: Any) -> RemoteFunction[P, R]:
        return self


def _shows_options(accelerator: str) -> Callable[[F], F]:
    def mark(decorator: F) -> F:
        vars(decorator)["__signature__"] = shown_signature(accelerator)
        return decorator

    return mark


@overload
def run(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def run(
    accelerator: str | None = None, /, **options: Unpack[OptionKwargs]
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
@_shows_options(RUN_DEFAULT)
@own_frames_hidden()
def run(function: Any = None, /, **options: Any) -> Any:
    """Makes a function run as a job when it is called: the call blocks, streams logs and returns the value.

    Works with and without parentheses.

    Args:
        function: The function; or the accelerator, as upstream's first argument.
        **options: None stands for "not given". docs/reference.md says more.
            accelerator: "tpu-v6e-16", "cpu", ... ("tpu-v5e-1").
            num_slices, hosts, chips_per_host: The gang's shape, where the accelerator's name leaves it open.
            gather: "leader": the value is rank 0's; "all": the list of all ranks'.
            runtime: "auto", "jax" or "plain".
            timeout, capacity_timeout: The longest time running and in the queue: seconds, or text such as "12h".
            resources: Of a host of a cpu gang: {"cpu": 2, "memory": "8GiB"}.
            env_vars, capture_env_vars: Variables for the job: a mapping; names to copy from here.
            output_dir: Where files in `context().output_dir` are kept.
            name, tags: For people, and to find it again.
            image, container_image, local_ignore_image, backend: Where and in what to run it.

    Raises:
        UsageError: An unknown option, or a value that can't be right.
        TypeError: Not a function that can run elsewhere.

    Example:
        >>> import kinetic_ray as kinetic
        >>> @kinetic.run(accelerator="tpu-v6e-16")
        ... def train(steps: int) -> float: ...
        >>> train
        <kinetic.run function train on tpu-v6e-16>
    """
    return _decorate(function, options, default=RUN_DEFAULT, calls_run=True)


@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def remote(
    accelerator: str | None = None, /, **options: Unpack[OptionKwargs]
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
@_shows_options(REMOTE_DEFAULT)
@own_frames_hidden()
def remote(function: Any = None, /, **options: Any) -> Any:
    """Makes a function one that can run as a job, by `.run` or `.run_async`; calling it directly is an error.

    Works with and without parentheses.

    Args:
        function: The function; or the accelerator.
        **options: As for :func:`run`, but `accelerator` is "cpu" where none is given.

    Raises:
        UsageError: An unknown option, or a value that can't be right.
        TypeError: Not a function that can run elsewhere.

    Example:
        >>> import kinetic_ray as kinetic
        >>> @kinetic.remote
        ... def double(x: int) -> int:
        ...     return 2 * x
        >>> double.local(4)
        8
    """
    return _decorate(function, options, default=REMOTE_DEFAULT, calls_run=False)


def submit_script(path: str, argv: list[str], **options: Unpack[OptionKwargs]) -> JobHandle[None]:
    """Runs a script as `__main__` on every rank, as `kinetic run SCRIPT --accelerator` does.

    Args:
        path: The script.
        argv: Its arguments.
        **options: As for :func:`remote`.

    Raises:
        UsageError: No such script, or a bad option.
    """
    from kinetic_ray.jobs.submitting import Call, submit
    from kinetic_ray.payload import run_script

    script = Path(path).resolve()
    if not script.is_file():
        raise UsageError(f"{path}: no such script")
    checked = check_options({"accelerator": REMOTE_DEFAULT, **options})
    return submit(Call(run_script, (list(argv),), {}, script.name, script), checked)


def _decorate(function: Any, options: dict[str, Any], *, default: str, calls_run: bool) -> Any:
    given: dict[str, Any] = {"accelerator": default}
    if isinstance(function, str):
        given["accelerator"], function = function, None
    given |= options
    check_options(given)  # at the line of the decorator, also where the function comes later

    def decorator(decorated: Any) -> RemoteFunction[Any, Any]:
        _check_function(decorated)
        return RemoteFunction(decorated, cast(OptionKwargs, given), calls_run=calls_run)

    return decorator if function is None else decorator(function)


def _check_function(function: Any) -> None:
    name = _name_of(function)
    if isinstance(function, RemoteFunction):
        raise TypeError(f"{name} is decorated already: use .options(...) to change its options")
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise TypeError(f"{name} is a {kind}: write @{kind} above the kinetic decorator, not below it")
    if isinstance(function, type):
        raise UsageError(f"{name} is a class: gang actors come with a later version of kinetic_ray")
    if not callable(function):
        raise TypeError(f"{name} can't be called, so it can't be decorated")
    if isinstance(function, type(functools.cache(abs))):
        raise TypeError(f"{name} has an lru_cache, which would be empty on every host: put the cache on what it calls")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            f"{name} is an async or generator function, whose value can't leave its process: "
            "return a plain value (asyncio.run(...), list(...)) from a plain function"
        )
    if inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is an async generator function: return a plain value from a plain function")


def _name_of(function: Any) -> str:
    """The name for people: "train", "Trainer.train", "partial"."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return str(name).rpartition("<locals>.")[2]


def _inside_a_job() -> bool:
    """Whether this is a rank, or a process that one has started."""
    from kinetic_ray.runner import session

    return session.CURRENT.context is not None or config.inside_a_job()


def _check_arguments(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses arguments that the call could only fail with, as Python would; what can't be told is let through."""
    try:
        # The outermost layer is what is called: a wrapper may well hand over other arguments than it takes.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        told = TypeError(f"{name}(): {exc}")
    else:
        return
    raise_told(told)
