"""Profiles: whose word counts, what the file may hold, and that writers never lose each other's work."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinetic_ray as kinetic
from kinetic_ray import config
from kinetic_ray.backends.base import Need, load_backend
from kinetic_ray.calls.asking import refuse_for_calls
from kinetic_ray.calls.overlooked import tell_overlooked
from kinetic_ray.config import find_setting, resolve
from kinetic_ray.errors import UsageError
from kinetic_ray.options import check_options
from kinetic_ray.profiles import (
    FIELDS,
    Document,
    Profile,
    edit_profiles,
    read_profiles,
    with_current,
    with_profile,
    without_profile,
)
from kinetic_ray.settings import OWN_VARIABLES, SETTINGS, UPSTREAM_VARIABLES, unknown_variables

ROOT = Path(__file__).resolve().parents[2]
THREADS = "kinetic_ray.testing.thread_backend:ThreadBackend"
#: As keras-team/kinetic writes it.
UPSTREAMS = {
    "current": "team",
    "profiles": {
        "team": {"project": "my-project", "zone": "us-west4-a", "cluster": "c1", "namespace": "default"},
        "mine": {"project": "my-project", "zone": None, "cluster": "c2", "namespace": "me", "state_backend": "gs://b"},
    },
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "profiles.json"


def environ(file: Path, **more: str) -> dict[str, str]:
    return {"KINETIC_HOME": "/somewhere", "KINETIC_PROFILES_FILE": str(file), **more}


def written(file: Path, document: object) -> Path:
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


# Whose word counts.


@given(st.sampled_from(FIELDS), st.booleans(), st.booleans(), st.booleans())
def test_the_argument_goes_before_the_variable_before_the_profile_before_the_default(
    name: str, argument: bool, variable: bool, profile: bool
) -> None:
    env = {"KINETIC_HOME": "/somewhere"} | ({SETTINGS[name].env: "from-env"} if variable else {})
    said = Profile("team", {name: "from-profile"} if profile else {})
    found = find_setting(name, "from-argument" if argument else None, said, env)
    there = [
        *([(f"{name}=", "from-argument")] if argument else []),
        *([(SETTINGS[name].env, "from-env")] if variable else []),
        *([("profile 'team'", "from-profile")] if profile else []),
    ]
    default = find_setting(name, None, None, {"KINETIC_HOME": "/somewhere"})
    there += [(default.source, default.value)] if default.value else []  # type: ignore[list-item]
    assert [(found.source, found.value), *found.beaten] == (there or [("default", None)])


def test_a_profile_says_where_calls_go(file: Path) -> None:
    written(file, {"current": "a", "profiles": {"a": {"store": "/a", "backend": THREADS, "project": "p"}}})
    target = resolve(environ=environ(file))
    assert (target.store_url, target.backend, target.project, target.zone) == ("/a", THREADS, "p", None)
    assert resolve(environ=environ(file, KINETIC_STORE="/b"), backend="local").store_url == "/b"
    assert resolve(environ=environ(file), store="/c").store_url == "/c"


def test_a_profile_says_which_slices_this_machine_pretends_to_have(file: Path, tmp_path: Path) -> None:
    written(file, {"current": "a", "profiles": {"a": {"local_slices": '{"tpu-v6e-8": 1}'}}})
    env = environ(file, KINETIC_HOME=str(tmp_path / "home"))
    target = resolve(environ=env)
    assert target.local_slices == '{"tpu-v6e-8": 1}'
    backend = load_backend(target)
    backend.check(Need("tpu-v6e-8"))
    with pytest.raises(UsageError, match="1 x tpu-v6e-8"):
        backend.check(Need("tpu-v6e-16"))
    other = resolve(environ={**env, "KINETIC_LOCAL_SLICES": '{"tpu-v6e-16": 1}'})
    load_backend(other).check(Need("tpu-v6e-16"))
    assert resolve(environ={"KINETIC_HOME": "/somewhere"}).local_slices is None


@pytest.mark.parametrize(
    ("argument", "variable", "current", "expected"),
    [
        ("a", "b", "c", "a"),
        (None, "b", "c", "b"),
        (None, "", "c", "c"),
        (None, None, None, None),
        (None, None, "gone", None),
    ],
)
def test_which_profile_counts(
    file: Path, argument: str | None, variable: str | None, current: str | None, expected: str | None
) -> None:
    written(file, {"current": current, "profiles": {name: {"store": f"/{name}"} for name in "abc"}})
    env = environ(file) | ({} if variable is None else {"KINETIC_PROFILE": variable})
    found = config.active_profile(argument, env)
    assert (found.name if found else None) == expected
    assert resolve(profile=argument, environ=env).store_url == (f"/{expected}" if expected else "/somewhere/store")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"KINETIC_PROFILES_FILE": "/p/f.json", "KINETIC_HOME": "/h"}, "/p/f.json"),
        ({"KINETIC_HOME": "/h"}, "/h/profiles.json"),
        ({}, "{home}/.kinetic/profiles.json"),
    ],
)
def test_where_the_file_is(env: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.profiles_file(env) == Path(expected.format(home=tmp_path))


def test_inside_a_job_only_the_argument_chooses(file: Path) -> None:
    written(file, {"current": "a", "profiles": {name: {"store": f"/{name}"} for name in "ab"}})
    env = environ(file, KINETIC_JOB_ID="job-1", KINETIC_PROFILE="gone")
    assert config.active_profile(None, env) is None
    assert config.active_profile("b", env) == Profile("b", {"store": "/b"})
    written(file, "{")
    assert resolve(environ=env).store_url == "/somewhere/store"


def test_a_missing_profile_is_named_with_the_nearest(file: Path) -> None:
    written(file, UPSTREAMS)
    for name, env, told in [
        ("teem", {}, "profile='teem': no such profile"),
        (None, {"KINETIC_PROFILE": "teem"}, "KINETIC_PROFILE='teem': no such profile"),
    ]:
        with pytest.raises(kinetic.ConfigError, match=re.escape(told)) as caught:
            resolve(profile=name, environ=environ(file, **env))
        assert f"{file}; did you mean 'team'?" in str(caught.value)


def test_a_bad_backend_of_a_profile_names_the_profile(file: Path) -> None:
    written(file, {"current": "a", "profiles": {"a": {"backend": "locl"}}})
    with pytest.raises(kinetic.ConfigError, match="profile 'a': backend='locl': no such backend; did you mean 'local'"):
        resolve(environ=environ(file))


# What only a cluster has.


def test_upstreams_profile_in_use_leaves_jobs_on_this_machine(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever used keras-team/kinetic has one: it must not refuse every local call."""
    written(file, UPSTREAMS)
    target = resolve(environ=environ(file, KINETIC_ZONE="z"), cluster="c9")
    assert (target.backend, target.project, target.cluster) == ("local", None, None)
    for _ in range(3):
        tell_overlooked(target, check_options({"spot": True, "cluster": "c9"}))
    [line] = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert line.startswith(
        "spot=True, project='my-project' (profile 'team'), zone='z' (KINETIC_ZONE), cluster='c9' (cluster=), "
        "namespace='default' (profile 'team'): passed over"
    )


