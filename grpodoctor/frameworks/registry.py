"""The frameworks, found by their folders: each holds a `metrics` module."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import grpodoctor.frameworks as folder
from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.framework import Framework
from grpodoctor.support.discovery import modules_below
from grpodoctor.support.suggestions import did_you_mean

GENERIC = "generic"
"""The table of key names that people use in their own training scripts."""


@lru_cache(maxsize=1)
def all_frameworks() -> tuple[Framework, ...]:
    """Every framework, sorted by name."""
    frameworks: list[Framework] = [module.FRAMEWORK for module in modules_below(folder, "metrics")]
    return tuple(sorted(frameworks, key=lambda framework: framework.name))


def logging_frameworks() -> tuple[Framework, ...]:
    """The frameworks whose logs are translated; not the bundled trainer."""
    return tuple(framework for framework in all_frameworks() if framework.meanings)


def configurable_frameworks() -> tuple[Framework, ...]:
    """The frameworks whose settings are known; not the generic table of key names."""
    return tuple(framework for framework in all_frameworks() if framework.knobs.mappings)


def generic_framework() -> Framework:
    """The table of key names that people use in their own training scripts."""
    return framework_named(GENERIC)


def find_framework(name: str, frameworks: Sequence[Framework]) -> Framework | None:
    """The framework with a name or alias; case does not matter, and `_` stands for `-`."""
    wanted = name.strip().lower().replace("_", "-")
    return next((known for known in frameworks if wanted in (known.name, *known.aliases)), None)


def framework_named(
    name: str,
    option: str = "--format",
    *,
    among: Sequence[Framework] | None = None,
    file_formats: Sequence[str] = (),
) -> Framework:
    """The framework with a name or alias.

    Args:
        name: as the user wrote it.
        option: the option that holds the name, for the error message.
        among: the frameworks to choose from; those whose logs are translated if None.
        file_formats: further valid values of the option, for the error message.

    Raises:
        ConfigError: if the name is unknown; the message suggests the nearest names.
    """
    frameworks = logging_frameworks() if among is None else among
    framework = find_framework(name, frameworks)
    if framework is None:
        names = [name for known in frameworks for name in (known.name, *known.aliases)]
        raise ConfigError(
            f"unknown {option.lstrip('-')} {name[:60]!r}",
            where=option,
            remedy=did_you_mean(name, [*names, *file_formats], _choices(frameworks, file_formats)),
        )
    return framework


def _choices(frameworks: Sequence[Framework], file_formats: Sequence[str]) -> str:
    """What the option takes, the frameworks first."""
    names = ", ".join(sorted(framework.name for framework in frameworks))
    if not file_formats:
        return f"one of {names}"
    return f"a framework ({names}) or a file format ({', '.join(sorted(file_formats))})"


def configurable_framework_named(name: str, option: str = "--framework") -> Framework:
    """The framework with a name or alias whose settings are known.

    Raises:
        ConfigError: if there is none; the message suggests the nearest names.
    """
    return framework_named(name, option, among=configurable_frameworks())
