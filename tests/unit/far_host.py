"""A host as far away as it gets: its own process and folder, nothing but the store and the job's id.

`python far_host.py STORE JOB_ID` does what a rank does up to the call, and prints the value's repr.
"""

import os
import sys
import tempfile
from pathlib import Path

from kinetic_ray import bundle, payload
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import open_store


def main(store_url: str, job_id: str) -> None:
    store = open_store(store_url, create=False)
    spec = JobJournal(store, job_id).spec()
    root = Path(tempfile.mkdtemp(prefix="far", dir=Path(store_url).parent))
    if spec.bundle is not None:
        bundle.unpack(store.get_blob(spec.bundle.blob), root)
        (root / spec.bundle.cwd).mkdir(parents=True, exist_ok=True)
        os.chdir(root / spec.bundle.cwd)
        sys.path[:0] = [os.path.normpath(root / entry) for entry in spec.bundle.sys_path]
    function, args, kwargs = payload.load_call(store.get_blob(spec.payload), root, store.get_blob)
    sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    sys.stdout.write(repr(function(*args, **kwargs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
