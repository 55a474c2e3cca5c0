"""Runs contenders interleaved and prints minimum, median and count beside the machine's data."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Contender:
    """One way to do the thing that is compared.

    Attributes:
        name: What the table calls it.
        sample: Does the thing once and gives the seconds that count.
    """

    name: str
    sample: Callable[[], float]


@dataclass(frozen=True)
class Aim:
    """A ratio that we want to reach: of the medians, or of another percentile."""

    ours: str
    theirs: str
    at_most: float
    percentile: int = 50


@dataclass(frozen=True)
class Limit:
    """Seconds within which we want one contender's median to be, whatever the others take."""

    name: str
    seconds: float


def timed(act: Callable[[], object]) -> Callable[[], float]:
    """Wraps an act so that it gives the seconds that it took."""

    def sample() -> float:
        start = time.perf_counter()
        act()
        return time.perf_counter() - start

    return sample


def interleave(contenders: Sequence[Contender], rounds: int, warm_up: int = 1) -> Samples:
    """Takes one sample of each contender a round, the order turned each time; the first rounds don't count.

    A busy moment of the machine then falls on all contenders alike, and none always follows the same other.
    """
    samples: Samples = {contender.name: [] for contender in contenders}
    for number in range(-warm_up, rounds):
        turn = number % len(contenders)
        for contender in [*contenders[turn:], *contenders[:turn]]:
            seconds = contender.sample()
            if number >= 0:
                samples[contender.name].append(seconds)
    return samples


def table(title: str, samples: Samples, aims: Sequence[Aim | Limit] = ()) -> str:
    """The figures as text: one line a contender, one an aim."""
    width = max(len(title), *(len(name) + 2 for name in samples))
    lines = [f"{title:<{width}} {'min':>9} {'median':>9} {'n':>4}"]
    for name, values in samples.items():
        figures = f"{_time(min(values)):>9} {_time(statistics.median(values)):>9}" if values else f"{'-':>9} {'-':>9}"
        lines.append(f"  {name:<{width - 2}} {figures} {len(values):>4}")
    lines += [line for aim in aims if (line := _verdict(samples, aim))]
    return "\n".join(lines)


def _verdict(samples: Samples, aim: Aim | Limit) -> str:
    """What became of an aim; "" where someone in it has no samples."""
    if isinstance(aim, Limit):
        if not samples.get(aim.name):
            return ""
        median = statistics.median(samples[aim.name])
        return f"  {aim.name}: {_time(median)} (aim <= {_time(aim.seconds)}: {_word(median <= aim.seconds)})"
    if not (samples.get(aim.ours) and samples.get(aim.theirs)):
        return ""
    ratio = _percentile(samples[aim.ours], aim.percentile) / _percentile(samples[aim.theirs], aim.percentile)
    of = "the medians" if aim.percentile == 50 else f"percentile {aim.percentile}"
    word = _word(ratio <= aim.at_most)
    return f"  {aim.ours} / {aim.theirs}: {ratio:.2f}x of {of} (aim <= {aim.at_most:g}x: {word})"


def _word(is_reached: bool) -> str:
    return "reached" if is_reached else "missed"


def machine() -> str:
    """One line: processor, cores, memory, load, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}", *(_version(name) for name in ("ray", "jax", "kinetic-ray"))]
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"machine: {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {sys.platform} {platform.release()}, "
        f"load {load}; {', '.join(versions)}"
    )


def _version(name: str) -> str:
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name} not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _percentile(values: Sequence[float], percentile: int) -> float:
    if percentile == 50 or len(values) < 2:
        return statistics.median(values)
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1]


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