def test_a_backend_of_ones_own_is_told_what_was_said(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = resolve(environ=environ(file, GOOGLE_CLOUD_PROJECT="g"), backend=THREADS, cluster="c")
    assert (target.project, target.cluster, target.zone, target.overlooked) == ("g", "c", None, ())
    tell_overlooked(target, check_options({"cluster": "c"}))
    assert not [record for record in caplog.records if "passed over" in record.getMessage()]


def test_googles_own_variable_is_no_wish_for_a_cluster(file: Path) -> None:
    assert resolve(environ=environ(file, GOOGLE_CLOUD_PROJECT="g")).overlooked == ()


# The file.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no JSON"),
        ("[]", "the file: expected an object"),
        ('{"current": 3}', "current: expected a profile's name or null"),
        ('{"profiles": []}', "profiles: expected an object of profiles by name"),
        ('{"profiles": {"a": 3}}', "profiles.a: expected an object"),
        ('{"profiles": {"a": {"zone": 3}}}', "profiles.a.zone: expected a text or null"),
    ],
)
def test_a_malformed_file_is_refused_with_file_and_field(file: Path, text: str, told: str) -> None:
    written(file, text)
    with pytest.raises(kinetic.ConfigError, match=re.escape(f"{file}")) as caught:
        resolve(environ=environ(file))
    assert told in str(caught.value)
    with pytest.raises(kinetic.ConfigError):
        edit_profiles(file, with_profile("b", {"store": "/b"}))
    assert file.read_text() == text


