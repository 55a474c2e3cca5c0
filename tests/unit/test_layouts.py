"""Projects of any layout: what the client imports, a host imports from the bundle, and every module is the same one."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_ray.bundle import unpack
from tests.unit.test_start_styles import environment

#: Both sides: imports what is asked for, and tells what each module is and where it lies below the root.
LOOK = """
import importlib, json, pathlib, sys
root = pathlib.Path(sys.argv[1]).resolve()
sys.path[:0] = [str(root / entry) for entry in json.loads(sys.argv[2])]
found = {}
for name in json.loads(sys.argv[3]):
    module = importlib.import_module(name)
    found[name] = [module.VALUE, pathlib.Path(module.__file__).resolve().relative_to(root).as_posix()]
print(json.dumps(found))
"""
BUILD = """
import importlib, json, pathlib, sys
root, entries, names = pathlib.Path(sys.argv[1]).resolve(), json.loads(sys.argv[2]), json.loads(sys.argv[3])
sys.path[:0] = [str(root / entry) for entry in entries]
modules = [importlib.import_module(name) for name in names]
from kinetic_ray.bundle import find_project
bundle = find_project(modules[0].get).build(names[:1])
pathlib.Path(sys.argv[4]).write_bytes(bundle.data)
print(json.dumps(bundle.sys_path))
"""

_PARTS = st.sampled_from(["alpha", "beta", "gamma_1", "core", "größe"])


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[str], dict[str, str], list[str]]:
    """Entries for `sys.path`, files by path, and names of modules, each of which imports the one before."""
    entries = draw(st.sampled_from([["."], ["src"], ["src", "."], ["lib/python", "tools"]]))
    chosen: dict[tuple[str, ...], str] = {}
    files: dict[str, str] = {}
    for path in draw(
        st.lists(st.lists(_PARTS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=5, unique=True)
    ):
        # A module and a package can't share a name, and a name's top belongs to one entry.
        prefixes = [path[:depth] for depth in range(1, len(path))]
        if any(prefix in chosen for prefix in prefixes) or any(other[: len(path)] == path for other in chosen):
            continue
        entry = next((there for other, there in chosen.items() if other[0] == path[0]), draw(st.sampled_from(entries)))
        chosen[path] = entry
        for prefix in prefixes:
            if draw(st.booleans()):  # else a namespace package
                files.setdefault("/".join([entry, *prefix, "__init__.py"]), "VALUE = 'package'\n")
    names = [".".join(path) for path in chosen]
    for number, (path, entry) in enumerate(chosen.items()):
        before = f"import {names[number - 1]}\n" if number else ""
        files["/".join([entry, *path]) + ".py"] = f"{before}VALUE = {number}\ndef get(): return VALUE\n"
    return entries, files, names[::-1]


def run(program: str, *args: Any, home: Path) -> Any:
    told = [arg if isinstance(arg, str) else json.dumps(arg) for arg in args]
    command = [sys.executable, "-P", "-c", program, *told]
    done = subprocess.run(command, cwd=home, env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@settings(max_examples=12)
@given(layouts())
def test_a_host_finds_what_the_client_has(layout: tuple[list[str], dict[str, str], list[str]]) -> None:
    entries, files, names = layout
    home = Path(tempfile.mkdtemp(prefix="layout"))
    try:
        root, there = home / "project", home / "host"
        (root / ".git").mkdir(parents=True)
        (home / "tmp").mkdir()
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        here = run(LOOK, str(root), entries, names, home=home)
        sent = run(BUILD, str(root), entries, names, str(home / "bundle.tar"), home=home)
        shutil.rmtree(root)
        there.mkdir()
        unpack((home / "bundle.tar").read_bytes(), there)
        assert run(LOOK, str(there), sent, names, home=home) == here
    finally:
        shutil.rmtree(home)
