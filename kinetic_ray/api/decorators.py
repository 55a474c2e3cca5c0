"""The decorators, and a script as a job."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from kinetic_ray.api.classes import RemoteClass
from kinetic_ray.api.functions import RemoteFunction
from kinetic_ray.api.judging import check_methods, name_of
from kinetic_ray.calls.streams import is_stream
from kinetic_ray.errors import UsageError
from kinetic_ray.frames import own_frames_hidden
from kinetic_ray.options import OptionKwargs, Options, check_options

if TYPE_CHECKING:
    from kinetic_ray.jobs import JobHandle

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: What follows the accelerator in keras-team/kinetic's `run`.
UPSTREAM_ORDER = (
    "container_image", "base_image_repo", "zone", "project", "capture_env_vars", "cluster", "backend", "namespace",
    "volumes", "spot", "output_dir", "debug",
)  # fmt: skip
#: What a decorator without `accelerator=` takes; upstream's for `run`.
RUN_DEFAULT, REMOTE_DEFAULT = "tpu-v5e-1", "cpu"


class Decorator(Protocol):
    """What `remote(...)` gives, for type checkers: a class becomes a gang actor, anything else a remote function."""

    @overload
    def __call__(self, decorated: type[T], /) -> RemoteClass[T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, decorated: Callable[P, R], /) -> RemoteFunction[P, R]: ...


def shown_signature(accelerator: str) -> inspect.Signature:
    """What `help()` and editors show of a decorator that takes the options by keyword.

    Args:
        accelerator: The decorator's own default.
    """
    defaults = {each.name: each.default for each in fields(Options) if each.default is not MISSING}
    defaults |= {"accelerator": accelerator, "name": None}
    kind = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, kind, default=defaults.get(name), annotation=getattr(hint, "__forward_arg__", hint))
        for name, hint in OptionKwargs.__annotations__.items()
    ]
    function = inspect.Parameter("function", inspect.Parameter.POSITIONAL_ONLY, default=None)
    return inspect.Signature([function, *options])


def _shows_options(accelerator: str) -> Callable[[F], F]:
    def mark(decorator: F) -> F:
        vars(decorator)["__signature__"] = shown_signature(accelerator)
        return decorator

    return mark


@overload
def run(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def run(
    accelerator: str | None = None, /, *upstream: Any, **options: Unpack[OptionKwargs]
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
@_shows_options(RUN_DEFAULT)
@own_frames_hidden()
def run(function: Any = None, /, *upstream: Any, **options: Any) -> Any:
    """Makes a function run as a job when it is called: the call blocks, streams logs and returns the value.

    Works with and without parentheses.

    Args:
        function: The function; or the accelerator, as upstream's first argument.
        *upstream: What follows the accelerator in keras-team/kinetic's `run`, in its order.
        **options: None stands for "not given". docs/reference.md says more.
            accelerator: "tpu-v6e-16", "cpu", ... ("tpu-v5e-1").
            num_slices, hosts, chips_per_host: The gang's shape, where the accelerator's name leaves it open.
            gather: "leader": the value is rank 0's; "all": the list of all ranks'.
            runtime: "auto", "jax" or "plain".
            timeout, capacity_timeout: The longest time running and in the queue: seconds, or text such as "12h".
            resources: Of a host of a cpu gang: {"cpu": 2, "memory": "8GiB"}.
            env_vars, capture_env_vars: Variables for the job: a mapping; names to copy from here.
            secrets: Names of secrets whose variables the hosts set (`kinetic secret set`); values stay with the hosts.
            output_dir: Where files in `context().output_dir` are kept.
            name, tags: For people, and to find it again.
            priority: Higher goes first among those that wait.
            image, container_image, local_ignore_image, backend, profile: Where and in what to run it.
            project, zone, cluster, namespace, capacity, spot, base_image_repo: For clusters; passed over here.

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
    return _decorate(function, {**_by_name(upstream, options), **options}, default=RUN_DEFAULT, calls_run=True)


@overload
def remote(function: type[T], /) -> RemoteClass[T]: ...  # type: ignore[overload-overlap]
@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def remote(accelerator: str | None = None, /, **options: Unpack[OptionKwargs]) -> Decorator: ...
@_shows_options(REMOTE_DEFAULT)
@own_frames_hidden()
def remote(function: Any = None, /, **options: Any) -> Any:
    """Makes a function one that can be called elsewhere, by `.remote`, `.run` or `.run_async`; of a class a gang actor.

    Calling it directly is an error. Works with and without parentheses.

    Args:
        function: The function or class; or the accelerator.
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


def _by_name(upstream: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Upstream's arguments by their names; Python's own errors for too many, and for one that is given twice."""
    if len(upstream) > len(UPSTREAM_ORDER):
        most = len(UPSTREAM_ORDER) + 1
        raise TypeError(f"run() takes at most {most} positional arguments, as keras-team/kinetic's; name the others")
    named = dict(zip(UPSTREAM_ORDER, upstream, strict=False))
    if twice := [name for name in named if name in options]:
        raise TypeError(f"run() got multiple values for argument {twice[0]!r}")
    return named


def _decorate(function: Any, options: dict[str, Any], *, default: str, calls_run: bool) -> Any:
    given: dict[str, Any] = {"accelerator": default}
    if isinstance(function, str):
        given["accelerator"], function = function, None
    given |= options
    check_options(given)  # at the line of the decorator, also where the function comes later

    def decorator(decorated: Any) -> Any:
        _check_function(decorated)
        if not calls_run:  # calls need it, and in a thread that outlives the main one it can't be imported any more
            import concurrent.futures.thread  # noqa: F401
        if isinstance(decorated, type):
            if calls_run:
                raise UsageError(f"{name_of(decorated)} is a class: @kinetic.remote makes a gang actor of it")
            return RemoteClass(decorated, cast(OptionKwargs, given))
        return RemoteFunction(decorated, cast(OptionKwargs, given), calls_run=calls_run)

    return decorator if function is None else decorator(function)


def _check_function(function: Any) -> None:
    name = name_of(function)
    if isinstance(function, RemoteFunction | RemoteClass):
        raise TypeError(f"{name} is decorated already: use .options(...) to change its options")
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise TypeError(f"{name} is a {kind}: write @{kind} above the kinetic decorator, not below it")
    if not callable(function):
        raise TypeError(f"{name} can't be called, so it can't be decorated")
    if isinstance(function, type(functools.cache(abs))):
        raise TypeError(f"{name} has an lru_cache, which would be empty on every host: put the cache on what it calls")
    if isinstance(function, type):
        check_methods(function)
    elif is_stream(function):
        raise TypeError(
            f"{name} is an async or generator function, whose value can't leave its process: "
            "return a plain value (asyncio.run(...), list(...)) from a plain function"
        )
