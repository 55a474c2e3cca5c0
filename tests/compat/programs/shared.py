"""A module beside the programs, and what it reads beside itself."""

from pathlib import Path

FACTOR = 3


def scaled(value: int) -> int:
    return FACTOR * value


def read_corpus() -> str:
    return Path("data/corpus.txt").read_text()
