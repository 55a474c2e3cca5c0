"""Versions of the client and of a host: what is refused, what is told, and how they are found."""

import os
import sys
import types
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.calls.asking import wish_of
from kinetic_ray.calls.code import CodeTracker
from kinetic_ray.core.skew import differences, refusal, warnings
from kinetic_ray.core.spec import Fingerprint
from kinetic_ray.errors import PayloadError
from kinetic_ray.options import check_options
from kinetic_ray.payload import pack_call
from kinetic_ray.payload.versions import fingerprint, fingerprint_like, packages_stamp
from kinetic_ray.runner.calls.errands import keys_of
from kinetic_ray.runner.calls.wish import Order
from kinetic_ray.runner.versions import check_versions, refused_for_versions

CLIENT = Fingerprint("3.11.9", "2.60.0", "3.1.0", "1.0.0", {"numpy": "2.1.3", "pandas": "2.2.1"})


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ({}, ""),
        ({"python": "3.11.2"}, ""),
        ({"python": "3.12.1"}, "with Python 3.11.9, and the host has Python 3.12.1: use the same minor version of"),
        ({"python": "3.1.9"}, "Python 3.1.9"),
        ({"python": "4.11.9"}, "Python 4.11.9"),
        ({"ray": "2.60.1"}, ""),
        ({"ray": "2.61.0"}, "with Ray 2.60.0, and the host has Ray 2.61.0: install the same version of Ray on both"),
        ({"cloudpickle": "3.9.0"}, ""),
        ({"cloudpickle": "4.0.0"}, "cloudpickle 4.0.0"),
        ({"kinetic_ray": "2.0.0"}, ""),
        ({"packages": {"numpy": "2.9.0", "pandas": "2.2.1"}}, ""),
        ({"packages": {"numpy": "1.26.4", "pandas": "2.2.1"}}, "with numpy 2.1.3, and the host has numpy 1.26.4"),
        ({"packages": {"numpy": "2.1.3"}}, "with pandas 2.2.1, and the host has no pandas: install pandas there, or"),
        ({"packages": {}}, "no numpy, no pandas: install numpy and pandas there, or make the call without them"),
        ({"packages": {"numpy": "", "pandas": "2.2.1"}}, ""),
        ({"python": "3.12.1", "packages": {"numpy": "2.1.3"}}, "with Python 3.11.9, pandas 2.2.1, and the host has"),
    ],
)
def test_what_is_refused(host: dict[str, object], told: str) -> None:
    text = refusal(differences(CLIENT, replace(CLIENT, **host)))  # type: ignore[arg-type]
    assert bool(text) == bool(told)
    assert told in text


@pytest.mark.parametrize(
    ("mine", "theirs", "level"),
    [
        ("2.1.3", "2.1.9", "none"),
        ("2.1.3", "2.2.0", "warning"),
        ("2.1.3", "3.1.3", "refusal"),
        ("0.4.30", "0.9.1", "warning"),
        ("2025.3.1", "2026.1.0", "warning"),  # by the calendar
        ("25.1", "26.1", "refusal"),
        ("2.1.3+cu128", "2.1.3+cpu", "none"),
        ("2.1rc1", "2.1", "none"),
        ("1!2.0", "2.0", "none"),
        ("", "2.0", "none"),
        ("unknown", "2.0", "none"),
        ("2", "2.0.1", "none"),
    ],
)
def test_versions_of_a_package(mine: str, theirs: str, level: str) -> None:
    for a, b in ((mine, theirs), (theirs, mine)):
        found = differences(replace(CLIENT, packages={"p": a}), replace(CLIENT, packages={"p": b}))
        assert (bool(refusal(found)), bool(warnings(found))) == (level == "refusal", level == "warning")


VERSIONS = st.from_regex(r"\A[0-9]{1,4}(\.[0-9]{1,2}){0,3}\Z") | st.text(max_size=5)
FINGERPRINTS = st.builds(
    Fingerprint, VERSIONS, VERSIONS, VERSIONS, VERSIONS, st.dictionaries(st.sampled_from("abc"), VERSIONS)
)


@given(FINGERPRINTS, FINGERPRINTS)
def test_any_versions_are_judged(client: Fingerprint, host: Fingerprint) -> None:
    assert differences(client, client) == []
    found = differences(client, host)
    assert [each.is_fatal for each in found] == sorted((each.is_fatal for each in found), reverse=True)
    assert bool(refusal(found)) == any(each.is_fatal for each in found)
    missing = {each.what for each in found if not each.host}
    assert client.packages.keys() - host.packages.keys() <= missing | {each.what for each in found}


