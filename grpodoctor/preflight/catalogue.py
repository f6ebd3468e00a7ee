"""All checks, found by looking: a module in `grpodoctor/preflight/checks/` is enough."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache

import grpodoctor.preflight.checks
from grpodoctor.errors import ConfigError
from grpodoctor.preflight.base import Check


@lru_cache(maxsize=1)
def all_checks() -> tuple[Check, ...]:
    """One instance of every check, by code.

    Raises:
        ValueError: if two share a code.
    """
    package = grpodoctor.preflight.checks
    found: dict[str, Check] = {}
    for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(entry.name)
        for kind in vars(module).values():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and issubclass(kind, Check) and not inspect.isabstract(kind):
                if kind.code in found:
                    raise ValueError(f"two checks share the code {kind.code}")
                found[kind.code] = kind()
    return tuple(found[code] for code in sorted(found))


def select(select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> tuple[Check, ...]:
    """Choose checks by code, prefix of a code (`DAT`), or name.

    Raises:
        ConfigError: if a selector matches no check, or no check is left.
    """
    kept = _matching(select) if select else {check.code for check in all_checks()}
    kept -= _matching(ignore)
    if not kept:
        raise ConfigError("no check is left to make", remedy="ignore fewer than are selected")
    return tuple(check for check in all_checks() if check.code in kept)


def _matching(selectors: tuple[str, ...]) -> set[str]:
    codes: set[str] = set()
    for selector in selectors:
        wanted = selector.strip()
        found = {
            check.code
            for check in all_checks()
            if (wanted and check.code.startswith(wanted.upper())) or check.name == wanted.lower()
        }
        if not found:
            known = ", ".join(sorted({check.code[:3] for check in all_checks()}))
            raise ConfigError(
                f"no check of the preflight matches {selector[:60]!r}",
                remedy=f"use a code, a name or a family: {known}",
            )
        codes |= found
    return codes
