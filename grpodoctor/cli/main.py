"""The command line: one lazily imported file per command.

The module `grpodoctor/cli/commands/check.py` holds the command `check` as a function, with its
options as typer annotations and its help as the docstring.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from grpodoctor import __version__
from grpodoctor.errors import GrpodoctorError, InputError

COMMANDS = {
    "demo": "Train a model that falls ill, treat it, and leave a report behind.",
    "preflight": "Check what can be known of a run before it costs anything.",
    "train": "Train a language model with GRPO and record its health.",
    "export": "Write a trained model as a directory that any engine loads.",
    "watch": "Follow a live run: its vitals, its findings, its treatment.",
    "check": "Diagnose a run from what it left on disk, in any framework.",
    "probe": "Measure whether sampler and learner agree, and say why not.",
    "metrics": "List the metrics, or what a framework's keys mean.",
    "rule": "List the rules, or print the manual page of one.",
    "remedy": "List the remedies, or print the page of one.",
    "formulary": "List the trainer's variants, or print the page of one.",
}
"""Name and first line of help: `--help` prints them without importing the commands."""

_INTERRUPTED = 130
_BROKEN_PIPE = 141
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _LazyCommands(TyperGroup):
    """Imports a command when it is called, and turns what ends it into an exit code.

    The signatures take `Any` because typer carries its own copy of click in some versions.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            self.commands[args[0]] = _load(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except GrpodoctorError as error:
            _complain(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            _abandon_stdout()
            raise typer.Exit(_BROKEN_PIPE) from None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _abandon_stdout()
            full = InputError(
                f"cannot write: {error.strerror}",
                where=str(error.filename or "standard output"),
                remedy="make room",
            )
            _complain(full)
            raise typer.Exit(full.exit_code) from None


def _load(name: str) -> Any:
    module = import_module(f"grpodoctor.cli.commands.{name}")
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name)(getattr(module, name))
    return get_command(single)


def _complain(error: GrpodoctorError) -> None:
    """Print an error as one harmless line on stderr."""
    from grpodoctor.support.safe_text import plain

    print(f"error: {plain(str(error))}", file=sys.stderr)


def _abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"grpodoctor {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it, exit."),
    ] = False,
) -> None:
    """Measure, diagnose and treat the reinforcement learning of language models."""


def _placeholder() -> None:
    """Stands for a command until it is called."""


app = typer.Typer(
    cls=_LazyCommands,
    name="grpodoctor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(_root)
for _name, _summary in COMMANDS.items():
    app.command(_name, help=_summary)(_placeholder)


def main() -> None:
    """Entry point of the `grpodoctor` program."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the caller closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open to the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()
