"""`kinetic local`: look at the embedded cluster, or stop it; it starts by itself when a job needs it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from kinetic_ray import config
from kinetic_ray.backends.local import client
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.cli.output import json_option, print_json, print_table, say
from kinetic_ray.errors import KineticError, UsageError
from kinetic_ray.ui.text import format_duration

_ANSWER_SECONDS = 30.0


def ask(op: str, timeout: float = _ANSWER_SECONDS) -> dict[str, Any] | None:
    """The supervisor's answer; None when none runs. Starts nothing.

    Raises:
        KineticError: It refused, or doesn't answer in time.
    """
    with _answering():
        return client.ask(config.home(), {"op": op}, timeout)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # TimeoutError is one
        sock = runtime_of(config.home()).sock
        raise KineticError(f"the supervisor at {sock} does not answer: {str(error) or 'no reason given'}") from error


@click.group()
def local() -> None:
    """Look at the embedded cluster, or stop it.

    It is a Ray cluster of your own on this machine, with simulated slices. The first job starts it, and it stops
    when it has been idle for a while. It is kept apart by user, KINETIC_HOME and Python environment.
    """


@local.command()
@click.option(
    "--env", "as_env", is_flag=True, help="Print what the `ray` command needs: eval $(kinetic local status --env)."
)
@json_option
def status(as_env: bool, as_json: bool) -> None:
    """Say what runs. Exit code 1 if no embedded cluster does."""
    if as_env:
        _print_env(as_json=as_json)
        return
    answer = ask("status")
    if as_json:
        print_json(
            {"running": False} if answer is None else {"running": True, **_without_ok(answer), "jobs": _open(answer)}
        )
    elif answer is None:
        say(f"no embedded cluster runs for {config.home()}; the first job starts one")
    else:
        _print_status(answer)
    if answer is None:
        click.get_current_context().exit(ExitCode.NO)


def _print_env(*, as_json: bool) -> None:
    answer = ask("env")
    if answer is None:
        raise Refusal("no embedded cluster runs, so the ray command has nothing to connect to", ExitCode.NO)
    if as_json:
        print_json({"env": answer["env"]})
        return
    for name, value in answer["env"].items():
        click.echo(f"export {name}={shlex.quote(str(value))}")


def _without_ok(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != "ok"}


def _print_status(answer: Mapping[str, Any]) -> None:
    up = answer.get("uptime")
    facts = {
        "supervisor": f"process {answer.get('pid')}" + (f", up {format_duration(up)}" if up is not None else ""),
        "head": answer.get("head"),
        "ray": answer.get("ray_address"),
        "dashboard": answer.get("dashboard_url"),
        "home": answer.get("home"),
        "pool": "any shape on demand" if answer.get("pool") is None else json.dumps(answer["pool"]),
        "jobs": f"{len(_open(answer))} not ended; at most {answer.get('max_drivers')} run at a time",
    }
    for label, value in facts.items():
        if value:
            say(f"{label:>10}  {value}")
    slices = answer.get("slices", [])
    if slices:
        say("")
        rows = [(each["name"], each["accelerator"], each["state"], _hosts(each["hosts"])) for each in slices]
        print_table(("slice", "accelerator", "state", "hosts"), rows, color=config.color())
    if jobs := _open(answer):
        say("")
        driven = [(job["job_id"], job["state"], job["store"]) for job in jobs]
        print_table(("job", "state", "store"), driven, color=config.color())


def open_jobs(answer: Mapping[str, Any]) -> int:
    """How many jobs the supervisor still works on."""
    return len(_open(answer))


def _open(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The jobs that have not ended; the supervisor remembers others for a while."""
    return [job for job in answer.get("jobs", []) if job["state"] != "gone"]


def _hosts(hosts: list[Mapping[str, Any]]) -> str:
    up = sum(host.get("state") == "up" for host in hosts)
    return f"{up} of {len(hosts)} up"


@local.command()
@click.option("--force", is_flag=True, help="Cancel the jobs that run.")
@json_option
def stop(force: bool, as_json: bool) -> None:
    """Stop the embedded cluster, and wait until nothing of it is left.

    Exit code 1 while jobs run, unless --force cancels them. Jobs, values and logs stay in the store.
    """
    try:
        with _answering():
            stopped = client.stop(config.home(), force)
    except UsageError as error:
        raise Refusal(str(error), ExitCode.NO) from error
    if as_json:
        print_json({"stopped": stopped})
    else:
        say("the embedded cluster has stopped" if stopped else "no embedded cluster runs")
