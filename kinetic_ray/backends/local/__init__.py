"""The embedded backend: a Ray cluster of this machine's own, with simulated TPU slices."""
