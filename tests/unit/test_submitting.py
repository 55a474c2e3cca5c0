"""A call that the store refuses half-way: nothing of it stays, least of all a value of a variable."""

import errno
import uuid
from pathlib import Path
from typing import Any

import pytest

import kinetic_ray as kinetic
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.jobs.submitting import Call, record, stored
from kinetic_ray.journal import JobJournal
from kinetic_ray.options import Options, check_options
from kinetic_ray.payload import Payload
from kinetic_ray.store import Store
from kinetic_ray.store.memory import open_memory
from kinetic_ray.store.place import Place

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


class Full:
    """A medium that has no space for an object of one name, or is interrupted there."""

    def __init__(self, place: Place, name: str, error: BaseException = NO_SPACE) -> None:
        self._place, self._name, self._error = place, name, error

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._place, attribute)

    def stage(self) -> Any:
        return _Staged(self._place.stage(), self._name, self._error)


class _Staged:
    def __init__(self, staged: Any, name: str, error: BaseException) -> None:
        self._staged, self._name, self._error = staged, name, error

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._staged, attribute)

    def publish(self, key: str, *, replace: bool, durable: bool) -> bool:
        if key.endswith(self._name):
            raise self._error
        return bool(self._staged.publish(key, replace=replace, durable=durable))


def recorded(store: Store, options: Options) -> JobSpec:
    variables = options.variables({})
    spec = stored(store, Call(sorted, (), {}, "sorted"), options, Payload(b"call", b""), None, variables)
    record(store, spec, variables)
    return spec


@pytest.mark.parametrize("name", ["spec.json", "PENDING~sorted"])
def test_nothing_of_a_job_stays_when_the_disk_is_full(name: str) -> None:
    store = Store(Full(open_memory(str(uuid.uuid4())), name))
    options = check_options({"env_vars": {"TOKEN": "s3cret"}})
    with pytest.raises(kinetic.KineticError, match="no space left"):
        recorded(store, options)
    assert [key for key in store.walk("") if not key.startswith("blobs/")] == []


@pytest.mark.parametrize("name", ["spec.json", "PENDING~sorted"])
def test_nothing_of_a_job_stays_when_ctrl_c_comes_while_it_is_recorded(name: str) -> None:
    store = Store(Full(open_memory(str(uuid.uuid4())), name, KeyboardInterrupt()))
    options = check_options({"env_vars": {"TOKEN": "s3cret"}})
    with pytest.raises(KeyboardInterrupt):
        recorded(store, options)
    assert [key for key in store.walk("") if not key.startswith("blobs/")] == []


def test_a_deleted_working_folder_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(kinetic.ConfigError, match="has been deleted"):
        kinetic.remote(sorted).run_async([1])


def test_the_spec_carries_what_orders_and_names_a_job() -> None:
    store = Store(open_memory(str(uuid.uuid4())))
    options = check_options({"priority": 7, "name": "nightly", "tags": ["a"]})
    made = recorded(store, options)
    spec = JobJournal(store, made.job_id).spec()
    assert (spec.priority, spec.name, spec.tags) == (7, "nightly", ("a",))
