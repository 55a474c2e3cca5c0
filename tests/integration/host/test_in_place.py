"""A rank of a project that is installed in place runs what was sent, whatever lies in the project by then."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray.bundle import find_project
from kinetic_ray.core.spec import BundleRef
from kinetic_ray.payload import pack_call
from tests.integration.host.gangs import Gang
from tests.unit.test_reach import install, write

pytestmark = pytest.mark.integration


def _look() -> tuple[Any, ...]:
    import importlib.util

    import lib  # type: ignore[import-not-found]

    return lib.NAME, importlib.util.find_spec("lib.later") is not None, importlib.util.find_spec("late") is not None


def test_a_rank_sees_nothing_of_the_live_project(gang_of: Callable[..., Gang], tmp_path: Path) -> None:
    project, site = tmp_path / "project", tmp_path / "site-packages"
    write(project, src__lib__="NAME = 'as sent'")
    (project / "pyproject.toml").touch()
    install(site, project, "proj", "lib\n")
    (site / "sitecustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(project / 'src')!r})\n")
    bundle = find_project(_look, project / "script.py").build()
    assert bundle is not None
    gang = gang_of(env_vars={"PYTHONPATH": str(site)})
    write(project, src__lib__="NAME = 'as edited'", src__lib__later="", src__late="")
    sent = BundleRef(gang.store.put_blob(bundle.data), ("src",), ".")
    call = pack_call(_look, (), {}, by_value=lambda name: name == __name__)
    assert gang.run(_look, payload=call.store(gang.store.put_blob), bundle=sent) == [("as sent", False, False)]
