"""The pickler of calls: what goes by name, what goes by value; its state belongs to one call."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from pickle import PickleBuffer
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import IO, Any

import cloudpickle
from cloudpickle.cloudpickle import _dynamic_class_reduce

from kinetic_ray.payload.bare import reduced_error
from kinetic_ray.payload.homes import with_home, with_qualname
from kinetic_ray.payload.pytrees import with_registration
from kinetic_ray.payload.sources import Sources, remember
from kinetic_ray.payload.wrapped import module_reduced, reduced_wrapper

_MOST_WRAPPERS = 32

TakeBuffer = Callable[[PickleBuffer], object]


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """For what comes back: classes that go by value are the reader's own again where it has them.

    Args:
        take_buffer: As `buffer_callback` of :class:`pickle.Pickler`: takes large buffers beside the pickle.
        limit: Most bytes; a ValueError comes before more are made of a large object.
        file: Where the pickle goes if not to memory.
    """

    def __init__(
        self, take_buffer: TakeBuffer | None = None, limit: int | None = None, file: IO[bytes] | None = None
    ) -> None:
        self._file = io.BytesIO() if limit is None else _Bounded(limit)
        super().__init__(self._file if file is None else file, protocol=5, buffer_callback=take_buffer)

    def dumps(self, obj: object) -> bytes:
        """The pickle of one object; call it once."""
        self.dump(obj)
        return self._file.getvalue()

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, type) and (alike := _reduced_alike(obj, _is_main)) is not None:
            return alike
        reduced = super().reducer_override(obj)
        return with_registration(obj, with_home(obj, reduced)) if isinstance(obj, type) else reduced


def _reduced_alike(obj: Any, is_not_there: Callable[[str], bool]) -> Any:
    """How to pickle what goes otherwise than cloudpickle would have it, wherever it goes; None for all else."""
    if isinstance(obj, memoryview):
        return _view_reduced(obj)
    return reduced_error(obj) if isinstance(obj, BaseException) else reduced_wrapper(obj, is_not_there)


def _class_told(cls: type, reduced: Any) -> Any:
    return with_registration(cls, with_qualname(cls, reduced))


def _is_main(module: str) -> bool:
    return module == "__main__"


class _Bounded(io.BytesIO):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self._left = limit

    def write(self, data: Any) -> int:
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            raise ValueError("it is too large")
        return super().write(data)


class CallPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by name what the host can import, and by value what it can't.

    A function that a decorator has replaced in its module (as ours do) still goes by name: the host finds what stands
    there and follows `__wrapped__` inwards.

    Args:
        by_value: Asked for a loaded module: True if the host can't import it.
        take_buffer: As `buffer_callback` of :class:`pickle.Pickler`: takes large buffers beside the pickle.
        file: Where the pickle goes if not to memory.
    """

    def __init__(
        self, by_value: Callable[[str], bool], take_buffer: TakeBuffer | None = None, file: IO[bytes] | None = None
    ) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file if file is None else file, protocol=5, buffer_callback=take_buffer)
        self._by_value = by_value
        self._judged: dict[str, bool] = {}
        self._sources = Sources()
        #: Names of the modules that the pickle refers to.
        self.modules: set[str] = set()

    def dumps(self, obj: object) -> bytes:
        """The pickle of an object. A further one's refers to what stood in those before, and is read after them."""
        self._file.seek(0)
        self._file.truncate()
        self.dump(obj)
        return self._file.getvalue()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            return self._reduce_module(obj)
        if isinstance(obj, CodeType):
            _, parts = self.dispatch_table[CodeType](obj)
            source = self._sources.of(obj)
            return code_from, (obj.co_filename, parts) if source is None else (obj.co_filename, parts, source)
        if isinstance(obj, io.TextIOWrapper) and obj is not sys.stdout and obj is not sys.stderr:
            raise TypeError(f"it is an open file ({getattr(obj, 'name', 'without a name')})")
        if not isinstance(obj, type) and (alike := _reduced_alike(obj, self._is_not_there)) is not None:
            return alike
        if isinstance(obj, FunctionType | type):
            name = getattr(obj, "__module__", None)
            if isinstance(name, str) and name in sys.modules:
                return self._reduce_named(obj, name)
        return super().reducer_override(obj)

    def _reduce_module(self, module: ModuleType) -> Any:
        name = module.__name__
        if sys.modules.get(name) is module:
            if name != "__main__" and self._goes_by_value(name):  # cloudpickle would have it imported there
                return module_reduced(module)
            self.modules.add(name)
        return super().reducer_override(module)

    def _reduce_named(self, obj: FunctionType | type, module: str) -> Any:
        bare = found_as(module, obj.__qualname__)
        if self._goes_by_value(module):
            if bare is not obj or module == "__main__":  # by value under cloudpickle's own rule
                reduced = super().reducer_override(obj)
                return _class_told(obj, reduced) if isinstance(obj, type) else reduced
            if isinstance(obj, FunctionType):
                return self._dynamic_function_reduce(obj)
            return _class_told(obj, _dynamic_class_reduce(obj))
        self.modules.add(module)
        depth = None if bare is obj else _depth_of(obj, bare)
        return super().reducer_override(obj) if depth is None else (unwrapped, (module, obj.__qualname__, depth))

    def _is_not_there(self, module: str) -> bool:
        return module in sys.modules and self._goes_by_value(module)

    def _goes_by_value(self, module: str) -> bool:
        if module not in self._judged:
            self._judged[module] = self._by_value(module)
        return self._judged[module]


