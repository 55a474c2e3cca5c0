"""Holds the shape of the code: layers, who may import what, sizes, and the rules that no linter knows."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "kinetic_ray"

# Lowest first. A module may import from its own layer (without a cycle) and from those below it. Imports inside
# functions and for type checkers count as well.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("core", "errors", "version"),
    ("settings", "profiles"),
    (
        "config",
        "frames",
        "interrupts",
        "log_writer",
        "options",
        "store",
        "journal",
        "wire",
        "payload",
        "bundle",
        "data",
        "vault",
    ),
    ("runner",),
    ("backends",),
    ("jobs", "calls"),
    ("ui",),
    ("api", "batch", "collections", "credentials", "debug", "job_status", "sweep"),
    ("",),  # kinetic_ray/__init__.py
    ("cli", "__main__"),
    ("testing",),
)

# Third-party name -> where in the package it may be imported.
PLACES: dict[str, tuple[str, ...]] = {
    "ray": ("runner", "backends", "sweep", "testing"),
    "kubernetes": ("backends.kuberay",),
    "fsspec": ("store", "data"),
    "google": ("store",),
    "urllib3": ("store",),
    "click": ("cli",),
    "rich": ("cli", "ui"),
}
LAZY_PLACES: dict[str, tuple[str, ...]] = {"ray": ("api", "calls")}  # only inside functions or for type checkers
ENVIRONMENT_PLACES = ("config", "runner", "backends.local.env", "testing")

# core/ is pure: of the standard library it takes nothing that reads, writes, waits, tells the time or rolls dice.
# fmt: off
IMPURE = frozenset((
    "asyncio", "datetime", "ctypes", "fcntl", "glob", "http", "io", "multiprocessing", "os", "pathlib", "random",
    "secrets", "select", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time",
    "urllib",
))
# fmt: on

# Ratchet: what may be larger than the limits, with its size. It only ever shrinks; raising a number needs a decision.
MODULE_LINES, FUNCTION_LINES = 350, 60
LARGER_MODULES: dict[str, int] = {}
LARGER_FUNCTIONS: dict[str, int] = {}

VAGUE_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|misc|manager)\.py$")


@dataclass(frozen=True)
class Import:
    """One import statement's target: a full module name, and whether it runs when the module is imported."""

    target: str
    line: int
    lazy: bool


