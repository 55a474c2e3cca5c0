"""What of a module that goes by name is no longer as its file says: hosts import the file, and see something else.

A program that sets `config.LR = 0.1` before it calls, or whose helper was edited after it was imported, would get
another answer from its hosts than from itself, and nothing would tell. So it is told, once for each such name.
"""

from __future__ import annotations

import ast
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

from kinetic_ray.bundle.origins import module_dict

_LOG = logging.getLogger("kinetic_ray")

#: The nearest modules of a large program are looked at; each takes a tenth of a millisecond, and more where it differs.
_MOST_MODULES = 300
_ASSIGNMENT = re.compile(r"^([A-Za-z]\w*)[ \t]*(?::[^=\n]*)?=[ \t]*([^=\s].*)$", re.MULTILINE)
_MOST_WRAPPERS = 32
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_NOTHING: Any = object()


def mention_drift(modules: Mapping[str, object]) -> None:
    """Says on standard error, once, what hosts will see otherwise than this process.

    Args:
        modules: By their names, the nearest first; from files, as they are loaded here.
    """
    for name, module in islice(modules.items(), _MOST_MODULES):
        names = module_dict(module)
        loader, file = names.get("__loader__"), names.get("__file__")
        if type(loader) is not SourceFileLoader or not isinstance(file, str):  # others may change the code
            continue
        try:
            status = Path(file).stat()
            told = [*_told(name, names, Path(file), (status.st_mtime_ns, status.st_size))]
        except (OSError, SyntaxError, ValueError):  # what can't be read, hosts will tell of
            continue
        for line in told:
            _mention(line)


@lru_cache(maxsize=1024)
def _mention(line: str) -> None:
    _LOG.warning("%s", line)


def _told(name: str, names: Mapping[str, Any], file: Path, stamp: tuple[int, int]) -> Iterator[str]:
    if not _compiled_from(names.get("__cached__"), stamp) and is_edited(_code_of(str(file), stamp), names):
        yield f"{file} was edited after it was imported here: hosts run it as it is now"
    guesses = _guesses(str(file), stamp)
    if any(key in names and (value is _NOTHING or _differs(value, names[key])) for key, value in guesses.items()):
        for key, here, there in differences(_constants(str(file), stamp), names):
            seen = (f"is {here!r} here, {there!r} in {file.name}: hosts see {there!r}",) * _is_shown(here, there)
            text = [*seen, f"was changed since {file.name} was imported: hosts see what is written there"][0]
            yield f"{name}.{key} {text}. Pass it as an argument"


def _is_shown(*values: object) -> bool:
    """Whether values may be printed: of a text nobody knows what it is."""
    return all(isinstance(value, int | float | None) for value in values)


# What is assigned.


def differences(constants: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Names whose value isn't the one in the source: name, value here, value there.

    Example:
        >>> [*differences({"LR": 0, "DECAY": 1}, {"LR": 5, "DECAY": 1})]
        [('LR', 5, 0)]
    """
    for name, there in constants.items():
        here = names.get(name, _NOTHING)
        if here is not _NOTHING and _differs(there, here):
            yield name, here, there


def _differs(there: object, here: object) -> bool:
    """Whether a plain value was replaced. What grew, as registries do at import, is as its file says."""
    if type(there) is dict:
        kept = {key: here.get(key, _NOTHING) for key in there} if isinstance(here, dict) else {}
        return type(here) is dict and any(_differs(value, kept[key]) for key, value in there.items())
    if type(there) in (list, tuple, set):
        if type(here) is not type(there) or not _is_plain(here):
            return False
        return here[: len(there)] != there if type(there) is list else here != there  # type: ignore[index]
    if here is _NOTHING:
        return True
    return isinstance(here, _PLAIN) and (type(here) is not type(there) or repr(here) != repr(there))


def _is_plain(value: object) -> bool:
    inner = value if isinstance(value, list | tuple | set) else ()
    return isinstance(value, _PLAIN) or (isinstance(value, list | tuple | set) and all(map(_is_plain, inner)))


def constants_of(source: str) -> dict[str, Any]:
    """Names that a source gives a literal to, once, at its top level, and does nothing else with while it is imported.

    Not those that begin with "_": a module keeps its own state under such names.

    Example:
        >>> constants_of("LR = 0.1; STEPS: int = 5; SEEN = []; SEEN.append(1); _n = 0; HOME = str(LR)")
        {'STEPS': 5}
    """
    body = ast.parse(source).body
    mentions = Counter(_names_at_import(body))
    found = {}
    for statement in body:
        target = _target_of(statement)
        if target is None or target.startswith("_") or mentions[target] > 1:
            continue
        try:
            found[target] = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return found


def _target_of(statement: ast.stmt) -> str | None:
    """The name that a plain assignment gives a value to."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target = statement.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def _names_at_import(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Every name that statements mention as they run at import: not those in functions, which run later."""
    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*node.decorator_list, node.args]
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)


