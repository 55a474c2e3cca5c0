"""What one would write for a large value without kinetic_ray: a job that pickles it into a file."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np

from benchmarks.programs import peak_memory


def main() -> None:
    """`raw_value SIZE VALUE RESULT`: leaves the value in one file, then the most memory that this took in the other."""
    size, value, told = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    half = value.with_suffix(".half")
    with half.open("wb") as file:
        pickle.dump(np.ones(size, dtype=np.uint8), file, protocol=5)
        file.flush()
        os.fsync(file.fileno())
    half.rename(value)
    half = told.with_suffix(".half")
    half.write_text(str(peak_memory()), encoding="utf-8")
    half.rename(told)


if __name__ == "__main__":
    main()
