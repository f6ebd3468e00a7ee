"""The command line: one lazily imported file per command.

The module `grpodoctor/cli/commands/check.py` holds the command `check` as a function, with its
options as typer annotations and its help as the docstring. Commands that print pages are in
`commands/catalogue`.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from grpodoctor import __version__
from grpodoctor.cli.help_text import describe, reflowed, without_negative_flags
from grpodoctor.errors import ConfigError, GrpodoctorError, InputError

COMMANDS = {
    "check": "Diagnose a run from its logs and rollout dumps.",
    "watch": "Follow a live run: show its vitals, findings and treatments.",
    "dashboard": "Show runs in the browser: diagnosis, charts, rollouts, comparisons.",
    "attach": "Print the lines that connect a training to grpodoctor.",
    "mcp": "Serve runs to agents over the Model Context Protocol.",
    "snapshot": "Show findings, vitals, worst responses and settings around a step.",
    "probe": "Compare sampler and learner on the same tokens, and find the cause of a gap.",
    "preflight": "Check model, data, reward and engines before a run starts.",
    "train": "Train a language model with GRPO and record its vitals.",
    "demo": "Train a model with a planted fault, treat it live, and write a report.",
    "trial": "Train one trial: diseased, treated and healthy runs from the same seeds.",
    "trials": "Train diseased, treated and healthy runs, and measure each rule and remedy.",
    "export": "Export a trained model as a directory that any engine can load.",
    "verbalize": "Ask a model for several responses per prompt with their probabilities.",
    "rule": "List the rules and preflight checks, or print the page of one.",
    "remedy": "List the remedies, or print the page of one remedy.",
    "recipe": "List losses, advantages, corrections and presets, or print the page of one.",
    "metrics": "List the metrics, or what a framework's log keys mean.",
}
"""Name and summary of each command; `--help` prints them without importing the commands."""

_CATALOGUE = ("rule", "remedy", "recipe", "metrics")

FORMER_NAMES = {"formulary": "recipe"}
"""Former names of commands; they still work."""

_TEXTS = (str, str | None, list[str], list[str] | None)
"""Types of parameters whose values need no conversion."""

_PATHS = (Path, Path | None)
_TEXTS_WITH_PATHS = frozenset({"paths", "run", "model"})
"""Text parameters that take a path or something else: an address, standard input, a process."""

_LOG_NAMES = frozenset({"log_format", "framework"})
"""Text parameters that name a framework or the format of a log."""

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The error of a wrong command line, of click or of typer's copy of it."""

_COLLECT_EVERY = 100_000
"""Objects created between two runs of the garbage collector; more than `check` of a log creates."""
_NARROWEST = 20
"""Least width that errors are wrapped at."""
_DEFECT = 3
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_SYSTEM = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOLCK)
"""Faults of the machine, which any call can meet."""


class _FewConversions:
    """Makes the parameters of a command convert only values that need it.

    For each conversion, typer imports pydantic and builds a validator, even for an option that is
    not given. This takes a third of the time of a short command.
    """

    texts: frozenset[str] = frozenset()
    """Parameters that take text, which needs no conversion."""
    paths: frozenset[str] = frozenset()
    """Parameters that take paths."""
    choices: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Values of the parameters that take one of a few."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "-o" in args:
            from grpodoctor.cli.misplaced_values import with_output_file

            args = with_output_file(args, self.params)  # type: ignore[attr-defined]  # a mixin of commands
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # a mixin of commands
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # a mixin of commands
        for parameter in parameters:
            if "process_value" not in vars(parameter):
                parameter.process_value = self._processor(parameter)
                describe(parameter)
        return parameters

    def _processor(self, parameter: Any) -> Callable[[Any, Any], Any]:
        convert, is_text = parameter.process_value, parameter.name in self.texts
        is_path = parameter.name in self.paths
        several = parameter.multiple or parameter.nargs == -1

        def process(ctx: Any, value: Any) -> Any:
            source = ctx.get_parameter_source(parameter.name)
            is_default = source is not None and source.name == "DEFAULT"
            is_missing = value is None or value == ()
            if is_path and not is_default:
                _refuse_empty_path(parameter, value)
            if not (is_missing or is_default):
                self._refuse_wrong_choice(parameter, value)
            if (is_missing and parameter.required) or not (is_missing or is_default or is_text):
                return _converted(convert, ctx, value)
            if several:
                value = list(value or ())
            return parameter.callback(ctx, parameter, value) if parameter.callback else value

        return process

    def _refuse_wrong_choice(self, parameter: Any, value: Any) -> None:
        """Refuse a value that is none of a parameter's choices, or that belongs to another option.

        Raises:
            ConfigError: if it is; the message names the option that takes the value.
        """
        choices: tuple[str, ...] | None = self.choices.get(parameter.name)
        if choices is not None and value not in choices:
            from grpodoctor.cli.misplaced_values import choice_error

            raise choice_error(parameter, value, self.choices, self.params)  # type: ignore[attr-defined]  # a mixin of commands
        if parameter.name in _LOG_NAMES:
            from grpodoctor.cli.misplaced_values import check_log_name

            check_log_name(parameter, value, self.choices, self.params)  # type: ignore[attr-defined]  # a mixin of commands