@pytest.mark.parametrize("text", ["{}", '{"current": null}', '{"current": "gone", "profiles": {}}'])
def test_a_file_may_say_little(file: Path, text: str) -> None:
    there = read_profiles(written(file, text))
    assert (there.names, there.current) == ((), None)


def test_upstreams_file_is_read_and_what_is_not_changed_stays_as_it_was(file: Path) -> None:
    written(file, {**UPSTREAMS, "schema": 7})
    there = read_profiles(file)
    assert (there.names, there.current) == (("team", "mine"), "team")
    assert there.find("mine", "").fields == {"project": "my-project", "cluster": "c2", "namespace": "me"}
    assert there.find("mine", "").unknown == ()
    edit_profiles(file, with_profile("new", {"store": "/s"}))
    edit_profiles(file, with_current("new"))
    edit_profiles(file, without_profile("team"))
    kept = {"mine": UPSTREAMS["profiles"]["mine"], "new": {"store": "/s"}}  # type: ignore[index]
    assert json.loads(file.read_text()) == {"current": "new", "profiles": kept, "schema": 7}


def test_unknown_keys_are_named_with_the_nearest_and_kept(file: Path) -> None:
    written(file, {"current": "a", "profiles": {"a": {"cluter": "c", "store": "/a"}}})
    target = resolve(environ=environ(file))
    assert config.strange_settings(target.profile, {}) == ["profile 'a': unknown key 'cluter'; did you mean 'cluster'?"]
    edit_profiles(file, with_profile("b", {"store": "/b"}))
    assert json.loads(file.read_text())["profiles"]["a"] == {"cluter": "c", "store": "/a"}


def test_the_first_profile_is_used_and_the_removal_of_the_used_one_leaves_none(file: Path) -> None:
    assert edit_profiles(file, with_profile("a", {"store": "/a"})).current == "a"
    assert edit_profiles(file, with_profile("b", {"store": "/b"})).current == "a"
    assert edit_profiles(file, without_profile("b")).current == "a"
    assert edit_profiles(file, without_profile("a")).current is None
    assert edit_profiles(file, with_profile("c", {"store": "/c"})).current == "c"


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "x" * 65, "ä"])
def test_names_that_cannot_be(file: Path, name: str) -> None:
    with pytest.raises(kinetic.UsageError, match="can't be a profile's name"):
        edit_profiles(file, with_profile(name, {"store": "/a"}))
    assert not file.exists()


def test_a_taken_name_is_refused_unless_it_is_to_be_replaced(file: Path) -> None:
    edit_profiles(file, with_profile("a", {"store": "/a"}))
    with pytest.raises(kinetic.UsageError, match="--force"):
        edit_profiles(file, with_profile("a", {"store": "/b"}))
    assert edit_profiles(file, with_profile("a", {"store": "/b"}, replace=True)).find("a", "").fields == {"store": "/b"}


def test_the_file_is_its_owners_and_keeps_the_mode_that_it_was_given(file: Path) -> None:
    edit_profiles(file, with_profile("a", {"store": "/a"}))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    edit_profiles(file, with_profile("b", {"store": "/b"}))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "profiles.json"
    real.parent.mkdir()
    file.symlink_to(real)
    edit_profiles(file, with_profile("a", {"store": "/a"}))
    assert file.is_symlink()
    assert read_profiles(real).names == read_profiles(file).names == ("a",)


WRITER = """
import sys
from pathlib import Path
from kinetic_ray.profiles import edit_profiles, with_profile
for number in range(5):
    edit_profiles(Path(sys.argv[1]), with_profile(f"p{sys.argv[2]}-{number}", {"store": "/s"}))
"""


def test_many_writers_at_once_lose_nothing(file: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(file), str(number)]) for number in range(6)]
    assert [writer.wait(120) for writer in writers] == [0] * 6
    assert set(read_profiles(file).names) == {f"p{writer}-{number}" for writer in range(6) for number in range(5)}


