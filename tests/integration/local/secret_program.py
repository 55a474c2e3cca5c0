"""A client whose calls and jobs name a secret that is stored, changed and removed between them."""

import os
import subprocess
import sys

import kinetic_ray as kinetic

NAME = "of-the-test"
COMMAND = [sys.executable, "-m", "kinetic_ray", "secret"]


def store(value: str) -> None:
    subprocess.run([*COMMAND, "set", NAME, "MY_STORED"], input=value.encode(), check=True, stdout=subprocess.PIPE)


def value() -> tuple[str, int]:
    return os.environ.get("MY_STORED", ""), os.getpid()


def through_another() -> str:
    found: str = kinetic.get(kinetic.remote(secrets=[NAME])(value).remote())[0]
    return found


def error_of(call: kinetic.RemoteFunction) -> str:  # type: ignore[type-arg]
    try:
        kinetic.get(call.remote())
    except kinetic.KineticError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    store("first")
    call = kinetic.remote(secrets=[NAME])(value)
    first, again = kinetic.get(call.remote()), kinetic.get(call.remote())
    assert first[0] == "first"
    assert again == first  # the same warm process
    assert call.run()[0] == "first"
    assert kinetic.get(kinetic.remote()(value).remote())[0] == ""
    store("second")
    changed = kinetic.get(call.remote())
    assert changed[0] == "second"
    assert changed[1] != first[1]
    assert call.run()[0] == "second"
    assert kinetic.get(call.options(env_vars={"MY_STORED": "own"}).remote())[0] == "own"
    assert kinetic.get(call.options(secrets=[f"{NAME}:MY_STORED"]).remote())[0] == "second"
    assert kinetic.get(kinetic.remote()(through_another).remote()) == "second"
    slice_of_two = call.options(accelerator="tpu-v6e-8", chips_per_host=4, gather="all")
    assert [each[0] for each in slice_of_two.run()] == ["second", "second"]
    subprocess.run([*COMMAND, "remove", NAME], check=True, stdout=subprocess.PIPE)
    assert f"no secret '{NAME}' on this host" in error_of(call)  # the host says so: it was there when this call began
    assert f"ConfigError: no secret '{NAME}'" in error_of(call.options(name="anew"))


if __name__ == "__main__":
    main()
