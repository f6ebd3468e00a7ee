"""Errors for values that an option does not take, with the option that the user may have meant."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.support.suggestions import near_names

_OUTPUT_FORMAT = "output_format"
_NAMED_LOGS = ("log_format", "framework")
"""Parameters that name how a log is read or whose settings are printed."""


def with_output_file(arguments: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """The arguments with `-o FILE` as `--output FILE`, if the suffix of the file names a format.

    `-o` is the format of the report, but most programs take the file under this name.

    Args:
        arguments: what the user typed after the command.
        parameters: all parameters of the command.
    """
    changed = list(arguments)
    options = {each.name: each.opts for each in parameters}
    if "output" not in options or "-o" not in options.get(_OUTPUT_FORMAT, ()):
        return changed
    end = changed.index("--") if "--" in changed else len(changed)
    for place in range(end - 1):
        if changed[place] == "-o" and Path(changed[place + 1]).suffix.lower() in _by_suffix():
            changed[place] = options["output"][0]
    return changed


def _by_suffix() -> dict[str, Any]:
    """The formats that the suffix of a file stands for."""
    from grpodoctor.cli.output import FORMATS_BY_SUFFIX
    from grpodoctor.cli.run_output import CI_FORMATS_BY_SUFFIX

    return {**FORMATS_BY_SUFFIX, **CI_FORMATS_BY_SUFFIX}


def choice_error(
    parameter: Any, value: str, choices: Mapping[str, Sequence[str]], parameters: Sequence[Any]
) -> ConfigError:
    """The error for a value that is none of an option's choices.

    Args:
        parameter: the option, as typer describes it.
        value: what the user gave.
        choices: the choices of each parameter of the command that has some, by name.
        parameters: all parameters of the command.
    """
    own, options = choices[parameter.name], {each.name: each.opts[0] for each in parameters}
    remedy = ""
    if parameter.name == _OUTPUT_FORMAT:
        remedy = _file_remedy(value, own, options) or _log_remedy(value, options)
    others = [name for name, known in choices.items() if value in known and name in options]
    if not remedy and others:
        remedy = f"did you mean {options[others[0]]} {value}?"
    if not remedy:
        near = near_names(value, own)
        remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(own)}"
    names = " or ".join(sorted(parameter.opts, key=len, reverse=True))
    return ConfigError(f"{value[:60]!r} is not a value of {names}", remedy=remedy)


def check_log_name(
    parameter: Any, value: str, choices: Mapping[str, Sequence[str]], parameters: Sequence[Any]
) -> None:
    """Refuse an output format where a framework or the format of a log is expected.

    Args:
        parameter: the option.
        value: what the user gave.
        choices: the choices of each parameter of the command that has some, by name.
        parameters: all parameters of the command.

    Raises:
        ConfigError: if the value belongs to another option.
    """
    options = {each.name: each.opts[0] for each in parameters}
    if parameter.name not in _NAMED_LOGS or _is_name_for(parameter.name, value):
        return
    for name in ("log_format", "framework", _OUTPUT_FORMAT):
        is_other = name != parameter.name and name in options
        if is_other and (_is_name_for(name, value) or value in choices.get(name, ())):
            raise ConfigError(
                f"{value[:60]!r} is not a value of {options[parameter.name]}",
                remedy=f"did you mean {options[name]} {value}?",
            )


def _file_remedy(value: str, formats: Sequence[str], options: Mapping[str, str]) -> str:
    """How to write the file that was named instead of a format; empty if the value is no file."""
    suffix = Path(value).suffix.lower()
    if not suffix and "/" not in value:
        return ""
    file = shlex.quote(value)
    if "output" in options:
        return f"to write a file, use {options['output']} {file}"
    chosen = _by_suffix().get(suffix)
    output_format = chosen.value if chosen and chosen.value in formats else "FORMAT"
    return f"to write a file, use {options[_OUTPUT_FORMAT]} {output_format} > {file}"


def _log_remedy(value: str, options: Mapping[str, str]) -> str:
    """The option that takes a name of a framework or of a log format; empty if it is none."""
    names = [name for name in _NAMED_LOGS if name in options and _is_name_for(name, value)]
    return f"did you mean {options[names[0]]} {value}?" if names else ""


def _is_name_for(parameter: str, value: str) -> bool:
    """Whether the value names a framework, or, for the format of a log, a file format."""
    from grpodoctor.frameworks.registry import (
        configurable_frameworks,
        find_framework,
        logging_frameworks,
    )
    from grpodoctor.runs.log_formats.registry import log_format_named

    if parameter == "log_format":
        known = find_framework(value, logging_frameworks()) is not None
        return known or log_format_named(value) is not None
    if parameter == "framework":
        return (
            find_framework(value, (*logging_frameworks(), *configurable_frameworks())) is not None
        )
    return False
