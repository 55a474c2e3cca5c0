"""Checkpoints in the output folder: a second job with the same folder goes on where the first one ended."""

import json
import os
import sys
from pathlib import Path

import kinetic

OUTPUT = str(Path(sys.argv[1]).resolve())


@kinetic.run(accelerator="cpu", output_dir=OUTPUT)
def train(until):
    folder = Path(os.environ["KINETIC_OUTPUT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / "checkpoint.json"
    start = json.loads(saved.read_text())["step"] if saved.exists() else 0
    saved.write_text(json.dumps({"step": until}))
    return start, until


if __name__ == "__main__":
    assert train(5) == (0, 5)
    assert train(9) == (5, 9)
    assert json.loads((Path(OUTPUT) / "checkpoint.json").read_text()) == {"step": 9}
    print("done")
