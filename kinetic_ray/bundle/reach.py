"""Which modules a call reaches: those that it names, the project's own, and what these refer to elsewhere.

A pickle names only what the function itself refers to. The modules behind these names import others, which a host must
find as well. Of the project all files are sent, so only their folders for `sys.path` have to be known. What lies
elsewhere is sent where a module that is sent refers to it: by an import in its source, or by a value that is from
there. That a module is loaded isn't enough: so are a debugger's.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType

from kinetic_ray.bundle.editable import found_in_place, in_place_beside_us
from kinetic_ray.bundle.origins import Origin, Source, loaded_modules, module_dict, origin_of

_ALIAS = r"[\w.]+(?:[ \t]+as[ \t]+\w+)?"
#: Also after ";" and ":", and in a text that only looks like it: then a module too many is sent.
_IMPORT = re.compile(
    rf"(?:^|[;:])[ \t]*import[ \t]+({_ALIAS}(?:[ \t]*,[ \t]*{_ALIAS})*)"
    r"|(?:^|[;:])[ \t]*from[ \t]+(\w[\w.]*)[ \t]+import\b"
    r"""|\b(?:import_module|__import__)\([ \t]*["'](\w[\w.]*)["']""",
    re.MULTILINE,
)


def reached(named: Iterable[str], inside: Callable[[Path], bool]) -> dict[str, Origin]:
    """The modules found below some folder that a host needs, with their origins.

    Args:
        named: Modules that the call refers to by name.
        inside: Whether a file is the project's.
    """
    origins = {name: origin_of(name) for name in {*named, *loaded_modules(), "__main__"}}
    ours = {name for name, origin in origins.items() if origin.file is not None and inside(origin.file)}
    begin = {*named, *ours} | ({"__main__"} if origins["__main__"].file is None else set())  # a notebook's
    elsewhere: dict[str, list[str]] = defaultdict(list)
    for name, origin in origins.items():
        if origin.source is Source.FILE and name not in begin:
            elsewhere[name.partition(".")[0]].append(name)
    found = {*begin, *_followed(begin, elsewhere)}
    not_loaded = _followed_in_place(found, inside)
    origins |= not_loaded
    return {name: origins[name] for name in sorted({*found, *not_loaded}) if origins[name].source is Source.FILE}


def _followed(begin: Iterable[str], elsewhere: Mapping[str, list[str]]) -> set[str]:
    """What some modules refer to, and what that refers to in turn. A package is sent whole, so it counts as one."""
    left = dict(elsewhere)
    waiting = [*begin] if left else []
    found: set[str] = set()
    while waiting and left:
        for top in _refers_to(waiting.pop()) & left.keys():
            names = left.pop(top)
            found.update(names)
            waiting += names
    return found


def _followed_in_place(begin: Iterable[str], inside: Callable[[Path], bool]) -> dict[str, Origin]:
    """The same for packages that are installed in place and that nothing has loaded yet.

    On a host that shares this machine they could be found, and would be what they are by then.
    """
    found: dict[str, Origin] = {}
    if not in_place_beside_us():
        return found
    names = {top for name in begin for top in _refers_to(name)}
    while tops := {top for top in names if top and top not in found and top not in sys.modules}:
        names = set()
        for top in tops - sys.stdlib_module_names:
            origin = found_in_place(top)
            if origin is not None and not inside(origin.path):
                found[top] = origin
                files = origin.path.parent.rglob("*.py") if origin.path.name == "__init__.py" else [origin.path]
                names |= {name.partition(".")[0] for file in files for name in _imports_of(str(file))}
    return found


def _refers_to(name: str) -> set[str]:
    """Top-level names of the modules that a loaded module refers to."""
    module = sys.modules.get(name)
    names = module_dict(module)
    homes = {_home_of(value) for value in [*names.values()]}
    homes |= _imports_of(names.get("__file__"))
    return {home.partition(".")[0] for home in homes}


def _home_of(value: object) -> str:
    """The module that something is, or is from."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        home = module_dict(value).get("__name__")
    elif kind is FunctionType:
        home = value.__module__
    else:
        home = vars(value).get("__module__") if issubclass(kind, type) else kind.__module__
    return home if isinstance(home, str) else ""


def _imports_of(file: object) -> frozenset[str]:
    """What a source imports; also in functions, which the values of its module don't tell."""
    if not isinstance(file, str) or not file.endswith(".py"):
        return frozenset()
    try:
        status = Path(file).stat()
        return _read_imports(file, status.st_mtime_ns, status.st_size)
    except OSError:  # in a zip, or gone
        return frozenset()


@lru_cache(maxsize=8192)
def _read_imports(file: str, _changed: int, _size: int) -> frozenset[str]:
    return frozenset(imported_names(Path(file).read_text("utf-8", errors="replace")))


def imported_names(source: str) -> Iterator[str]:
    """Names of the modules that a source imports, but for relative ones.

    Example:
        >>> [*imported_names("import a.b as c, d; from e.f import g")]
        ['a.b', 'd', 'e.f']
    """
    for match in _IMPORT.finditer(source):
        listed, origin, dynamic = match.groups()
        if listed:
            yield from (each.split()[0] for each in listed.split(","))
        else:
            yield origin or dynamic
