"""`import kinetic_ray` is cheap: it loads nothing heavy, and not much at all."""

import json
import subprocess
import sys

import pytest

HEAVY = ("ray", "jax", "google", "kubernetes", "numpy", "fsspec", "click", "rich", "cloudpickle", "psutil", "asyncio")
MOST_MODULES = 60  # beyond a bare interpreter's; it is about 30, nearly all of them the standard library's


def _new_modules(code: str) -> set[str]:
    """The modules that `code` loads beyond what a bare interpreter has."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nnew = set(sys.modules) - before\nimport json\n"
    script += "print(json.dumps(sorted(new)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return _new_modules("import kinetic_ray")


@pytest.fixture(scope="module")
def loaded_by_declaring() -> set[str]:
    declaring = "import kinetic_ray as kinetic\n@kinetic.run(accelerator='tpu-v6e-16')\ndef train(steps): ..."
    return _new_modules(f"{declaring}\ntrain.options(timeout='1h')")


@pytest.mark.parametrize("package", HEAVY)
def test_import_loads_nothing_heavy(loaded: set[str], package: str) -> None:
    assert not {name for name in loaded if name.split(".")[0] == package}


@pytest.mark.parametrize("package", HEAVY)
def test_declaring_a_function_loads_nothing_heavy(loaded_by_declaring: set[str], package: str) -> None:
    assert not {name for name in loaded_by_declaring if name.split(".")[0] == package}


def test_handles_leave_event_loops_to_those_who_have_one() -> None:
    loaded = _new_modules("import kinetic_ray.jobs")
    assert not loaded & {"asyncio", "ray", "rich", "click"}


def test_import_loads_few_modules(loaded: set[str]) -> None:
    assert len(loaded) <= MOST_MODULES, sorted(loaded)
