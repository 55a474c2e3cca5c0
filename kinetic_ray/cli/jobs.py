"""`kinetic jobs`: list jobs; read, cancel and clean up one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kinetic_ray import config
from kinetic_ray.cli import facts
from kinetic_ray.cli.completing import complete_status
from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.cli.output import json_option, note, print_json, print_table, say
from kinetic_ray.cli.select import complete_job, hold_job
from kinetic_ray.core.state import JobStatus
from kinetic_ray.errors import JobLost
from kinetic_ray.jobs import JobHandle
from kinetic_ray.store import open_store
from kinetic_ray.ui.text import counted

F = TypeVar("F", bound=Callable[..., Any])

_MOST_ROWS = 50
_LOST_WITHIN = 10.0  # seconds; a wait calls a job lost after some 2


def _job_argument(command: F) -> F:
    argument = click.argument("job", metavar="JOB", shell_complete=complete_job)
    return argument(_store_option(command))


def _store_option(command: F) -> F:
    option = click.option("--store", metavar="URL", help="Folder or URL of the store. [default: KINETIC_STORE]")
    return option(command)


@click.group()
def jobs() -> None:
    """List jobs; read, cancel and clean up one.

    JOB is an id, the beginning or the end of one that no other job shares, or "latest".
    """


@jobs.command("list")
@click.option("--state", shell_complete=complete_status, help="Only jobs of this status, e.g. RUNNING.")
@click.option("--name", help="Only jobs with this name, or of this function.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--since", metavar="SPAN", help="Only jobs submitted within this span, e.g. 24h.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=_MOST_ROWS, show_default=True, help="At most so many."
)
@click.option("--rebuild", is_flag=True, help="First have the index say what the jobs' records say.")
@_store_option
@json_option
def list_command(
    *,
    rebuild: bool,
    state: str | None,
    name: str | None,
    tag: str | None,
    since: str | None,
    limit: int,
    store: str | None,
    as_json: bool,
) -> None:
    """List the jobs in the store, newest first."""
    from kinetic_ray.jobs import list_jobs

    target = config.resolve(store=store)
    if rebuild:
        _rebuild_index(target)
    found = list_jobs(state=state, name=name, tag=tag, since=since, store=store)
    opened = open_store(target.store_url, create=False) if found else None
    looks = [] if opened is None else [facts.try_look(handle, opened) for handle in found[:limit]]
    now = time.time()
    readable = [look for look in looks if isinstance(look, facts.JobLook)]
    broken = [look for look in looks if isinstance(look, Exception)]
    if as_json:
        told = {"jobs": [facts.facts(look, now) for look in readable], "unreadable": [str(e) for e in broken]}
        print_json({**told, "total": len(found)})
    elif readable:
        print_table(facts.HEADERS, [facts.cells(look, now) for look in readable], color=config.color())
    if not as_json and len(found) > limit:
        note(f"{limit} of {len(found)} jobs; -n {len(found)} shows all")
    if broken:
        raise Refusal(f"{counted(len(broken), 'job')} can't be read: {broken[0]}", ExitCode.TROUBLE)
    if not found:
        note(f"no such jobs in the store {target.store_url}")


def _rebuild_index(target: config.Target) -> None:
    from kinetic_ray.jobs.finding import open_if_there
    from kinetic_ray.journal import rebuild_index

    store = open_if_there(target)
    if store is None:
        return
    found = rebuild_index(store, time.time())
    entries = f"{found.removed} left-over {'entry' if found.removed == 1 else 'entries'}"
    note(f"{counted(found.jobs, 'job')}, {len(found.changed)} mended in the index, {entries} removed")
    for why in found.unreadable:
        note(f"left as it is: {why}")


@jobs.command()
@_job_argument
@json_option
def status(job: str, store: str | None, as_json: bool) -> None:
    """Say what a job is doing, or how it ended.

    The exit code is 0 whatever the status is: `kinetic jobs result` tells success from failure.
    """
    held = hold_job(job, store)
    look = facts.look_at(held.handle, held.journal)
    now = time.time()
    if as_json:
        print_json({**facts.facts(look, now), "outputs": facts.outputs_folder(look)})
        return
    rows = facts.lines(look, now)
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        say(f"{label:>{width}}  " + text.replace("\n", "\n" + " " * (width + 2)))
    if len(look.phase.hosts) > 1:
        say("")
        print_table(("rank", "slice", "worker", "phase", "end"), facts.host_rows(look), color=config.color())


@jobs.command()
@_job_argument
@click.option("-f", "--follow", is_flag=True, help="Print what comes until the job ends.")
@click.option("-n", "--tail", type=click.IntRange(min=0), help="Only the last N lines.")
@click.option("--rank", default="0", show_default=True, help='Which rank, or "all".')
@click.option("--attempt", type=click.IntRange(min=1), help="Which attempt. [default: the newest]")
@json_option
def logs(
    *, job: str, store: str | None, follow: bool, tail: int | None, rank: str, attempt: int | None, as_json: bool
) -> None:
    """Print what a job's ranks have printed.

    To a terminal control codes other than colours are left out; to a file or a pipe the bytes go as they are.
    """
    from kinetic_ray.cli.logs import Wanted, follow_logs, print_logs

    if follow and (attempt is not None or as_json):
        raise click.UsageError("--follow goes with neither --attempt nor --json")
    if rank != "all" and not rank.isdecimal():
        raise click.BadParameter(f'{rank!r}: expected a number or "all"', param_hint="'--rank'")
    held, wanted = hold_job(job, store), Wanted(None if rank == "all" else int(rank), tail, attempt)
    if follow:
        follow_logs(held, wanted)
    else:
        print_logs(held, wanted, as_json=as_json)


@jobs.command()
@_job_argument
@click.option("--timeout", metavar="SPAN", help="Wait at most so long, e.g. 90s or 2h. [default: until it ends]")
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help='The pickled value; "-": stdout.')
@json_option
def result(job: str, store: str | None, timeout: str | None, output: str | None, as_json: bool) -> None:
    """Wait for a job's value and print its repr.

    With --output the value's bytes (cloudpickle) are written unread: nothing has to be importable here.
    """
    from kinetic_ray.cli.values import failure_of, print_value, write_value
    from kinetic_ray.core.quantities import parse_duration

    if output == "-" and as_json:
        raise click.UsageError("--output - and --json both want standard output")
    seconds = None if timeout is None else parse_duration(timeout, "--timeout")
    held = hold_job(job, store)
    if held.handle.wait(seconds) is not JobStatus.SUCCEEDED:
        raise failure_of(held.handle)
    if output is not None:
        write_value(held, output, as_json=as_json)
    else:
        print_value(held, as_json=as_json)


@jobs.command()
@_job_argument
@click.option("--timeout", metavar="SPAN", default="60s", show_default=True, help="Wait at most so long for the end.")
@json_option
def cancel(job: str, store: str | None, timeout: str, as_json: bool) -> None:
    """Stop a job and wait until it has stopped.

    Exit code 1 if it had already ended otherwise.
    """
    from kinetic_ray.core.quantities import parse_duration

    seconds = parse_duration(timeout, "--timeout")
    handle = hold_job(job, store).handle
    before = handle.status()
    handle.cancel(cleanup_timeout=seconds)
    after = handle.status()
    if after not in (JobStatus.STOPPED, JobStatus.NOT_FOUND):
        raise Refusal(
            f"{handle.job_id} had already ended: {after}", ExitCode.NO, job_id=handle.job_id, status=str(after)
        )
    if as_json:
        print_json({"job_id": handle.job_id, "status": str(after), "was": str(before)})
    else:
        say(f"{handle.job_id} " + ("had stopped already" if before.is_terminal else "stopped"))


@jobs.command()
@_job_argument
@click.option("--force", is_flag=True, help="Cancel the job first if it hasn't ended.")
@json_option
def cleanup(job: str, store: str | None, force: bool, as_json: bool) -> None:
    """Remove a job's records, its value and its logs.

    A job that is lost, since nothing drives it any more, counts as ended. An output_dir of the job's own choice stays.
    """
    handle = hold_job(job, store).handle
    phase = handle.phase()
    before = phase.status
    if not before.is_terminal and not force and not (phase.is_lost and _stays_lost(handle)):
        message = f"{handle.job_id} is {before}: wait for it, or cancel it with --force"
        raise Refusal(message, ExitCode.NO, job_id=handle.job_id, status=str(before))
    handle.cleanup()
    if as_json:
        print_json({"job_id": handle.job_id, "status": str(JobStatus.NOT_FOUND), "was": str(before)})
    else:
        say(f"{handle.job_id} removed")


def _stays_lost(handle: JobHandle[Any]) -> bool:
    """Looks again as whoever waits does: a supervisor that was just started may not have found the driver yet."""
    try:
        handle.wait(_LOST_WITHIN)
    except JobLost:
        return True
    except TimeoutError:
        return False
    return True  # it has ended meanwhile
