"""A job's life: submit, watch, read, find again, clean up."""

import kinetic
from kinetic.jobs import JobStatus, attach, list_jobs


@kinetic.run(accelerator="cpu")
def train(name, epochs=3):
    loss = 1.0
    for epoch in range(epochs):
        loss /= 2
        print(f"{name}: epoch {epoch + 1}/{epochs} loss {loss:.3f}", flush=True)
    return {"name": name, "loss": loss}


if __name__ == "__main__":
    first = train.run_async("first")
    second = train.run_async("second", epochs=5)
    assert first.job_id != second.job_id
    assert first.job_id.startswith("job-")
    assert first.func_name == "train"
    assert first.status() in (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED)

    seen = []
    result = first.result(cleanup=False, stream_logs=True, on_status_change=seen.append)
    assert result == {"name": "first", "loss": 0.125}
    assert seen[-1].value == "SUCCEEDED"
    assert first.status() == JobStatus.SUCCEEDED
    assert first.result(cleanup=False) == result

    logs = first.logs()
    assert isinstance(logs, str)
    assert "first: epoch 3/3 loss 0.125" in logs
    assert "epoch 3/3" in first.tail(20)
    assert "epoch 1/3" not in first.tail(1)

    again = attach(second.job_id)
    assert (again.job_id, again.func_name, again.backend) == (second.job_id, "train", second.backend)
    assert again.result(timeout=300, cleanup=False)["loss"] == 1 / 32
    assert kinetic.JobHandle.from_dict(again.to_dict()).result(cleanup=False) == again.result(cleanup=False)

    found = [job.job_id for job in list_jobs()]
    assert {first.job_id, second.job_id} <= set(found)

    for job in (first, second):
        job.cleanup()
        assert job.status() == JobStatus.NOT_FOUND
    print("done")
