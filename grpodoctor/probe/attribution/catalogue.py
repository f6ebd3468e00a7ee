"""All causes, found by looking: a module in `causes/` is enough."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache

import grpodoctor.probe.attribution.causes
from grpodoctor.probe.attribution.base import Cause


@lru_cache(maxsize=1)
def all_causes() -> tuple[Cause, ...]:
    """One instance of every cause, by id."""
    package = grpodoctor.probe.attribution.causes
    found: list[Cause] = []
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for kind in vars(importlib.import_module(module.name)).values():
            own = inspect.isclass(kind) and kind.__module__ == module.name
            if own and issubclass(kind, Cause) and not inspect.isabstract(kind):
                found.append(kind())
    return tuple(sorted(found, key=lambda cause: cause.id))
