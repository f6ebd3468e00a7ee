"""All checks, discovered from the modules below `grpodoctor/preflight/checks/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import grpodoctor.preflight.checks
from grpodoctor.errors import ConfigError
from grpodoctor.preflight.base import Check
from grpodoctor.rules import catalogue
from grpodoctor.rules.base import Rule
from grpodoctor.support.discovery import classes_below


@lru_cache(maxsize=1)
def all_checks() -> tuple[Check, ...]:
    """One instance of every check, sorted by code.

    Raises:
        ValueError: if two checks share a code, a name or a former name.
    """
    return catalogue.sorted_by_code([check_class() for check_class in _check_classes()])


def _check_classes() -> Iterator[type[Check]]:
    # mypy wants a concrete class where a type is expected; `Check` is abstract.
    return classes_below(grpodoctor.preflight.checks, Check)  # type: ignore[type-abstract]


def select_checks_and_rules(
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    *,
    config_rules: Sequence[Rule],
) -> tuple[tuple[Check, ...], tuple[Rule, ...]]:
    """Choose among the checks and the rules about the configuration.

    Raises:
        ConfigError: if a selector matches nothing, or nothing is left.
    """
    candidates: list[Check | Rule] = [*all_checks(), *config_rules]
    chosen = catalogue.select(candidates, select, ignore, kind="preflight check")
    if not chosen:
        raise ConfigError(
            "--select and --ignore leave no check", remedy="ignore fewer checks than you select"
        )
    checks = tuple(item for item in chosen if isinstance(item, Check))
    return checks, tuple(item for item in chosen if isinstance(item, Rule))
