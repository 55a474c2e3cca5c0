"""What a real rank makes of what users' programs hold: values, errors and code come and go as they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kinetic_ray.payload import pack_call
from kinetic_ray.payload.parts import LARGE
from kinetic_ray.store import Store
from tests.integration.host import programs
from tests.integration.host.gangs import Gang

MakeGang = Callable[..., Gang]


def test_large_parts_are_stored_once_and_can_be_written_to(gang_of: MakeGang, store: Store) -> None:
    table = np.zeros(LARGE, dtype=np.float32)

    def add(x: int, more: Any) -> tuple[int, bool, bool]:
        table[0] += x
        return int(table[0]), more is table, bool(more.flags.writeable)

    gang = gang_of()
    for x in (1, 2):
        packed = pack_call(add, (x, table), {}, by_value=lambda name: name == __name__)
        assert gang.run(add, payload=packed.store(store.put_blob)) == [(x, True, True)]
    assert len([key for key in store.walk("blobs") if store.size(key) >= LARGE]) == 1


def test_errors_of_a_trace_come_back_as_jaxs_own(gang_of: MakeGang) -> None:
    gang = gang_of(1, 1)
    for name in ("TracerBoolConversionError", "TracerArrayConversionError"):
        gang.start(programs.trace_badly, name)
        outcome = gang.outcome()
        assert (outcome.reason, outcome.error and outcome.error.type_name) == ("UserError", name)
        error = gang.error()
        assert (type(error).__name__, type(error).__module__) == (name, "jax.errors")
        assert "traced array" in str(error)


@pytest.mark.parametrize("raises", ["decode", "process", "unicode", "cancelled", "frozen", "locked", "sealed"])
def test_errors_of_every_kind_come_back(gang_of: MakeGang, raises: str) -> None:
    gang = gang_of()
    gang.start(programs.raise_kind, raises)
    outcome = gang.outcome()
    assert (outcome.reason, outcome.phase) == ("UserError", "call")
    assert outcome.error is not None
    assert "in raise_kind" in outcome.error.traceback
    assert "kinetic_ray/" not in outcome.error.traceback
    error = gang.error()
    if raises == "sealed":  # its class can't travel
        assert getattr(error, "error_type", "") == "Sealed"
    else:
        assert type(error).__name__ == outcome.error.type_name
    assert repr(error.__cause__) == "KeyError('root')"


def test_a_value_that_cannot_be_pickled_shows_no_lines_of_ours(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.unpicklable)
    error = gang.outcome().error
    assert error is not None
    assert error.traceback.startswith("ResultError: the function returned a generator that can't be pickled: ")
    assert error.traceback.count("\n") == 1
    assert error.traceback in gang.log()


def test_values_nested_too_deeply_fail_with_their_repr(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.nest, 100_000)
    outcome = gang.outcome()
    assert outcome.reason == "ResultError"
    assert outcome.error is not None
    assert outcome.error.value_repr