def unwrapped(module: str, qualname: str, depth: int) -> Any:
    """What lies under `depth` decorators of a module's function. Its name and form are part of the stored format."""
    found = _unbound(_at(importlib.import_module(module), qualname))
    for _ in range(depth):
        found = _unbound(found.__wrapped__)
    return found


def code_from(file: str, parts: tuple[Any, ...], source: str | None = None) -> CodeType:
    """Code with the file that it was written in, for tracebacks; cloudpickle forgets it. Part of the stored format."""
    if source is not None:
        remember(file, source)
    return CodeType(*parts).replace(co_filename=file)


def view_from(data: bytearray, form: str, shape: tuple[int, ...] | None, readonly: bool) -> memoryview:
    """A memoryview over a copy of what it showed. Part of the stored format."""
    view = memoryview(data)
    view = view.cast(form) if shape is None else view.cast(form, shape)  # type: ignore[call-overload]
    return memoryview(view).toreadonly() if readonly else view


def _view_reduced(view: memoryview) -> Any:
    """As itself; cloudpickle would make bytes of it.

    Raises:
        TypeError: Of records, foreign byte orders and the like Python can't make one. Told here, not where it is read.
    """
    told = bytearray(view.tobytes()), view.format, None if view.ndim == 1 else view.shape, view.readonly
    try:
        view_from(*told)
    except (TypeError, ValueError):
        text = f"it is a memoryview of format {view.format!r} and shape {view.shape}, which can't be rebuilt"
        raise TypeError(f"{text}: pass what it shows, or bytes of it") from None
    return view_from, told


def plain(function: Any) -> Any:
    """A function as itself: what a wrapper that must not travel unpickles as. Part of the stored format."""
    return function


def found_as(module: str, qualname: str) -> Any:
    """What stands in a module under a name; None for nothing."""
    try:
        return _at(sys.modules[module], qualname)
    except (AttributeError, ImportError):  # a lazy module's
        return None


def _depth_of(obj: FunctionType | type, found: Any) -> int | None:
    """How many wrappers hide an object in what was found under its name; None if it isn't there at all."""
    for depth in range(_MOST_WRAPPERS):
        found = _unbound(found)
        if found is obj:
            return depth
        found = getattr(found, "__wrapped__", None)
    return None


def _unbound(found: Any) -> Any:
    """The function of a class method, which its class gives bound."""
    return found.__func__ if isinstance(found, MethodType) else found


def _at(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part)
    return found
