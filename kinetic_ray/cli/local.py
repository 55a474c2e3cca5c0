"""`kinetic local`: look at the embedded cluster, take hosts away, stop it; it starts by itself when a job needs it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from kinetic_ray import config
from kinetic_ray.backends.local import client
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.backends.local.preempt import GRACE_S, RETURN_AFTER_S
from kinetic_ray.cli.completing import complete_slice
from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.cli.output import json_option, print_json, print_table, say
from kinetic_ray.errors import KineticError, UsageError
from kinetic_ray.ui.text import format_duration

_ANSWER_SECONDS = 30.0


def ask(op: str, timeout: float = _ANSWER_SECONDS, fields: Mapping[str, object] | None = None) -> dict[str, Any] | None:
    """The supervisor's answer; None when none runs. Starts nothing.

    Raises:
        KineticError: It refused, or doesn't answer in time.
    """
    with _answering():
        return client.ask(config.home(), {"op": op, **(fields or {})}, timeout)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # TimeoutError is one
        sock = runtime_of(config.home()).sock
        raise KineticError(f"the supervisor at {sock} does not answer: {str(error) or 'no reason given'}") from error


@click.group()
def local() -> None:
    """Look at the embedded cluster, take hosts away, stop it.

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
    for titles, rows in (slice_rows(answer), lease_rows(answer), queue_rows(answer), _job_rows(answer)):
        if rows:
            say("")
            print_table(titles, rows, color=config.color())


Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def slice_rows(answer: Mapping[str, Any]) -> Table:
    """The slices; with who holds them, where anybody holds anything."""
    titles = ("slice", "accelerator", "state", "hosts", "held by")
    holders = {name: lease["holder"] for lease in answer.get("leases", ()) for name in lease.get("slices", ())}
    rows = [
        (each["name"], each["accelerator"], each["state"], _hosts(each["hosts"]), holders.get(each["name"], ""))
        for each in answer.get("slices", ())
    ]
    return (titles, rows) if holders else (titles[:-1], [row[:-1] for row in rows])


def lease_rows(answer: Mapping[str, Any]) -> Table:
    """Who holds what, slices or CPUs."""
    rows = [(each["holder"], each.get("name", ""), _held(each)) for each in answer.get("leases", ())]
    return ("holder", "name", "holds"), rows


def _held(lease: Mapping[str, Any]) -> str:
    held = ", ".join(lease.get("slices", ())) or f"{lease.get('cpus', 0):g} CPUs"
    return f"{held} (kept warm for calls)" if lease.get("idle_ok") else held


def queue_rows(answer: Mapping[str, Any]) -> Table:
    """Who waits for what, and why; the next one first."""
    rows = [
        (each["holder"], each.get("name", ""), str(each.get("wish", "")), each.get("reason", ""))
        for each in answer.get("queue", ())
    ]
    return ("waits", "name", "for", "because"), rows


def _job_rows(answer: Mapping[str, Any]) -> Table:
    return ("job", "state", "store"), [(job["job_id"], job["state"], job["store"]) for job in _open(answer)]


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
@click.argument("target", metavar="SLICE|HOST", shell_complete=complete_slice)
@click.option(
    "--grace", type=float, metavar="S", help=f"Seconds between the notice and the end; {GRACE_S:g} if not given."
)
@click.option("--silent", is_flag=True, help="Without notice: the hosts stop answering, as a broken machine does.")
@click.option(
    "--return-after",
    type=float,
    metavar="S",
    help=f"Seconds until a fixed pool has the slice again; {RETURN_AFTER_S:g} if not given.",
)
@json_option
def preempt(target: str, grace: float | None, silent: bool, return_after: float | None, as_json: bool) -> None:
    """Take a slice, or one host of it, away as GKE would.

    SLICE is a name that `kinetic local status` shows, HOST is a slice's name and the host's number: tpu-v6e-16-0.2.

    What runs there gets SIGTERM, then the time of grace, then the hosts are gone. A slice goes as a whole, also when
    only one of its hosts is taken. Returns at once.
    """
    asked = {"target": target, "grace": grace, "silent": silent, "return_after": return_after}
    answer = ask("preempt", fields=asked)
    if answer is None:
        raise Refusal("no embedded cluster runs, so there is nothing to take away", ExitCode.NO)
    if as_json:
        print_json(_without_ok(answer))
        return
    end = "stops answering now" if silent else f"was told, and goes in {answer['grace']:g} s at the latest"
    say(f"{target} {end}")


@local.command()
@click.option("--force", is_flag=True, help="Cancel the jobs that run, and end calls.")
@json_option
def stop(force: bool, as_json: bool) -> None:
    """Stop the embedded cluster, and wait until nothing of it is left.

    Exit code 1 while jobs run or processes have joined it for .remote() calls, unless --force ends both. Jobs, values
    and logs stay in the store.
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
