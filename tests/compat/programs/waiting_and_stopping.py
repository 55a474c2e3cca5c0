"""A timeout of the wait leaves the job alone; a cancelled job stops."""

import sys
import threading
from pathlib import Path

import kinetic
from kinetic.job_status import JobStatus


@kinetic.run(accelerator="cpu")
def wait_for(flag):
    while not Path(flag).exists():
        threading.Event().wait(0.05)
    return "there"


if __name__ == "__main__":
    flag = Path(sys.argv[1]).resolve()
    job = wait_for.run_async(str(flag))
    try:
        job.result(timeout=0.5)
    except TimeoutError:
        assert job.status() in (JobStatus.PENDING, JobStatus.RUNNING)
    else:
        raise AssertionError("it can't be there yet")
    flag.touch()
    assert job.result(timeout=300, cleanup=False) == "there"

    stopped = wait_for.run_async(str(flag) + ".never")
    assert stopped.job_id in [each.job_id for each in kinetic.list_jobs()]
    stopped.cancel()
    assert stopped.status() in (JobStatus.NOT_FOUND, "STOPPED")  # the latter is a difference that is documented
    stopped.cleanup(k8s=True, gcs=True)
    assert stopped.status() == JobStatus.NOT_FOUND
    print("done")
