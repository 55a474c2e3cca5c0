"""Clean gangs in a row, counting spurious failures: `python -m benchmarks.gangs --n 500`."""

import argparse
import sys

from benchmarks.cluster import own_cluster
from benchmarks.harness import machine, table
from benchmarks.slices import in_the_cluster


def main() -> int:
    """Runs the gangs; exit code 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gangs", description=__doc__)
    parser.add_argument("--n", type=int, default=500, help="how many gangs (default 500)")
    count = parser.parse_args().n
    print(machine(), flush=True)
    with own_cluster():
        found = in_the_cluster("repeat", count, timeout=300 + 10 * count)
    failures = found["notes"]
    print(table(f"{count} gangs in one driver", found["samples"]))
    print(f"spurious failures: {len(failures)} of {count}")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
