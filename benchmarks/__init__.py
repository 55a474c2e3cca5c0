"""Benchmarks: what kinetic_ray costs beside what one would write without it."""
