"""For tests, yours and ours: clusters on this machine, faults to put into them, contract suites.

- :func:`local_cluster`: an embedded cluster of a test's own, with methods that take hosts away, kill and delay.
- `kinetic_ray.testing.fixtures`: the same as a pytest plugin. Only this module, and the contract suites, need pytest.
- :func:`wait_for`, :func:`wait_until`: waiting for a job's phase, or for anything, with a deadline.
- `kinetic_ray.testing.thread_backend`: jobs in threads, for tests that need no cluster at all.
- `kinetic_ray.testing.fake_gcs`: buckets on this machine, for `gs://` stores without an account.
- `kinetic_ray.testing.store_contract`: what every store has to pass.
"""

from __future__ import annotations

from kinetic_ray.testing.clusters import LocalCluster, local_cluster
from kinetic_ray.testing.waiting import wait_for, wait_until

__all__ = ["LocalCluster", "local_cluster", "wait_for", "wait_until"]
