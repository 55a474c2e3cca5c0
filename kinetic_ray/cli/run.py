"""`kinetic run`: a script, here as a driver or on every host of an accelerator as a job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinetic_ray import config
from kinetic_ray.cli.completing import complete_accelerator, complete_secret
from kinetic_ray.cli.output import json_option, note, print_json
from kinetic_ray.errors import JobError, UsageError

if TYPE_CHECKING:
    from kinetic_ray.jobs import JobHandle
    from kinetic_ray.options import OptionKwargs


class _Run(click.Command):
    """Tells whoever writes the script's options as ours where they belong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            told = f"{error.format_message()} The script's own arguments stand after '--'."
            raise click.UsageError(told, ctx) from None


@click.command(cls=_Run)
@click.argument("script", metavar="SCRIPT", type=click.Path())
@click.argument("args", nargs=-1, metavar="[-- ARGS...]", type=click.UNPROCESSED)
@click.option(
    "-a",
    "--accelerator",
    metavar="A",
    shell_complete=complete_accelerator,
    help="Run it on every host of this, e.g. tpu-v6e-16, as a job.",
)
@click.option("--num-slices", type=click.IntRange(min=1), help="So many slices, as one gang.")
@click.option("--hosts", type=click.IntRange(min=1), help="So many hosts of a cpu or GPU accelerator.")
@click.option("--timeout", metavar="SPAN", help="End the job after running so long, e.g. 12h.")
@click.option("--name", help="A name for the job.")
@click.option("--tag", "tags", multiple=True, help="A tag for the job; may be repeated.")
@click.option(
    "--capture-env",
    "capture_env_vars",
    multiple=True,
    metavar="NAME",
    help="Pass a variable on; may be repeated, PREFIX_* fits several.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_secret,
    help="Set a secret's variables; may be repeated.",
)
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and return; the job goes on.")
@json_option
def run(*, script: str, args: tuple[str, ...], detach: bool, as_json: bool, **given: Any) -> None:
    """Run a Python script, here or on every host of an accelerator.

    Without --accelerator the script is a driver: it runs in this interpreter, and the kinetic functions that it
    calls become jobs. Its exit code is passed on.

    With --accelerator the script itself is the job: its __main__ runs on every host, as one SPMD program. The leader's
    output is shown and the exit code is 1 if the job fails. Ctrl-C ends the waiting, not the job.

    The script's own arguments stand after "--".
    """
    options = {name: value for name, value in given.items() if value not in (None, ())}
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"{script}: no such script" + (" (it is a folder)" if path.is_dir() else ""))
    if "accelerator" in options:
        _run_job(script, args, options, detach=detach, as_json=as_json)
        return
    flags = {param.name: param.opts[-1] for param in click.get_current_context().command.params}
    stray = [flags[name] for name in options]
    stray += [flag for flag, is_given in (("--detach", detach), ("--json", as_json)) if is_given]
    if stray:
        raise click.UsageError(
            f"{', '.join(stray)}: only for a job, so with --accelerator. The script's own arguments stand after '--'"
        )
    _become(script, args)


def _become(script: str, args: tuple[str, ...]) -> None:
    """Runs the script in the place of this process: signals, terminal and exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, script, *args])


def _run_job(script: str, args: tuple[str, ...], options: dict[str, Any], *, detach: bool, as_json: bool) -> None:
    from kinetic_ray.api import submit_script

    checked: OptionKwargs = {**options}  # type: ignore[typeddict-item]  # checked, with a hint, by the call itself
    handle = submit_script(script, [*args], **checked)
    if not detach:
        note(f"{handle.job_id} runs {script} on {handle.accelerator}")
        _wait(handle, as_json=as_json)
    elif not as_json:
        click.echo(handle.job_id)
    if as_json:
        print_json({"job_id": handle.job_id, "status": str(handle.status()), "accelerator": handle.accelerator})


def _wait(handle: JobHandle[None], *, as_json: bool) -> None:
    """Waits with stages and the leader's log; with JSON standard output is kept for the document."""
    from kinetic_ray.cli.values import raised
    from kinetic_ray.ui import Subject, open_reporter

    out = sys.stderr if as_json else None
    subject = Subject(handle.job_id, handle.func_name, handle.accelerator)
    try:
        handle.follow(open_reporter(subject, out=out, color=config.color()))
    except JobError:
        raise
    except Exception as error:
        if str(handle.status()) == "FAILED":  # then it is the script's own exception, whatever its class
            raise raised(handle, error) from error
        raise