def test_every_difference_is_named() -> None:
    host = Fingerprint("3.12.0", "2.61.0", "4.0.0", "2.0.0", {"numpy": "1.0.0"})
    found = differences(CLIENT, host)
    assert [each.what for each in found] == ["Python", "Ray", "cloudpickle", "numpy", "pandas", "kinetic_ray"]
    assert all(name in refusal(found) for name in ("Python", "Ray", "cloudpickle", "numpy", "pandas"))
    assert warnings(found) == ["the call was made with kinetic_ray 1.0.0, and the host has 2.0.0"]


# What is installed.


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages on `sys.path`."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def install(site: Path, name: str, version: str, module: str = "") -> None:
    """Puts a package there, in place of an older one."""
    for old in site.glob(f"{name}-*.dist-info/METADATA"):
        old.unlink()
        old.parent.rmdir()
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (site / f"{module or name}.py").write_text("class Thing: pass\n")
    _touch(site)


def _touch(site: Path) -> None:
    """A folder's time changes; within one tick of its clock it might not."""
    later = site.stat().st_mtime_ns + 1_000_000_000
    os.utime(site, ns=(later, later))


def test_the_stamp_changes_with_what_is_installed(site: Path) -> None:
    seen = [packages_stamp(), packages_stamp()]
    install(site, "kinetic_probe_a", "1.0")
    seen.append(packages_stamp())
    install(site, "kinetic_probe_a", "1.1")
    seen += [packages_stamp(), packages_stamp()]
    assert [a == b for a, b in pairwise(seen)] == [True, False, False, True]


def test_folders_that_hold_no_packages_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = packages_stamp()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages_stamp() == before


def test_only_installed_packages_that_a_pickle_names_are_told(site: Path) -> None:
    install(site, "kinetic_probe_b", "4.5.6")
    import kinetic_probe_b  # type: ignore[import-not-found]

    assert isinstance(kinetic_probe_b, types.ModuleType)
    modules = {"kinetic_probe_b", "json", "os.path", "kinetic_ray.options", "cloudpickle", __name__, "__main__"}
    found = fingerprint(modules)
    assert found.packages == {"kinetic_probe_b": "4.5.6"}
    assert (found.python, found.kinetic_ray) == (sys.version.split()[0], found.kinetic_ray)
    packed = pack_call(kinetic_probe_b.Thing, (), {}, by_value=lambda name: name == "__main__")
    assert fingerprint(packed.modules).packages == {"kinetic_probe_b": "4.5.6"}


def test_a_package_that_tells_no_version_is_there_or_not(site: Path) -> None:
    (site / "kinetic_probe_c.py").write_text("")
    _touch(site)
    asked = replace(fingerprint(), packages={"kinetic_probe_c": "1.0", "kinetic_probe_nowhere": "1.0"})
    assert fingerprint_like(asked).packages == {"kinetic_probe_c": ""}


def test_a_package_goes_by_what_it_is_imported_as(site: Path) -> None:
    install(site, "PyYAML", "6.0.1", module="yaml_kinetic_probe")
    assert fingerprint_like(replace(fingerprint(), packages={"yaml": "5.0"})).packages["yaml"] == "6.0.1"


def test_a_host_refuses_what_it_lacks_and_tells_of_the_rest(site: Path) -> None:
    install(site, "kinetic_probe_d", "2.1")
    here = fingerprint()
    made = replace(here, packages={"kinetic_probe_d": "2.0"})
    lines: list[str] = []
    assert refused_for_versions(made, lines.append) == ""
    assert lines == ["the call was made with kinetic_probe_d 2.0, and the host has 2.1"]
    check_versions(made)
    with pytest.raises(PayloadError, match=r"no kinetic_probe_e: install kinetic_probe_e there"):
        check_versions(replace(here, packages={"kinetic_probe_e": "1.0"}))
    with pytest.raises(PayloadError, match=r"Python 3\.9\.1, and the host has Python"):
        check_versions(replace(here, python="3.9.1"))


def test_warm_processes_do_not_outlive_an_upgrade(site: Path) -> None:
    """Gangs, and the processes that are kept on them, are looked for by these keys."""
    install(site, "kinetic_probe_f", "1.0")
    options, code = check_options({"accelerator": "cpu"}), CodeTracker(print).current()
    orders = [Order(wish_of(options, code, {}), "digest", "f", "client") for _ in range(2)]
    install(site, "kinetic_probe_f", "1.1")
    orders.append(Order(wish_of(options, code, {}), "digest", "f", "client"))
    same, again, other = (keys_of(order.to_bytes()) for order in orders)
    assert same == again
    assert [mine == theirs for mine, theirs in zip(same, other, strict=True)] == [False, False]
