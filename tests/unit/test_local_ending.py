"""What is said against the end of an embedded cluster."""

import pytest

from kinetic_ray.backends.local.ending import lost_by_an_end

JOBS = [f"job-{letter}" for letter in "abcdefg"]


@pytest.mark.parametrize(
    ("jobs", "processes", "said"),
    [
        ([], 0, ""),
        (JOBS[:1], 2, "1 job has not ended (job-a): cancel, or stop with --force, which does"),
        (
            JOBS,
            0,
            "7 jobs have not ended (job-a, job-b, job-c, job-d, job-e, ...): cancel, or stop with --force, which does",
        ),
        (
            [],
            1,
            "1 process has joined it for .remote() calls, and would lose them: end that first, or stop with --force",
        ),
        (
            [],
            3,
            "3 processes have joined it for .remote() calls, and would lose them: end that first, or stop with --force",
        ),
    ],
)
def test_jobs_and_joined_processes_speak_against_an_end(jobs: list[str], processes: int, said: str) -> None:
    assert lost_by_an_end(jobs, processes) == said
