"""The broker's books, where the actor's tests don't reach: looks that are far apart, and answers that change."""

from collections.abc import Collection
from dataclasses import replace

from kinetic_ray.runner.leases import Holdings
from kinetic_ray.runner.ledger import Ledger
from kinetic_ray.runner.queue import Lease, Pool, Slice, Ticket

KIND = ("tpu-v6e-4", 4)
A = Ticket("job-a", 1, KIND[0], chips_per_host=4, slices=1)
W = replace(A, job_id="job-w")
S0 = Slice("s-0", ("n0",))


def held(ledger: Ledger, ticket: Ticket, one: Slice = S0) -> Lease:
    ledger.admit(ticket)
    ledger.serve(Pool({ticket.kind: (one,)}))
    assert ledger.answer(ticket)["state"] == "granted"
    return next(lease for lease in ledger.leases if lease.ticket == ticket)


def look(ledger: Ledger, found: Collection[Lease], now: float) -> list[str]:
    return ledger.drop_vanished(Holdings(tuple(found)), now, gone=4.0, unplaced=60.0)


def test_a_lease_is_dropped_after_it_was_missing_for_long_enough() -> None:
    ledger = Ledger()
    lease = held(ledger, A)
    assert [look(ledger, found, now) for found, now in (([lease], 0.0), ([], 1.0), ([], 4.9), ([], 5.0))] == [
        *([], [], []),
        ["job-a"],
    ]
    assert ledger.leases == ()


def test_looks_that_are_far_apart_prove_nothing() -> None:
    ledger = Ledger()
    lease = held(ledger, A)
    look(ledger, [lease], 0.0)
    look(ledger, [], 1.0)
    ledger.forget_looks()
    assert look(ledger, [], 1000.0) == []
    assert look(ledger, [], 1004.0) == ["job-a"]


def test_a_newer_driver_has_its_own_time_to_place_what_it_took_over() -> None:
    ledger = Ledger()
    look(ledger, [held(ledger, A)], 0.0)
    newer = replace(A, epoch=2)
    ledger.admit(newer)
    look(ledger, [], 1.0)
    assert look(ledger, [], 50.0) == []
    assert look(ledger, [], 61.0) == ["job-a"]


def test_what_an_older_driver_still_holds_says_nothing_of_the_newer() -> None:
    ledger = Ledger()
    older = held(ledger, A)
    ledger.admit(replace(A, epoch=2))
    look(ledger, [older], 0.0)  # its groups go with its process, in a moment
    assert look(ledger, [], 1.0) == []
    assert look(ledger, [], 50.0) == []
    assert look(ledger, [], 61.0) == ["job-a"]


def test_other_kinds_are_left_alone_as_soon_as_they_are_in_nobodys_way() -> None:
    ledger = Ledger()
    other = replace(A, job_id="call-g", accelerator="tpu-v5e-4", yields=True)
    held(ledger, other)
    ledger.admit(W)
    ledger.serve(Pool())
    ledger.offered(W, [], stuck=True)
    assert ledger.wanted() == ("call-g",)
    ledger.offered(W, [], stuck=False)
    assert ledger.wanted() == ()


def test_a_release_is_for_its_own_epoch_and_older_ones() -> None:
    ledger = Ledger()
    held(ledger, replace(A, epoch=2))
    ledger.release("job-a", 1)
    assert ledger.leased == ("s-0",)
    ledger.release("job-a", 2)
    assert ledger.leased == ()
