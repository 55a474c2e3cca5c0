"""The last lines that a failure carries."""

import pytest

from kinetic_ray.runner.deaths import TAIL_LINES, last_lines

_CRASH = """about to crash
Fatal Python error: Segmentation fault

Current thread 0x00007fe0782b0b80 (most recent call first):
  File "/home-of-ann/train.py", line 5 in step
  File "/venv/lib/kinetic_ray/runner/child.py", line 97 in _work
{more}  File "<frozen runpy>", line 88 in _run_code
  File "<frozen runpy>", line 198 in _run_module_as_main

Extension modules: psutil._psutil_linux (total: 1)
"""


def test_the_stack_of_a_crash_leaves_room_for_what_was_printed_before() -> None:
    ours = "".join(f'  File "/venv/lib/kinetic_ray/runner/zygote.py", line {n} in _serve\n' for n in range(30))
    assert last_lines(_CRASH.format(more=ours)).splitlines() == [
        "about to crash",
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007fe0782b0b80 (most recent call first):",
        '  File "/home-of-ann/train.py", line 5 in step',
    ]


@pytest.mark.parametrize(
    "line",
    [
        '  File "/project/runner/child.py", line 97 in _work',
        '  File "/project/my_kinetic_ray/runner.py", line 97 in _work',
        'reading File "/x/kinetic_ray/runner/child.py", line 97 in part',
        "my Extension modules: none",
    ],
)
def test_lines_of_the_users_own_stay(line: str) -> None:
    assert last_lines(f"{line}\n") == line


def test_there_are_at_most_as_many_as_said() -> None:
    assert last_lines("".join(f"{n}\n" for n in range(50))) == "\n".join(str(n) for n in range(50 - TAIL_LINES, 50))