@dataclass(frozen=True)
class Module:
    """One parsed source file; `name` is dotted and relative to the package."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def place(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


@cache
def _modules(folder: str = PACKAGE) -> tuple[Module, ...]:
    base = ROOT / folder
    found = []
    for path in sorted(base.rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path))))
    return tuple(found)


@cache
def _imports(module: Module) -> tuple[Import, ...]:
    """All imports of a module; `from package import name` counts as the module `package.name` where there is one."""
    eager = set(_module_level(module.tree))
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, node not in eager) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.append(Import(full if _is_ours(full) else node.module, node.lineno, node not in eager))
    return tuple(found)


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements that run on import: not those of functions, nor those under `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            if not function and not typing_only:
                waiting.append(child)


@cache
def _own_names() -> frozenset[str]:
    return frozenset(f"{PACKAGE}.{module.name}".rstrip(".") for module in _modules())


def _is_ours(full: str) -> bool:
    return full in _own_names()


def _within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def _layer(name: str) -> int:
    top = name.split(".", maxsplit=1)[0]
    for level, names in enumerate(LAYERS):
        if top in names:
            return level
    raise AssertionError(f"{PACKAGE}/{top} belongs to no layer: name it in LAYERS, after a decision record")


def _own_edges(module: Module) -> Iterator[tuple[str, int]]:
    for item in _imports(module):
        if item.target == PACKAGE or item.target.startswith(f"{PACKAGE}."):
            target = item.target.removeprefix(PACKAGE).lstrip(".")
            if target != module.name:
                yield target, item.line


def test_imports_point_down_only() -> None:
    wrong = [
        f"{module.place}:{line} imports {PACKAGE}.{target}, which lies above it"
        for module in _modules()
        for target, line in _own_edges(module)
        if _layer(target) > _layer(module.name)
    ]
    assert wrong == []


def test_no_import_cycles() -> None:
    graph = {module.name: {target for target, _ in _own_edges(module)} for module in _modules()}
    done: set[str] = set()

    def cycle_from(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if name in path:
            return (*path[path.index(name) :], name)
        if name in done:
            return ()
        for target in sorted(graph.get(name, ())):
            if found := cycle_from(target, (*path, name)):
                return found
        done.add(name)
        return ()

    for name in sorted(graph):
        assert cycle_from(name, ()) == ()


@pytest.mark.parametrize("package", sorted(PLACES))
def test_third_party_stays_in_its_place(package: str) -> None:
    wrong = [
        f"{module.place}:{item.line} imports {item.target}"
        for module in _modules()
        for item in _imports(module)
        if item.target.split(".", maxsplit=1)[0] == package
        and not _within(module.name, PLACES[package])
        and not (item.lazy and _within(module.name, LAZY_PLACES.get(package, ())))
    ]
    assert wrong == []


def test_core_is_pure() -> None:
    wrong = []
    for module in _modules():
        if not _within(module.name, ("core", "errors", "version")):
            continue
        for item in _imports(module):
            top = item.target.split(".", maxsplit=1)[0]
            if top != PACKAGE and (top not in sys.stdlib_module_names or top in IMPURE):
                wrong.append(f"{module.place}:{item.line} imports {item.target}")
        wrong += [f"{module.place}:{line} calls {name}()" for name, line in _bare_calls(module) if name == "open"]
    assert wrong == []


def test_environment_is_read_in_its_places() -> None:
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    wrong = []
    for module in _modules():
        if _within(module.name, ENVIRONMENT_PLACES):
            continue
        for node in ast.walk(module.tree):
            attribute = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr in names
            imported = isinstance(node, ast.ImportFrom) and node.module == "os" and names & {a.name for a in node.names}
            if attribute or imported:
                wrong.append(f"{module.place}:{node.lineno}")
    assert wrong == []


def _bare_calls(module: Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno


def test_nothing_probes_with_hasattr() -> None:
    assert [f"{m.place}:{line}" for m in _modules() for name, line in _bare_calls(m) if name == "hasattr"] == []


def test_no_state_in_modules() -> None:
    """No `global`; and what a module holds at its top that could change is a table, so it is spelled as a constant."""
    wrong = []
    for module in _modules():
        wrong += [f"{module.place}:{n.lineno} global" for n in ast.walk(module.tree) if isinstance(n, ast.Global)]
        for node in module.tree.body:
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Dict | ast.List | ast.Set):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [ast.unparse(target) for target in targets]
                wrong += [f"{module.place}:{node.lineno} {n}" for n in names if not (n.isupper() or n == "__all__")]
    assert wrong == []


def test_inheritance_is_at_most_one_deep() -> None:
    """Protocols and the exception tree aside, a class of ours whose base is ours has a base that has none of ours."""
    bases: dict[str, list[str]] = {}
    for module in _modules():
        if module.name != "errors":
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = [ast.unparse(base).split(".")[-1] for base in node.bases]
    ours = {name for name, above in bases.items() if "Protocol" not in above}
    deep = [
        f"{name} < {base} < {further}"
        for name in ours
        for base in bases[name]
        if base in ours
        for further in bases[base]
        if further in ours
    ]
    assert deep == []


def test_modules_have_names_that_say_something() -> None:
    modules = [*_modules(), *_modules("cluster")]
    assert [module.place for module in modules if VAGUE_NAMES.search(module.path.name)] == []


def test_modules_are_small() -> None:
    modules = [module for folder in (PACKAGE, "benchmarks", "cluster") for module in _modules(folder)]
    sizes = {module.place: len(module.path.read_text().splitlines()) for module in modules}
    over = {place: size for place, size in sizes.items() if size > LARGER_MODULES.get(place, MODULE_LINES)}
    assert over == {}, f"over {MODULE_LINES} lines"
    assert {place for place in LARGER_MODULES if sizes.get(place, 0) <= MODULE_LINES} == set(), "drop from the ratchet"


def test_functions_are_short() -> None:
    sizes = {
        f"{module.place}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for folder in (PACKAGE, "benchmarks", "cluster", "examples", "tests")
        for module in _modules(folder)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    over = {name: size for name, size in sizes.items() if size > LARGER_FUNCTIONS.get(name, FUNCTION_LINES)}
    assert over == {}, f"over {FUNCTION_LINES} lines"
    assert {name for name in LARGER_FUNCTIONS if sizes.get(name, 0) <= FUNCTION_LINES} == set(), "drop from the ratchet"


def test_tests_do_not_sleep() -> None:
    """They wait for something, with a deadline: tests/waiting.py."""
    wrong = []
    for module in _modules("tests"):
        for node in ast.walk(module.tree):
            called = isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "asyncio.sleep"}
            imported = isinstance(node, ast.ImportFrom) and node.module == "time" and "sleep" in ast.unparse(node)
            if called or imported:
                wrong.append(f"{module.place}:{node.lineno}")
    assert wrong == []


def test_tests_do_not_patch_our_own_code() -> None:
    wrong = []
    for module in _modules("tests"):
        ours = _names_from_the_package(module)
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            patches = re.search(r"(^|\.)(patch(\.object|\.dict|\.multiple)?|monkeypatch\.(setattr|delattr))$", function)
            first = ast.unparse(node.args[0]).strip("'\"") if node.args else ""
            if patches and (first.split(".", maxsplit=1)[0] in ours or "mock" in function):
                wrong.append(f"{module.place}:{node.lineno} {function}({first}, ...)")
    assert wrong == []


def _names_from_the_package(module: Module) -> set[str]:
    names = {PACKAGE}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names |= {a.asname or PACKAGE for a in node.names if a.name.split(".")[0] == PACKAGE}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            names |= {a.asname or a.name for a in node.names}
    return names


def test_no_file_names_a_machine_or_a_registry() -> None:
    """What is checked in works anywhere: no path of a developer's machine, no host that packages come from."""
    places = ("/wo" + "rk/", "/fa" + "rm/", "/tmp/" + "w/", "/ro" + "ot/", "/ho" + "me/")
    hosts = ("py" + "pi.org", "python" + "hosted", "npm" + "js.org", "crates" + ".io", "deb." + "debian")
    pattern = re.compile(r"(?<![\w.])(" + "|".join(places) + r")\.?\w|" + "|".join(map(re.escape, hosts)))
    wrong = []
    for path in _files_of_the_project():
        text = path.read_text(encoding="utf-8", errors="ignore")
        wrong += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
    assert wrong == []


def _files_of_the_project() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    paths = [ROOT / name for name in listed if name and not name.endswith((".png", ".gz", ".zip"))]
    return [path for path in paths if path.is_file()]
