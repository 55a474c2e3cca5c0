"""What both decorators make of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from kinetic_ray import config
from kinetic_ray.api.judging import Takes, check_arguments, inside_a_job, name_of, takes_of
from kinetic_ray.errors import UsageError
from kinetic_ray.frames import own_frames_hidden, raise_told
from kinetic_ray.interrupts import Begun, beginning
from kinetic_ray.options import OptionKwargs, check_options, copy_given

if TYPE_CHECKING:
    from ray.includes.object_ref import ObjectRef

    from kinetic_ray.batch import BatchHandle
    from kinetic_ray.calls.caller import Caller
    from kinetic_ray.jobs import JobHandle

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Rest = ParamSpec("Rest")

_NESTED = (
    "{name} can't start a job inside of a job in this version of kinetic_ray: every rank would start one, and might "
    "wait for the very slice that this job holds. Call it plainly, {name}.local(...), or {name}(...) where it is a run "
    "function: it then runs here, as a part of this job; or {name}.remote(...), which runs elsewhere, unrecorded. "
    'A script that submits jobs does so under if __name__ == "__main__" and is started without --accelerator'
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
        self._name = name_of(function)
        self._takes: Takes | None = None
        self._caller: Caller | None = None
        self.calls_run = calls_run

    def __repr__(self) -> str:
        decorator = "run" if self.calls_run else "remote"
        return f"<kinetic.{decorator} function {self._name} on {self._options.accelerator.name}>"

    @own_frames_hidden()
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """`.run(...)` for a `run` function, inside of a job the plain call; a TypeError for a `remote` function."""
        if not self.calls_run:
            told = (
                f"{self._name} is a remote function and isn't called directly: {self._name}.remote(...) gives a ref "
                f"for kinetic.get, {self._name}.run(...) waits for its value as a durable job, "
                f"{self._name}.run_async(...) gives a handle, {self._name}.local(...) calls it in this process"
            )
            raise_told(TypeError(told))
        return self.local(*args, **kwargs) if inside_a_job() else self._waited_for(args, kwargs)

    @own_frames_hidden()
    def run(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs it as a durable job: shows stages and the leader's log, waits, returns the value.

        Ctrl-C ends the waiting, not the job; what is printed then says how to go on.

        Raises:
            TypeError: The function doesn't take these arguments.
            UsageError, ConfigError, PayloadError: The call was refused; nothing was created.
            Exception: As for :meth:`JobHandle.result`.
        """
        return self._waited_for(args, kwargs)

    @own_frames_hidden()
    def run_async(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Runs it as a durable job and returns its handle once the job is recorded; the laptop may close.

        Raises:
            TypeError: The function doesn't take these arguments.
            UsageError, ConfigError, PayloadError: The call was refused, as it is inside of a job; nothing was created.
            SubmissionError: The job is recorded, but could not be started.
        """
        return self._submitted(args, kwargs)

    def run_async_map(self, inputs: Iterable[Any], **_options: Any) -> BatchHandle:  # noqa: ARG002
        """Runs it as a job for each of many inputs. Not there yet.

        Raises:
            UsageError: Always, in this version.
        """
        from kinetic_ray.batch import refuse_batches

        refuse_batches(f"{self._name}.run_async_map(...)")

    def _waited_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        with beginning(self._name) as begun:
            from kinetic_ray import ui

            handle = self._submitted(args, kwargs, begun)
        subject = ui.Subject(handle.job_id, self._name, self._options.accelerator.name)
        return handle.follow(ui.open_reporter(subject, color=config.color()))

    def _submitted(self, args: tuple[Any, ...], kwargs: dict[str, Any], begun: Begun | None = None) -> JobHandle[R]:
        with beginning(self._name, begun) as way:
            from kinetic_ray.jobs.submitting import Call, submit

            if inside_a_job():
                raise UsageError(_NESTED.format(name=self._name))
            self._check(args, kwargs)
            return submit(Call(self.__wrapped__, args, kwargs, self._name), self._options, begun=way)

    def _new_caller(self) -> Caller:
        from kinetic_ray.calls.caller import Caller

        self._caller = Caller(self.__wrapped__, self._options, self._name)
        return self._caller

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._takes is None:
            self._takes = takes_of(self.__wrapped__)
        check_arguments(self._name, self._takes, args, kwargs)

    def local(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the plain function in this process, for unit tests."""
        return self.__wrapped__(*args, **kwargs)

    @own_frames_hidden()
    def remote(self, /, *args: P.args, **kwargs: P.kwargs) -> ObjectRef[R]:
        """Calls it on the cluster at once, without any record, and gives a `ray.ObjectRef` of its value.

        `kinetic.get` waits for the value. The hosts stay warm for the next call. Refs among the arguments are resolved
        first, refs inside of them are handed over as they are.

        Raises:
            TypeError: The function doesn't take these arguments.
            UsageError, ConfigError, PayloadError: The call was refused.

        Example:
            >>> import kinetic_ray as kinetic
            >>> double = kinetic.remote(lambda x: 2 * x)
            >>> kinetic.get(double.remote(21))  # doctest: +SKIP
            42
        """
        self._check(args, kwargs)
        caller = self._caller or self._new_caller()
        return cast("ObjectRef[R]", caller.call(args, kwargs))

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

    def manifest(self, kind: Literal["rayjob", "raycluster"]) -> str:
        """What a cluster with KubeRay would be given for it, as YAML: the very bytes that applying sends.

        Args:
            kind: "rayjob": a cluster of one call's own. "raycluster": the profile's cluster with a pool for this
                function, and the accounts, rights and network rules that both kinds need.

        Raises:
            UsageError: No such kind, or an option that no pool can have.
            ConfigError: `image=` or a store that pods reach is missing, or a name can't be one.
        """
        from kinetic_ray.backends.kuberay.describing import manifest_of

        return manifest_of(kind, self._name, self._options)

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
        """Travels as what it is: inside of a call or a job its `.remote` works, and a `run` function is just called."""
        return decorated, (self.__wrapped__, self._given, self.calls_run)

    def __copy__(self) -> RemoteFunction[P, R]:
        return self

    def __deepcopy__(self, _memo: Any) -> RemoteFunction[P, R]:
        return self


def decorated(function: Callable[..., Any], given: OptionKwargs, calls_run: bool) -> RemoteFunction[..., Any]:
    """A decorated function that has travelled. Its name and form are part of the stored format."""
    return RemoteFunction(function, given, calls_run=calls_run)
