"""The error for a command that does not exist, with the command that was meant."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from grpodoctor.errors import ConfigError
from grpodoctor.support.suggestions import did_you_mean

_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("explain", "why", "docs", "page", "man"), "rule"),
        **dict.fromkeys(("diagnose", "doctor", "report", "analyze", "analyse", "inspect"), "check"),
        **dict.fromkeys(("fix", "treat", "cure", "advice"), "remedy"),
        **dict.fromkeys(("lint", "validate", "verify"), "preflight"),
        **dict.fromkeys(("monitor", "tail", "follow", "live"), "watch"),
        **dict.fromkeys(("ui", "web", "serve", "compare"), "dashboard"),
        **dict.fromkeys(("keys", "vocabulary"), "metrics"),
        **dict.fromkeys(("preset", "presets", "loss"), "recipe"),
    }
)
"""What users of other tools type, and the command that does it here."""


def unknown_command(words: Sequence[str], commands: Iterable[str]) -> ConfigError:
    """The error for a command line whose first word is no command.

    Args:
        words: the command line.
        commands: the names of all commands.
    """
    name = words[0]
    meant = _OTHER_NAMES.get(name.lower())
    if meant:
        remedy = f"use {shlex.join(['grpodoctor', meant, *words[1:]])}"
    elif _is_path(name):
        remedy = f"did you mean {shlex.join(['grpodoctor', 'check', *words])}?"
    else:
        remedy = did_you_mean(name, commands, "grpodoctor --help, which lists all commands")
    return ConfigError("no such command", where=name[:200], remedy=remedy)


def _is_path(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a path
        return False
