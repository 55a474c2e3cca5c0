"""Waiting for something to become true, with a deadline and a reason in the failure: what users' tests have too."""

from kinetic_ray.testing.waiting import wait_until

__all__ = ["wait_until"]
