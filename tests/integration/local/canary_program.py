"""A client that gives values to jobs and calls in every way there is, and prints all that is told of them.

Run as `python canary_program.py FOLDER`, with the canaries as JSON in CANARIES. It makes FOLDER/live while a job with
values, a call and an instance run, and goes on when FOLDER/seen is there.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kinetic_ray as kinetic
from kinetic_ray import errors, testing
from kinetic_ray.testing.processes import driver_process

C: dict[str, str] = json.loads(os.environ.get("CANARIES", "{}")) or dict.fromkeys(
    ("ENV", "BIG", "CALL", "ARG", "OPTION", "URL"), "x"
)
VARIABLES = {"MY_ENV": C["ENV"], "MY_BIG": (C["BIG"] + ".") * 2500}
GIVEN: dict[str, Any] = {
    "accelerator": "cpu",
    "env_vars": VARIABLES,
    "capture_env_vars": ["MY_CAPTURED"],
    "secrets": ["canary"],
}
BROKEN = {**GIVEN, "env_vars": {**VARIABLES, "PYTHONHOME": "/nowhere"}}
SHORT = {"env_vars": {"MY_ENV": C["CALL"]}, "capture_env_vars": ["MY_CAPTURED"], "secrets": ["canary"]}


def await_file(path: Path) -> None:
    moment = threading.Event()
    while not path.exists():
        moment.wait(0.01)


def seen() -> list[bool]:
    """Whether what was given is there; of values only that is told."""
    return [len(os.environ.get(name, "")) > 20 for name in ("MY_ENV", "MY_CAPTURED", "MY_STORED")]


def hold(arg: str, folder: str) -> list[bool]:
    Path(folder, "holds").touch()
    await_file(Path(folder, "seen"))
    return seen()


def fail(arg: str) -> None:
    raise ValueError("nothing is told here")


def crash(arg: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def wait_forever(arg: str, folder: str) -> None:
    Path(folder, "waits").touch()
    await_file(Path(folder, "never"))


def unpicklable(arg: str) -> Any:
    return (number for number in range(3))


class Instance:
    """A gang actor."""

    def __init__(self, arg: str) -> None:
        self._arg = arg

    def seen(self) -> list[bool]:
        return seen()

    def fail(self) -> None:
        raise ValueError("nor here")


def tell(what: str, thing: object) -> None:
    sys.stdout.write(f"{what}: {thing!r} {thing}\n")
    sys.stdout.flush()


def tell_error(what: str, act: Callable[[], object]) -> None:
    """Its whole text: notes, causes, frames."""
    try:
        tell(f"{what} gave", act())
    except BaseException as error:  # noqa: BLE001 - each is shown
        tell(what, error)
        sys.stdout.write("".join(traceback.format_exception(error)))


def refusals() -> None:
    """What is refused before anything is made."""
    url = f"s3://ann:{C['URL']}@bucket/x"
    for given in (
        {"secrets": {"HF_TOKEN": C["OPTION"]}},
        {"secrets": [C["OPTION"]]},
        {"secrets": ["none-such"]},
        {"volumes": {"/data": C["OPTION"]}},
        {"env_vars": {f"A={C['OPTION']}": "b"}},
        {"env_vars": {"A": f"{C['OPTION']}\0"}},
        {"env_vars": {"A": C["OPTION"] * 20_000}},
        {"output_dir": url},
    ):
        tell_error("refused", lambda given=given: kinetic.remote(**given)(fail).run_async(C["ARG"]))
        tell_error("refused", lambda given=given: kinetic.get(kinetic.remote(**given)(fail).remote(C["ARG"])))
    os.environ["KINETIC_STORE"] = url
    tell_error("refused", lambda: kinetic.run()(fail).run_async(C["ARG"]))
    tell_error("refused", kinetic.list_jobs)
    del os.environ["KINETIC_STORE"]
    lock = threading.Lock()
    tell_error("refused", lambda: kinetic.run(**SHORT)(fail).run_async({C["ARG"]: lock}, [{C["ARG"], lock}]))


def main(folder: str) -> None:
    held = kinetic.run(**GIVEN)(hold)
    job = held.run_async(C["ARG"], folder)
    assert kinetic.get(kinetic.remote(**SHORT)(seen).remote()) == [True] * 3
    instance = kinetic.remote(**SHORT)(Instance).remote(C["ARG"])
    assert kinetic.get(instance.seen.remote()) == [True] * 3
    testing.wait_for(job, "call")
    Path(folder, "live").write_text(job.job_id)
    await_file(Path(folder, "go on"))
    Path(folder, "seen").touch()
    assert job.result() == [True] * 3
    tell("handles", [held, job, instance, job.status(), job.phase(), job.logs(), job.tail()])
    for function in (fail, crash, unpicklable):
        failing = kinetic.run(**GIVEN)(function).run_async(C["ARG"])
        tell_error(function.__name__, failing.result)
        tell("its log", failing.logs())
    tell_error("broken", lambda: kinetic.run(**BROKEN)(fail).run(C["ARG"]))
    gang = kinetic.run(**{**GIVEN, "accelerator": "tpu-v6e-8"}, chips_per_host=4, gather="all")(seen)
    assert gang.run() == [[True] * 3] * 2
    for end in (kinetic.JobHandle.cancel, lambda job: driver_process(job).kill()):
        stopped = kinetic.run(**GIVEN)(wait_forever).run_async(C["ARG"], folder)
        testing.wait_for(stopped, "call")
        end(stopped)
        tell_error("stopped", stopped.result)
    tell_error("a call", lambda: kinetic.get(kinetic.remote(**SHORT)(fail).remote(C["ARG"])))
    tell_error("a crash", lambda: kinetic.get(kinetic.remote(**SHORT)(crash).remote(C["ARG"])))
    tell_error("a broken call", lambda: kinetic.get(kinetic.remote(**BROKEN)(fail).remote(C["ARG"])))
    tell_error("a method", lambda: kinetic.get(instance.fail.remote()))
    refusals()
    tell("jobs", kinetic.list_jobs())
    tell("errors", [kind for kind in vars(errors).values() if isinstance(kind, type)])


if __name__ == "__main__":
    main(sys.argv[1])
