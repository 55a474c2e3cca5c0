"""Settings: precedence, defaults, and refusals that name where a value came from."""

import re
from pathlib import Path

import pytest

from kinetic_ray import config
from kinetic_ray.backends.base import load_backend
from kinetic_ray.config import Target, resolve
from kinetic_ray.errors import ConfigError
from kinetic_ray.settings import SETTINGS

ENV = {"KINETIC_HOME": "/somewhere/kinetic"}


def test_defaults() -> None:
    assert resolve(environ=ENV) == Target("local", "/somewhere/kinetic/store", Path("/somewhere/kinetic"))


def test_arguments_beat_the_environment_which_beats_defaults() -> None:
    env = {**ENV, "KINETIC_BACKEND": "a.b:C", "KINETIC_STORE": "/env/store"}
    assert resolve(environ=env) == Target("a.b:C", "/env/store", Path("/somewhere/kinetic"))
    assert resolve(backend="local", store="memory://x", environ=env).store_url == "memory://x"
    assert resolve(backend="local", store=Path("/p"), environ=env) == Target("local", "/p", Path("/somewhere/kinetic"))


def test_empty_variables_are_as_good_as_none() -> None:
    env = {**ENV, "KINETIC_BACKEND": "", "KINETIC_STORE": "", "KINETIC_PROFILE": ""}
    assert resolve(environ=env) == resolve(environ=ENV)


def test_home_is_the_users_data_folder_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = config.home({})
    assert found.name == "kinetic-ray"
    assert found.is_relative_to(tmp_path)
    assert not found.exists()


def test_home_expands_and_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert config.home({"KINETIC_HOME": "~/k"}) == tmp_path / "k"
    assert config.home({"KINETIC_HOME": "k"}) == tmp_path / "k"


@pytest.mark.parametrize(
    ("given", "env", "told"),
    [
        ({"backend": "locl"}, {}, "backend='locl': no such backend; did you mean 'local'?"),
        ({}, {"KINETIC_BACKEND": "moon"}, "KINETIC_BACKEND='moon': no such backend; 'local' runs jobs on this machine"),
        ({}, {"KINETIC_BACKEND": "gke"}, "KINETIC_BACKEND='gke': not available yet"),
        ({"profile": "team"}, {}, "profile='team': no such profile in /somewhere/kinetic/profiles.json; make it"),
        ({}, {"KINETIC_PROFILE": "team"}, "KINETIC_PROFILE='team': no such profile"),
    ],
)
def test_refusals_name_the_source_and_the_way_out(given: dict[str, str], env: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        resolve(**given, environ={**ENV, **env})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "250"])
def test_the_bundles_limit(text: str) -> None:
    assert config.bundle_limit({"KINETIC_BUNDLE_LIMIT_MB": text}) == 250_000_000


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "²"])
def test_a_limit_that_is_no_number(text: str) -> None:
    with pytest.raises(ConfigError, match="KINETIC_BUNDLE_LIMIT_MB"):
        config.bundle_limit({"KINETIC_BUNDLE_LIMIT_MB": text})


def test_the_table_names_every_variable_that_is_read() -> None:
    source = Path(config.__file__).read_text()
    read = set(re.findall(r'env\.get\("(\w+)"\)', source)) - {"TERM", "USER", "LOGNAME"}
    assert read <= {setting.env for setting in SETTINGS.values()}


def test_backends_of_ones_own_are_loaded_by_place() -> None:
    place = "kinetic_ray.testing.thread_backend:ThreadBackend"
    backend = load_backend(Target(place, "memory://x", Path("/h")))
    assert type(backend).__name__ == "ThreadBackend"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("no.such.module:Backend", "No module named"),
        ("kinetic_ray.config:Nothing", "Nothing"),
        ("lokal", "did you mean 'local'"),
    ],
)
def test_backends_that_are_not_there(place: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_backend(Target(place, "memory://x", Path("/h")))
