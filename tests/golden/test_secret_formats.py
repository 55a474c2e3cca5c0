"""Formats of a secret's values, and of specs that name secrets or packages; see test_formats.py for the rules."""

from dataclasses import replace
from pathlib import Path

import pytest

from kinetic_ray.core.records import VERSIONS, dump_record, load_record
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.errors import ConfigError
from kinetic_ray.vault import Vault
from tests.golden.test_formats import CLIENT, REGENERATE, STOPPED_SPEC

HERE = Path(__file__).parent
SECRET, SPEC, PACKAGES_SPEC = HERE / "secret-v1.json", HERE / "spec-v2.json", HERE / "spec-v3.json"
VALUES = {"DB_USER": "ann", "DB_PASSWORD": "Größe=7\nand more"}
NAMING = replace(STOPPED_SPEC, secrets=("hf", "database:DB_PASSWORD"))
WITH_PACKAGES = replace(STOPPED_SPEC, client=replace(CLIENT, packages={"numpy": "2.1.3", "sklearn": ""}))


def test_a_secret_is_written_as_ever_and_read(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "secrets")
    vault.put("database", VALUES)
    written = (vault.folder / "database.json").read_bytes()
    if REGENERATE:
        SECRET.write_bytes(written)
    assert written == SECRET.read_bytes()
    assert load_record("secret", SECRET.read_bytes()) == {"values": VALUES}


def test_a_spec_that_names_secrets_is_written_as_ever_and_read() -> None:
    written = dump_record("spec", NAMING.to_dict(), NAMING.format_version)
    if REGENERATE:
        SPEC.write_bytes(written)
    assert written == SPEC.read_bytes()
    assert JobSpec.from_dict(load_record("spec", SPEC.read_bytes())) == NAMING


def test_a_spec_that_names_packages_is_written_as_ever_and_read() -> None:
    written = dump_record("spec", WITH_PACKAGES.to_dict(), WITH_PACKAGES.format_version)
    if REGENERATE:
        PACKAGES_SPEC.write_bytes(written)
    assert written == PACKAGES_SPEC.read_bytes()
    assert JobSpec.from_dict(load_record("spec", PACKAGES_SPEC.read_bytes())) == WITH_PACKAGES


def test_older_readers_refuse_only_what_they_would_misread() -> None:
    assert [spec.format_version for spec in (STOPPED_SPEC, NAMING, WITH_PACKAGES)] == [1, 2, 3]
    assert "secrets" not in STOPPED_SPEC.to_dict()
    assert "packages" not in STOPPED_SPEC.to_dict()["client"]
    newer = dump_record("spec", NAMING.to_dict(), VERSIONS["spec"] + 1)
    with pytest.raises(ConfigError, match="upgrade kinetic-ray"):
        load_record("spec", newer)
