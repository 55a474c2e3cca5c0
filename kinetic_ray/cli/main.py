"""The root command: imports only the module of the command that is called, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from kinetic_ray import config
from kinetic_ray.cli import streams
from kinetic_ray.cli.exits import MEANINGS, ExitCode, code_of, describe
from kinetic_ray.version import __version__

#: Command -> the module in this package that holds it under the same name, and its line in the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "accelerators": ("accelerators", "List the accelerators there are."),
    "config": ("config", "Show every setting, and where it comes from."),
    "doctor": ("doctor", "Check this machine and say what to mend."),
    "jobs": ("jobs", "List jobs; read, cancel and clean up one."),
    "local": ("local", "Look at the embedded cluster, take hosts away, stop it."),
    "profile": ("profile", "Name targets, and choose which one is used."),
    "run": ("run", "Run a Python script, here or on every host of an accelerator."),
    "secret": ("secret", "Keep secrets for jobs: tokens and passwords that hosts set as variables."),
    "ship": ("ship", "List what a call sends of your project, how big it is, and why."),
}

_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {int(code):>3}  {meaning}" for code, meaning in MEANINGS.items())


class Root(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature, here and below
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"kinetic_ray.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(COMMANDS)}."
            raise click.UsageError(f"no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Runs a command and exits with its code; the one place where every error ends."""
        given = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            code = super().main(given, *rest, **extra)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has seen enough, as in `| head`
            streams.drop_output()
            code = ExitCode.NO
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the edge of the process
            code = _report(streams.named(error), given)
        sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _report(error: BaseException, given: Sequence[str]) -> ExitCode:
    own = given[: given.index("--")] if "--" in given else given
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    click.echo(describe(error, as_json="--json" in own, debug=config.debug()), err=True)
    return code_of(error)


def _complete_profile(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from kinetic_ray.cli.completing import complete_profile

    return complete_profile(ctx, param, incomplete)


@click.command(
    cls=Root, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--profile", metavar="NAME", shell_complete=_complete_profile, help="Use this profile for this once.")
@click.version_option(__version__, prog_name="kinetic")
@click.pass_context
def root(ctx: click.Context, profile: str | None) -> None:
    """Run Python functions and scripts on slices of TPUs: simulated ones here, real ones on GKE."""
    if profile is not None:
        ctx.obj = config.environment()  # as it was: `kinetic config` tells the flag from the variable
        ctx.with_resource(config.changed_environment({"KINETIC_PROFILE": profile}))
        if ctx.invoked_subcommand != "profile":  # which may be there to make it
            config.profiles().find(profile, "--profile ")


def main() -> NoReturn:
    """The console script."""
    streams.open_missing()
    root.main(prog_name="kinetic")
