"""`kinetic doctor`: checks this machine, and says what to mend."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from kinetic_ray import config
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.cli.exits import ExitCode
from kinetic_ray.cli.findings import CHECKS, Finding, home_of, is_stale, judge_socket_path
from kinetic_ray.cli.local import ask, open_jobs
from kinetic_ray.cli.output import json_option, print_json, print_table, say
from kinetic_ray.cli.privacy import check_secrets, check_values
from kinetic_ray.errors import KineticError
from kinetic_ray.ui.text import counted
from kinetic_ray.version import __version__

#: The longest name that a simulated host's socket has.
_LONGEST_NODE = "tpu-v5litepod-4096-99-15.r"


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this machine and say what to mend. Exit code 1 if something fails.

    Nothing is started or changed.
    """
    found = [*(check() for check in (*CHECKS, check_secrets, check_values)), *embedded()]
    failed = sum(finding.level == "fail" for finding in found)
    if as_json:
        print_json({"version": __version__, "ok": not failed, "findings": [asdict(finding) for finding in found]})
    else:
        rows = [(f.level, f.check, f.message) for f in found]
        print_table(("", "check", "found"), rows, color=config.color())
        for finding in found:
            if finding.fix:
                say(f"\n{finding.check}: {finding.fix}")
    if failed:
        click.get_current_context().exit(ExitCode.NO)


def embedded() -> Iterator[Finding]:
    """The checks of the embedded cluster."""
    runtime = runtime_of(config.home())
    yield judge_socket_path(runtime.sockets / _LONGEST_NODE)
    yield judge_supervisor(runtime.sock)
    yield _stale(runtime.root)


def judge_supervisor(sock: Path, timeout: float = 10.0) -> Finding:
    """Whether the supervisor, if one runs, answers and has its head up."""
    log = sock.with_name("supervisor.log")
    try:
        answer = ask("status", timeout)
    except KineticError as error:
        fix = f"see {log}; kinetic local stop --force ends it"
        return Finding("supervisor", "fail", str(error), fix)
    if answer is None:
        return Finding("supervisor", "ok", "no embedded cluster runs; the first job starts one")
    head = answer.get("head")
    if head == "failed":
        return Finding("supervisor", "fail", f"process {answer.get('pid')} runs, but its head failed", f"see {log}")
    return Finding("supervisor", "ok", f"process {answer.get('pid')}, head {head}, {counted(open_jobs(answer), 'job')}")


def _stale(own: Path) -> Finding:
    """Folders of clusters that were killed: a new one clears its own away, those of other homes stay."""
    prefix = own.name.partition("-")[0]
    dead = [folder for folder in sorted(own.parent.glob(f"{prefix}-????????")) if is_stale(folder)]
    if not dead:
        return Finding("runtime folders", "ok", "none left over")
    told = ", ".join(f"{folder} (of {home_of(folder) or 'an unknown home'})" for folder in dead)
    return Finding("runtime folders", "warn", f"left over by clusters that were killed: {told}", _clearing(own, dead))


def _clearing(own: Path, dead: list[Path]) -> str:
    """What to do about left-over folders: a cluster clears its own home's away, so nothing is removed by hand."""
    ways = ["the next job here clears this home's away"] if own in dead else []
    homes = sorted({home for folder in dead if folder != own and (home := home_of(folder))})
    ways += [
        f"the next job with KINETIC_HOME={shlex.quote(home)} and its Python clears that one away" for home in homes
    ]
    return "; ".join(ways) or "leave them: whose they are can't be told"
