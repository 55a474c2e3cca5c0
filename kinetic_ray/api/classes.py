"""What `@kinetic.remote` makes of a class."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, cast

from kinetic_ray.api.judging import Takes, check_arguments, name_of, takes_of
from kinetic_ray.frames import own_frames_hidden, raise_told
from kinetic_ray.options import OptionKwargs, check_options, copy_given

if TYPE_CHECKING:
    from kinetic_ray.calls.actors import ActorHandle
    from kinetic_ray.calls.caller import Caller

T = TypeVar("T")


class RemoteClass(Generic[T]):
    """A class whose instances live on the hosts of a gang, one on each: a gang actor.

    Example:
        >>> import kinetic_ray as kinetic
        >>> @kinetic.remote(accelerator="tpu-v6e-16")
        ... class Counter:
        ...     def __init__(self, start: int) -> None:
        ...         self.value = start
        ...
        ...     def add(self, n: int) -> int:
        ...         self.value += n
        ...         return self.value
        >>> Counter
        <kinetic.remote class Counter on tpu-v6e-16>
        >>> counter = Counter.remote(10)  # doctest: +SKIP
        >>> kinetic.get(counter.add.remote(1))  # doctest: +SKIP
        11
    """

    __wrapped__: type[T]

    def __init__(self, kind: type[T], given: OptionKwargs) -> None:
        # Only what people read: a class's own attributes are its instances', and no business of this object's.
        functools.update_wrapper(self, kind, updated=())
        self._given = copy_given(given)
        self._options = check_options(self._given)
        self._name = name_of(kind)
        self._takes = Takes()
        self._caller: Caller | None = None

    def __repr__(self) -> str:
        return f"<kinetic.remote class {self._name} on {self._options.accelerator.name}>"

    @own_frames_hidden()
    def __call__(self, /, *_args: Any, **_kwargs: Any) -> NoReturn:
        """A TypeError: an instance of it lives elsewhere."""
        raise_told(
            TypeError(
                f"{self._name} is a remote class and isn't instantiated directly: {self._name}.remote(...) makes an "
                f"instance on every host, {self._name}.local(...) one in this process"
            )
        )

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> NoReturn:
        """A TypeError: what is inherited from is the plain class."""
        raise_told(
            TypeError(
                f"{self._name} is a remote class, which can't be inherited from: inherit from the plain class "
                f"({self._name}.__wrapped__), and decorate what comes of it"
            )
        )

    @own_frames_hidden()
    def remote(self, /, *args: Any, **kwargs: Any) -> ActorHandle[T]:
        """Makes an instance on every host of a gang of its own, and gives its handle at once.

        What `__init__` raises is raised by the calls of its methods.

        Raises:
            TypeError: The class doesn't take these arguments.
            UsageError, ConfigError, PayloadError: It was refused.
        """
        from kinetic_ray.calls.actors import create
        from kinetic_ray.calls.caller import Caller

        if self._caller is None:
            self._takes = takes_of(self.__wrapped__)
            self._caller = Caller(self.__wrapped__, self._options, self._name)
        check_arguments(self._name, self._takes, args, kwargs)
        return create(self._caller, self.__wrapped__, args, kwargs)

    def local(self, /, *args: Any, **kwargs: Any) -> T:
        """An instance of the plain class in this process, for unit tests."""
        return self.__wrapped__(*args, **kwargs)

    @own_frames_hidden()
    def options(self, **overrides: Unpack[OptionKwargs]) -> RemoteClass[T]:
        """The same class with other options; None takes an option back.

        Raises:
            UsageError: As at decoration.
        """
        given = cast(OptionKwargs, {**self._given, **overrides})
        return RemoteClass(self.__wrapped__, given)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteClass, (self.__wrapped__, self._given)

    def __copy__(self) -> RemoteClass[T]:
        return self

    def __deepcopy__(self, _memo: Any) -> RemoteClass[T]:
        return self
