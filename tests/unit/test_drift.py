"""What hosts will see otherwise than the program that calls is said, and nothing is said of all else."""

import hashlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.bundle.drift import constants_of, differences, mention_drift


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("kd_")]:
        del sys.modules[name]


def load(folder: Path, source: str) -> ModuleType:
    """A module of that source; its name is used once in the process."""
    name = "kd_" + hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    (folder / f"{name}.py").write_text(source)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def said(module: ModuleType, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="kinetic_ray"):
        mention_drift({module.__name__: module})
    return [record.getMessage() for record in caplog.records]


# What the program sets: source, what it does to the module `m`, the names that are mentioned.

SET = {
    "nothing": ("LR = 0", "", []),
    "a number": ("LR = 0", "m.LR = 5", ["LR"]),
    "the same number": ("LR = 5", "m.LR = 5", []),
    "a flag": ("DEBUG = False", "m.DEBUG = True", ["DEBUG"]),
    "a number of another type": ("N = 1", "m.N = True", ["N"]),
    "an annotated one": ("LR: float = 0.1", "m.LR = 0.2", ["LR"]),
    "not a number": ("X = 1.0", "m.X = float('nan')", ["X"]),
    "a negative number": ("X = -1", "m.X = 1", ["X"]),
    "what was nothing": ("PATH = None", "m.PATH = '/data'", ["PATH"]),
    "through a setter": ("LR = 0\ndef put(x):\n    global LR\n    LR = x", "m.put(5)", ["LR"]),
    "two": ("A = 1\nB = 2", "m.A = m.B = 3", ["A", "B"]),
    "a key": ("CONFIG = {'lr': 0, 'n': 1}", "m.CONFIG['lr'] = 5", ["CONFIG"]),
    "a key over several lines": ("CONFIG = {\n    'lr': 0,\n}", "m.CONFIG['lr'] = 5", ["CONFIG"]),
    "a key of a key": ("CONFIG = {'opt': {'lr': 0}}", "m.CONFIG['opt']['lr'] = 5", ["CONFIG"]),
    "a key that goes": ("CONFIG = {'lr': 0}", "del m.CONFIG['lr']", ["CONFIG"]),
    "an element": ("SIZES = [1, 2]", "m.SIZES[0] = 5", ["SIZES"]),
    "a tuple": ("SIZES = (1, 2)", "m.SIZES = (1, 3)", ["SIZES"]),
    # As they are on a host too, once it has imported them.
    "a registry": ("KNOWN = {'a': 1}\ndef add(k, v): KNOWN[k] = v", "m.add('b', 2)", []),
    "a list that grows": ("KNOWN = ['a']", "m.KNOWN.append('b')", []),
    "what is set twice": ("LR = 0\nLR = 5", "", []),
    "what is set under a condition": ("LR = 0\nif True:\n    LR = 5", "", []),
    "what a loop sets": ("N = 0\nfor N in range(3): pass", "", []),
    "what is imported over": ("import os\npath = 1\nfrom os import path", "", []),
    "what is added to": ("N = 1\nN += 1", "", []),
    "what is updated": ("C = {'a': 1}\nC.update(a=2)", "", []),
    "what a class is named": ("C = 1\nclass C: pass", "", []),
    "what is computed": ("import math\nN = int(math.pi)", "m.N = 4", []),
    "a model in place of nothing": ("MODEL = None", "m.MODEL = object()", []),
    "a module's own state": ("_calls = 0", "m._calls = 7", []),
    "what stands in a text": ('"""\nLR = 0\n"""\nLR = int("5")', "", []),
    "a new name": ("", "m.LR = 5", []),
    "a name that goes": ("LR = 0", "del m.LR", []),
}


@pytest.mark.parametrize("what", SET)
def test_values_that_the_program_has_set_are_named(what: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, change, names = SET[what]
    module = load(folder, source)
    exec(change, {"m": module})
    assert [line.partition(" ")[0] for line in said(module, caplog)] == [f"{module.__name__}.{name}" for name in names]


def test_numbers_are_shown_and_texts_are_not(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = load(folder, "LR = 0\nTOKEN = 'none'")
    module.LR, module.TOKEN = 5, "s3cret"  # type: ignore[attr-defined]
    first, second = said(module, caplog)
    name = module.__name__
    assert first == f"{name}.LR is 5 here, 0 in {name}.py: hosts see 0. Pass it as an argument"
    assert "s3cret" not in second and f"{name}.TOKEN was changed" in second


def test_each_value_is_mentioned_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = load(folder, "LR = 0")
    counts = []
    for value in (5, 5, 6, 6, 0):
        module.LR = value  # type: ignore[attr-defined]
        counts.append(len(said(module, caplog)))
    assert counts == [1, 0, 1, 0, 0]


# What was edited: source, the later source, whether it is mentioned.

EDITED = {
    "a function": ("def f(): return 1", "def f(): return 2", True),
    "a constant in it": ("def f(): return 'a'", "def f(): return 'b'", True),
    "a function in it": ("def f():\n    return lambda: 1", "def f():\n    return lambda: 2", True),
    "what it refers to": ("def f(): return a.b", "def f(): return a.c", True),
    "a method": ("class C:\n    def f(self): return 1", "class C:\n    def f(self): return 2", True),
    "a class method": (
        "class C:\n    @classmethod\n    def f(cls): return 1",
        "class C:\n    @classmethod\n    def f(cls): return 2",
        True,
    ),
    "a decorated function": (
        "import functools\ndef d(f): return functools.wraps(f)(lambda: f())\n@d\ndef f(): return 1",
        "import functools\ndef d(f): return functools.wraps(f)(lambda: f())\n@d\ndef f(): return 2",
        True,
    ),
    "nothing": ("def f(): return 1", "def f(): return 1", False),
    "a comment": ("def f(): return 1", "# Words.\n\ndef f(): return 1", False),
    "one of two of a name": (
        "import sys\nif sys:\n    def f(): return 1\nelse:\n    def f(): return 2",
        "import sys\nif sys:\n    def f(): return 1\nelse:\n    def f(): return 3",
        False,
    ),
    "what is broken now": ("def f(): return 1", "def f(: return 2", False),
}


@pytest.mark.parametrize("what", EDITED)
def test_a_file_that_was_edited_since_it_was_imported_is_named(
    what: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, later, mentioned = EDITED[what]
    module = load(folder, source)
    assert said(module, caplog) == []
    file = Path(str(module.__file__))
    file.write_text(later)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))  # the compiled file knows whole seconds
    assert said(module, caplog) == (
        [f"{file} was edited after it was imported here: hosts run it as it is now"] if mentioned else []
    )
    if mentioned:
        importlib.reload(module)
        assert said(module, caplog) == []


def test_a_constant_that_was_edited_is_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = load(folder, "LR = 0")
    Path(str(module.__file__)).write_text("LR = 12")
    (line,) = said(module, caplog)
    assert "is 0 here, 12 in" in line and "hosts see 12" in line


def test_what_is_no_module_of_a_file_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    for thing in (ModuleType("kd_made"), object(), sys):
        with caplog.at_level(logging.WARNING):
            mention_drift({"kd_made": thing})
    assert not caplog.records


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3) | st.tuples(inner),
    max_leaves=6,
)


@given(values=st.dictionaries(NAMES, VALUES))
def test_what_was_just_imported_has_not_drifted(values: dict[str, object]) -> None:
    source = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    names: dict[str, object] = {"inf": float("inf"), "nan": float("nan")}
    exec(source, names)
    assert [*differences(constants_of(source), names)] == []