@lru_cache(maxsize=4096)
def _guesses(file: str, _stamp: tuple[int, int]) -> Mapping[str, Any]:
    """What lines that look like assignments say: quick, and right for nearly all; the few that differ are read well."""
    found: dict[str, Any] = {}
    for name, text in _ASSIGNMENT.findall(_text_of(file)):
        if text.rstrip()[-1] in "{[(":
            found[name] = _NOTHING  # over several lines
            continue
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return MappingProxyType(found)


@lru_cache(maxsize=512)
def _constants(file: str, _stamp: tuple[int, int]) -> Mapping[str, Any]:
    return MappingProxyType(constants_of(_text_of(file)))


def _text_of(file: str) -> str:
    return Path(file).read_text("utf-8")


# What is defined.


def is_edited(code: CodeType, names: Mapping[str, Any]) -> bool:
    """Whether functions of a module, or methods of its classes, aren't those of its source any more.

    Args:
        code: The source, compiled.
        names: The loaded module's.
    """
    written: dict[str, list[CodeType]] = {}
    for const in code.co_consts:
        if isinstance(const, CodeType):
            written.setdefault(const.co_name, []).append(const)
    for name, codes in written.items():
        here = names.get(name)
        if isinstance(here, type) and here.__module__ == names.get("__name__"):
            if any(is_edited(each, vars(here)) for each in codes[:1]) and len(codes) == 1:
                return True
        elif (own := _code_behind(here, code.co_filename)) and not any(_is_same(own, each) for each in codes):
            return True
    return False


def _code_behind(value: object, file: str) -> CodeType | None:
    """The code of a function of this file, under its decorators."""
    for _ in range(_MOST_WRAPPERS):
        inner = value.__func__ if isinstance(value, classmethod | staticmethod) else getattr(value, "__wrapped__", None)
        if inner is None:
            break
        value = inner
    return value.__code__ if type(value) is FunctionType and value.__code__.co_filename == file else None


def _is_same(one: object, other: object) -> bool:
    """Whether two codes do the same; their lines may have moved."""
    if not isinstance(one, CodeType) or not isinstance(other, CodeType):
        return type(one) is type(other) and one == other
    facts = [
        (code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags)
        for code in (one, other)
    ]
    consts = one.co_consts, other.co_consts
    return facts[0] == facts[1] and len(consts[0]) == len(consts[1]) and all(map(_is_same, *consts))


@lru_cache(maxsize=512)
def _code_of(file: str, _stamp: tuple[int, int]) -> CodeType:
    return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)


def _compiled_from(cached: object, stamp: tuple[int, int]) -> bool:
    """Whether the compiled file is that of the source as it is now, as Python itself judges it."""
    if not isinstance(cached, str):
        return False
    try:
        with Path(cached).open("rb") as file:
            head = file.read(16)
    except OSError:
        return False
    told = (
        int.from_bytes(head[4:8], "little"),
        int.from_bytes(head[8:12], "little"),
        int.from_bytes(head[12:], "little"),
    )
    return told == (0, stamp[0] // 1_000_000_000 & 0xFFFFFFFF, stamp[1] & 0xFFFFFFFF)
