"""What one would write for a durable call without kinetic_ray: a Ray job, one actor, one call, one result file."""

import sys
from pathlib import Path

import ray


class Worker:
    """The actor that does the work."""

    def call(self) -> int:
        return 1


def main() -> None:
    """Leaves the result in the file that is named last."""
    target = Path(sys.argv[-1])
    ray.init(log_to_driver=False, logging_level="warning")
    value = ray.get(ray.remote(Worker).remote().call.remote())
    half = target.with_suffix(".half")
    half.write_text(str(value), encoding="utf-8")
    half.rename(target)


if __name__ == "__main__":
    main()