def _converted(convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Convert a value as typer does; the reason of an error is in plain words."""
    try:
        return convert(ctx, value)
    except typer.BadParameter as error:
        from grpodoctor.support.validation_reasons import plain_reason

        error.message = plain_reason(error.message)
        raise


def _refuse_empty_path(parameter: Any, value: Any) -> None:
    """Refuse the path `''`, which an unset shell variable leaves; it would be the current folder.

    Raises:
        ConfigError: if a path is empty.
    """
    if value == "" or (isinstance(value, tuple) and "" in value):
        is_option = parameter.param_type_name == "option"
        where = parameter.opts[0] if is_option else parameter.name.upper()
        raise ConfigError(
            "the path is empty", where=where, remedy="pass a path, or . for the current directory"
        )


class _Command(_FewConversions, TyperCommand):
    """A command of the program."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        without_negative_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


class _LazyCommands(_FewConversions, TyperGroup):
    """Imports a command when it is called, and maps exceptions to exit codes.

    The signatures take `Any` because some versions of typer contain their own copy of click.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:  # prints the help
            return super().parse_args(ctx, args)
        words = list(args)  # click empties the list
        try:
            return super().parse_args(ctx, args)
        except _USAGE_ERROR as error:
            from grpodoctor.cli.usage_error import top_level_error

            refusal = top_level_error(error, words, COMMANDS)
            _complain(refusal)
            raise typer.Exit(refusal.exit_code) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = FORMER_NAMES.get(args[0], args[0])
        args = [name, *args[1:]]
        if name in COMMANDS:
            self.commands[name] = _load(name)
        elif not name.startswith("-"):
            from grpodoctor.cli.unknown_command import unknown_command

            raise unknown_command(args, COMMANDS)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except _USAGE_ERROR as error:
            from grpodoctor.cli.usage_error import usage_error

            refusal = usage_error(error, f"{ctx.command_path} {ctx.invoked_subcommand}")
            _complain(refusal)
            raise typer.Exit(refusal.exit_code) from None
        except GrpodoctorError as error:
            _complain(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            _abandon_stdout()
            raise typer.Exit(_BROKEN_PIPE) from None


def _machine_fault(error: Exception) -> InputError | None:
    """The error for a fault of the machine; None if it may be a defect of this program."""
    if isinstance(error, MemoryError):
        return InputError("not enough memory", remedy="free memory and run the command again")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        remedy = "raise the limit of processes (ulimit -u)"
        return InputError("the system cannot start another thread", remedy=remedy)
    if not isinstance(error, OSError):
        return None
    where = str(error.filename or "standard output")
    if error.errno in _NO_ROOM:
        return InputError(f"cannot write: {error.strerror}", where=where, remedy="free disk space")
    if error.errno in _NO_NAME:
        return InputError(
            f"the path cannot be used: {error.strerror}",
            where=where[:200],
            remedy="check the path",
        )
    if error.errno in _NO_SYSTEM:
        return InputError(
            f"the system refuses a file or a process: {error.strerror}",
            where=where,
            remedy="check the disk and the limits of this user (ulimit -a)",
        )
    return None


def command_function(name: str) -> Callable[..., Any]:
    """The function of a command."""
    folder = "catalogue." if name in _CATALOGUE else ""
    function: Callable[..., Any] = getattr(
        import_module(f"grpodoctor.cli.commands.{folder}{name}"), name
    )
    return function


def _load(name: str) -> Any:
    function = command_function(name)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, cls=_Command)(function)
    command: Any = get_command(single)
    command.help = reflowed(command.help or "")
    hints = get_type_hints(function)
    command.texts = frozenset(name for name, hint in hints.items() if hint in _TEXTS)
    named = {name for name, hint in hints.items() if hint in _PATHS}
    command.paths = named | (command.texts & _TEXTS_WITH_PATHS)
    choices = {name: _choices_of(hint) for name, hint in hints.items()}
    command.choices = {name: values for name, values in choices.items() if values}
    return command


def _choices_of(hint: Any) -> tuple[str, ...]:
    """The values of an enumeration, or of an optional one; none for other types."""
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)]
    enumerations = [kind for kind in kinds if issubclass(kind, StrEnum)]
    return tuple(enumerations[0]) if enumerations else ()


def _complain(error: GrpodoctorError) -> None:
    """Print an error on stderr, without control characters: as one line, wrapped on a terminal."""
    from grpodoctor.support.safe_text import plain

    text = f"error: {plain(str(error))}"
    if sys.stderr.isatty():
        from shutil import get_terminal_size
        from textwrap import fill

        width = max(get_terminal_size().columns, _NARROWEST)
        text = fill(text, width, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr)


def _report_defect(error: Exception) -> None:
    """Print a defect of this program as one line; the traceback goes to a file."""
    import tempfile
    import traceback

    from grpodoctor.errors import GrpodoctorError
    from grpodoctor.support.defects import defect_of

    what, where = defect_of(error)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="grpodoctor-defect-", suffix=".txt", delete=False
        ) as file:
            file.write("".join(traceback.format_exception(error)))
        remedy = f"please report it with {file.name}"
    except OSError:
        remedy = "please report it"
    _complain(GrpodoctorError(what, where=where, remedy=remedy))


def _abandon_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"grpodoctor {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Find out what is wrong with a GRPO run, and fix it."""


def _placeholder() -> None:
    """Placeholder of a command that is not loaded yet."""


app = typer.Typer(
    cls=_LazyCommands,
    name="grpodoctor",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(_root)
for _name, _summary in COMMANDS.items():
    app.command(_name, help=_summary)(_placeholder)


def _open_streams() -> None:
    """Replace closed streams, and characters that a stream cannot encode.

    A stream without memory to be changed is broken, so stderr, which encodes everything, is not.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the caller closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open to the end
        elif hasattr(stream, "reconfigure") and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _show_unraisable(unraisable: Any) -> None:
    """Report errors that Python cannot raise; without memory it cannot even end a generator."""
    if not issubclass(unraisable.exc_type, MemoryError):
        sys.__unraisablehook__(unraisable)


def main() -> None:
    """Entry point of the `grpodoctor` program."""
    # Imports create many objects and hardly any garbage. With the default of 700, the collector
    # takes a fifth of the time of a short command.
    gc.set_threshold(_COLLECT_EVERY)
    sys.unraisablehook = _show_unraisable
    try:
        _open_streams()
        app()
    except Exception as error:  # noqa: BLE001 - the last resort: a defect has a separate exit code
        fault = _machine_fault(error)
        if fault is None:
            _report_defect(error)
            sys.exit(_DEFECT)
        _abandon_stdout()
        _complain(fault)
        sys.exit(fault.exit_code)
    finally:
        # The interpreter searches all objects for garbage three times before it exits, which takes
        # another sixth of the time of a short command.
        gc.freeze()
