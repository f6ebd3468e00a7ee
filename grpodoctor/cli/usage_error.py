"""The error for a wrong command line, on one line like every other error."""

from __future__ import annotations

from typing import Any

from grpodoctor.errors import ConfigError

_MOST_NAMED = 3


def usage_error(error: Any, command: str) -> ConfigError:
    """Translate an error of click, or of typer's copy of it, whose class is not public.

    Args:
        error: the usage error.
        command: the command line up to the command's name.
    """
    remedy = f"see: {command} --help"
    if (possible := getattr(error, "possibilities", None)) is None:
        message = error.format_message().rstrip(".")
        return ConfigError(f"{message[:1].lower()}{message[1:]}", remedy=remedy)
    if possible:
        remedy = f"did you mean {' or '.join(possible[:_MOST_NAMED])}?"
    return ConfigError("no such option", where=error.option_name[:200], remedy=remedy)
