"""Examples in docstrings run, those of every module that has some."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _modules_with_examples() -> list[str]:
    found = [path for path in (ROOT / "kinetic_ray").rglob("*.py") if ">>>" in path.read_text(encoding="utf-8")]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in found)


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    examples = [example for test in doctest.DocTestFinder().find(module) for example in test.examples]
    assert examples, "nothing finds the examples where they stand"
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.failed == 0
    assert result.attempted or all(doctest.SKIP in example.options for example in examples)
