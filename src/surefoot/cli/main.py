"""The program `surefoot`: finds the command, runs it and turns errors into messages and exit codes.

Results go to standard output, everything else to standard error. The module of a command is imported when the command
is called, so that `surefoot --help` starts fast.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from surefoot._version import __version__
from surefoot.cli.exit_codes import DONE, FAILED, INTERRUPTED, MEANINGS
from surefoot.cli.groups import Group
from surefoot.cli.messages import error_message, usage_message
from surefoot.engine.heap import keep_few_kernels
from surefoot.engine.threads import spin_briefly
from surefoot.errors import SurefootError

NAME = "surefoot"
COMPLETION_VARIABLE = "_SUREFOOT_COMPLETE"

COMMANDS = {
    "score": ("surefoot.cli.score", "Score the steps of solutions."),
    "bulk": ("surefoot.cli.bulk", "Score large files, and continue after a crash."),
    "search": ("surefoot.cli.search", "Find answers by test-time search with a language model."),
    "eval": ("surefoot.cli.evaluate", "Measure a model on a benchmark."),
    "compare": ("surefoot.cli.compare", "Put models side by side on the same solutions."),
    "calibrate": ("surefoot.cli.calibrate", "Fit a calibration, so that scores are probabilities."),
    "check": ("surefoot.cli.check", "Load a model and compare it with its published scores."),
    "models": ("surefoot.cli.models", "List the models that load by name."),
    "serve": ("surefoot.cli.serve", "Serve models over HTTP."),
    "label": ("surefoot.cli.label", "Label steps by rollouts, for training."),
    "train": ("surefoot.cli.train", "Train a process reward model."),
    "convert": ("surefoot.cli.convert", "Convert labelled steps between formats."),
}
"""Per command its module, which has the Typer application `app`, and its line in the help of `surefoot`."""


class LazyGroup(Group):
    """A group whose commands are only names until one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Imports the command that is called. A name that is not known is an error with suggestions."""
        name, _, rest = super().resolve_command(ctx, args)
        command = None if name is None else load_command(name)
        ctx.meta["command"] = command
        return name, command, rest


@cache
def load_command(name: str) -> Any:
    """Import a command and return its Click command."""
    command = get_command(import_module(COMMANDS[name][0]).app)
    command.name = name
    return command


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"{NAME} {__version__}")
        raise typer.Exit


def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Score every step of a solution with a process reward model (PRM)."""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


@cache
def _program() -> TyperGroup:
    codes = "\n".join(f"{code:>3}  {meaning}" for code, meaning in MEANINGS.items())
    app = typer.Typer(
        cls=LazyGroup,
        callback=_start,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=f"[bold]Exit codes[/bold]\n\n{codes}",
    )
    for name, (_, summary) in COMMANDS.items():
        app.command(name, help=summary)(_not_loaded)
    program = get_command(app)
    assert isinstance(program, TyperGroup)
    return program


def _not_loaded() -> None:
    """Stands for a command until `LazyGroup` loads it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    if sys.stderr is None:  # `2>&-`: messages must not end up among the results
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        print("surefoot: Standard output is closed. Redirect it to a file or to /dev/null.", file=sys.stderr)
        return FAILED
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale is: JSON is UTF-8
    logging.basicConfig(format="surefoot: %(message)s", level=logging.WARNING)
    spin_briefly()
    keep_few_kernels()
    context = None
    try:
        if COMPLETION_VARIABLE in os.environ:
            _program().main(prog_name=NAME)  # answers the shell and exits
        try:
            with _program().make_context(NAME, list(sys.argv[1:] if arguments is None else arguments)) as context:
                code: int | None = _program().invoke(context)
        except typer.Exit as left:
            code = left.exit_code
        sys.stdout.flush()
        return code or DONE
    except typer.TyperException as error:
        return _fail(usage_message(error))
    except SurefootError as error:
        command = context and context.meta.get("command")
        return _fail(error_message(error, command) if command else str(error))
    except BrokenPipeError:  # such as `| head`
        return _fail("The reader of the output closed it before everything was written.")
    except OSError as error:
        return _fail(f"Reading or writing failed: {error}")
    except KeyboardInterrupt:
        return _leave(INTERRUPTED)


def _fail(message: str) -> int:
    """Prints one line, without the escape codes that a file name may have."""
    from surefoot.display.terminal import printable

    print(f"surefoot: {printable(message.replace(chr(10), ' '))}", file=sys.stderr)
    return _leave(FAILED)


def _leave(code: int) -> int:
    """Drops buffered output that cannot be written. Python would try again at exit, and fail with its own code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
