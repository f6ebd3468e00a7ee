"""The error for a wrong command line, on one line like every other error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.support.suggestions import near_names

_MOST_NAMED = 3

_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)\.?", re.DOTALL)
"""What click and typer's copy of it say of words that no argument takes."""


def usage_error(error: Any, command: str) -> ConfigError:
    """Translate an error of click, or of typer's copy of it, whose class is not public.

    Args:
        error: the usage error.
        command: the command line up to the command's name.
    """
    remedy = f"see: {command} --help"
    extra = _EXTRA.fullmatch(error.format_message())
    if extra is not None:
        return ConfigError("unexpected argument", where=extra[1][:200], remedy=remedy)
    if not hasattr(error, "possibilities"):
        message = error.format_message().rstrip(".")
        return ConfigError(f"{message[:1].lower()}{message[1:]}", remedy=remedy)
    # click compares the dashes as well, so that it finds --verbose similar to --bogs
    name = error.option_name.lstrip("-")
    possible = [each for each in error.possibilities or () if near_names(name, [each.lstrip("-")])]
    if possible:
        remedy = f"did you mean {' or '.join(possible[:_MOST_NAMED])}?"
    return ConfigError("no such option", where=error.option_name[:200], remedy=remedy)


def top_level_error(error: Any, words: Sequence[str], commands: Iterable[str]) -> ConfigError:
    """The same for an option before the command, where only those of the program itself may be.

    Args:
        error: the usage error.
        words: the command line.
        commands: the names of all commands.
    """
    refusal = usage_error(error, "grpodoctor")
    named = next((word for word in words if word in commands), None)
    if named is None or not hasattr(error, "possibilities"):
        return refusal
    remedy = f"put options after the command: grpodoctor {named} ... {error.option_name}"
    return ConfigError(refusal.what, where=refusal.where, remedy=remedy)
