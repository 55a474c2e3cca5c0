"""Calls that wait: values, sibling modules, files, variables, errors; a decorated function that calls another one."""

import os

import kinetic
from shared import read_corpus, scaled

os.environ["MY_TOKEN"] = "t0k3n"
os.environ["WANDB_MODE"] = "offline"
os.environ["WANDB_PROJECT"] = "p"


class NotConverged(Exception):
    pass


@kinetic.run("cpu", "bundled", capture_env_vars=["MY_TOKEN", "WANDB_*", "NOT_SET"])
def surroundings():
    print("in the job", flush=True)
    names = ("MY_TOKEN", "WANDB_MODE", "WANDB_PROJECT", "NOT_SET", "KERAS_BACKEND", "KINETIC_OUTPUT_DIR")
    return {name: os.environ.get(name) for name in names}


@kinetic.run(accelerator="cpu", capture_env_vars=["*"])
def everything():
    return os.environ.get("MY_TOKEN")


@kinetic.run(accelerator="cpu")
def word_count(factor):
    return scaled(factor * len(read_corpus().split()))


@kinetic.run(accelerator="cpu")
def inner(x):
    return (os.environ["KINETIC_JOB_ID"], x + 1)


@kinetic.run(accelerator="cpu")
def outer(x):
    return (os.environ["KINETIC_JOB_ID"], inner(x))


@kinetic.run(accelerator="cpu")
def fail():
    raise NotConverged("loss is nan")


class Trainer:
    def __init__(self, rate):
        self.rate = rate

    @kinetic.run(accelerator="cpu")
    def train(self, steps):
        return self.rate * steps


if __name__ == "__main__":
    found = surroundings()
    assert found.pop("KINETIC_OUTPUT_DIR")
    assert found == {
        "MY_TOKEN": "t0k3n",
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": "p",
        "NOT_SET": None,
        "KERAS_BACKEND": "jax",
    }
    assert everything() == "t0k3n"
    assert word_count(2) == 24
    job, (inner_job, value) = outer(1)
    assert (inner_job, value) == (job, 2)
    assert Trainer(0.5).train(10) == 5.0
    try:
        fail()
    except NotConverged as error:
        assert str(error) == "loss is nan"
        assert any("fail" in note for note in error.__notes__)
    else:
        raise AssertionError("nothing was raised")
    print("done")
