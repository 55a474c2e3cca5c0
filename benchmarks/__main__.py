"""Runs the benchmarks: `python -m benchmarks [NAME ...] [--rounds N]`."""

import argparse

from benchmarks import attach, calls, durable, imports, slices
from benchmarks.cluster import own_cluster
from benchmarks.harness import machine

BENCHMARKS = {
    "imports": (imports.run, 10),
    "durable": (durable.run, 10),
    "slices": (slices.run, 5),
    "calls": (calls.warm, 300),
    "large": (calls.large, 7),
    "revived": (calls.revived, 5),
    "attach": (attach.run, 7),
}


def main() -> None:
    """Runs those that are named, all by default, on an embedded cluster of their own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--rounds", type=int, help="samples per contender (by default between 5 and 300)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(BENCHMARKS)}")
    print(machine(), flush=True)
    with own_cluster():
        for name, (run, rounds) in BENCHMARKS.items():
            if not args.names or name in args.names:
                print(f"\n{run(args.rounds or rounds)}", flush=True)


if __name__ == "__main__":
    main()