def test_a_writer_that_dies_leaves_the_file_as_it_was_and_blocks_nobody(file: Path) -> None:
    edit_profiles(file, with_profile("a", {"store": "/a"}))
    before = file.read_bytes()
    script = "import os, sys; from pathlib import Path; from kinetic_ray.profiles import edit_profiles\n"
    script += "edit_profiles(Path(sys.argv[1]), lambda document: os._exit(9))"
    assert subprocess.run([sys.executable, "-c", script, str(file)]).returncode == 9
    file.with_name("profiles.json.new").write_text('{"half a docu')  # as one that was killed while it wrote
    assert file.read_bytes() == before
    assert edit_profiles(file, with_profile("b", {"store": "/b"})).names == ("a", "b")
    assert {path.name for path in file.parent.iterdir()} - {"profiles.json.lock"} == {"profiles.json"}


def test_a_change_that_fails_changes_nothing(file: Path) -> None:
    edit_profiles(file, with_profile("a", {"store": "/a"}))
    before = file.read_bytes()

    def broken(document: Document) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        edit_profiles(file, broken)
    assert file.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(kinetic.ConfigError, match="can't be written"):
        edit_profiles(tmp_path / "profiles.json", with_profile("a", {"store": "/a"}))


def test_the_format_of_the_first_release_is_read(file: Path) -> None:
    golden = (ROOT / "tests" / "golden" / "profiles-v1.json").read_text()
    there = read_profiles(written(file, golden))
    assert (there.names, there.current) == (("team", "here"), "team")
    fields = {"project": "my-project", "zone": "us-west4-a", "cluster": "c1", "namespace": "default"}
    assert there.find("team", "") == Profile("team", fields)
    assert there.find("here", "") == Profile("here", {"backend": "local", "store": "/data/runs"})
    edit_profiles(file, with_current("team"))
    assert file.read_text() == golden


# Calls.


def test_calls_go_where_their_profile_says_or_are_refused_by_its_backend(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    profiles = {"here": {"store": "/s", "cluster": "c7"}, "threads": {"backend": THREADS}}
    monkeypatch.setenv("KINETIC_PROFILES_FILE", str(written(file, {"profiles": profiles})))
    refuse_for_calls("f", check_options({"profile": "here"}))
    assert "cluster='c7' (profile 'here'): passed over" in caplog.text
    with pytest.raises(kinetic.UsageError, match=r"f\.remote\(\): backend='kinetic_ray.testing.*f\.run_async"):
        refuse_for_calls("f", check_options({"profile": "threads"}))
    with pytest.raises(kinetic.ConfigError, match="did you mean 'here'"):
        refuse_for_calls("f", check_options({"profile": "hree"}))


# Variables that look like settings.


def test_unknown_variables_are_named_with_the_nearest() -> None:
    known = [*(setting.env for setting in SETTINGS.values()), *OWN_VARIABLES, *UPSTREAM_VARIABLES]
    assert unknown_variables([*known, "PATH", "_KINETIC_COMPLETE"]) == []
    assert unknown_variables(["KINETIC_STOER", "KINETIC_XYZZY"]) == [
        ("KINETIC_STOER", "KINETIC_STORE"),
        ("KINETIC_XYZZY", ""),
    ]
    lines = config.strange_settings(None, {"KINETIC_STOER": "secret", "KINETIC_XYZZY": "x"})
    assert lines == [
        "KINETIC_STOER is set, but there is no such setting; did you mean KINETIC_STORE?",
        "KINETIC_XYZZY is set, but there is no such setting",
    ]


def test_every_variable_of_ours_is_known() -> None:
    named = set()
    for path in (ROOT / "kinetic_ray").rglob("*.py"):
        named |= set(re.findall(r"(?<!_)\bKINETIC_[A-Z_]*[A-Z]\b", path.read_text()))
    assert unknown_variables(named - {"KINETIC_LOCAL", "KINETIC_STOER"}) == []


def test_a_call_tells_of_them_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("KINETIC_BACKEND", THREADS)
    monkeypatch.setenv("KINETIC_STROE", "x")
    function = kinetic.remote(len)
    assert [function.run_async("abc").result(), function.run_async("ab").result()] == [3, 2]
    told = [record.getMessage() for record in caplog.records if "KINETIC_STROE" in record.getMessage()]
    assert told == ["KINETIC_STROE is set, but there is no such setting; did you mean KINETIC_STORE?"]
