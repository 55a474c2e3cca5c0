"""For tests, yours and ours: contract suites that every implementation behind a seam has to pass."""
