"""Tests of the test plane."""
