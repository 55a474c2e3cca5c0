"""Runs the benchmarks: `python -m benchmarks [NAME ...] [--rounds N] [--small]`."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks import attach, calls, durable, edit, handles, imports, install, listing, logs, slices, value
from benchmarks.cluster import own_cluster
from benchmarks.harness import machine


@dataclass(frozen=True)
class Benchmark:
    """What can be run.

    Attributes:
        run: Gives its tables, of so many rounds and, where it has one, of a size.
        rounds: So many by default.
        size: How large what it looks at is; None where it has no size.
        small: How large that is where only the benchmark itself is tried out.
        is_asked_for: Whether it is run only where it is named.
    """

    run: Callable[..., str]
    rounds: int
    size: int | None = None
    small: int | None = None
    is_asked_for: bool = False

    def of(self, *, small: bool) -> Callable[[int], str]:
        """Takes the number of rounds."""
        size = self.small if small else self.size
        return self.run if size is None else partial(self.run, size=size)


BENCHMARKS = {
    "imports": Benchmark(imports.run, 10),
    "durable": Benchmark(durable.run, 10),
    "slices": Benchmark(slices.run, 5),
    "calls": Benchmark(calls.warm, 300),
    "large": Benchmark(calls.large, 7),
    "revived": Benchmark(calls.revived, 5),
    "attach": Benchmark(attach.run, 7),
    "edit": Benchmark(edit.run, 7, size=2000, small=100),
    "handles": Benchmark(handles.run, 7),
    "listing": Benchmark(listing.run, 5, size=10_000, small=60),
    "logs": Benchmark(logs.run, 40),
    "install": Benchmark(install.run, 10, is_asked_for=True),
    "value": Benchmark(value.run, 3, size=1 << 30, small=1 << 20),
}


def main() -> None:
    """Runs those that are named, by default all but those that download, on an embedded cluster of their own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    apart = ", ".join(name for name, each in BENCHMARKS.items() if each.is_asked_for)
    told = f"one of {', '.join(BENCHMARKS)}; all but {apart} by default"
    parser.add_argument("names", nargs="*", metavar="NAME", help=told)
    parser.add_argument("--rounds", type=int, help="samples per contender (by default between 2 and 300)")
    parser.add_argument("--small", action="store_true", help="small projects, values and stores: to try benchmarks out")
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(BENCHMARKS)}")
    print(machine(), flush=True)
    with own_cluster():
        for name, each in BENCHMARKS.items():
            if name in args.names or not (args.names or each.is_asked_for):
                print(f"\n{each.of(small=args.small)(args.rounds or each.rounds)}", flush=True)


if __name__ == "__main__":
    main()
