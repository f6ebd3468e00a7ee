"""All causes; a module below `causes/` registers itself."""

from __future__ import annotations

import inspect
from functools import lru_cache

import grpodoctor.probe.attribution.causes
from grpodoctor.probe.attribution.base import Cause
from grpodoctor.support.discovery import modules_below


@lru_cache(maxsize=1)
def all_causes() -> tuple[Cause, ...]:
    """One instance of every cause, by id."""
    causes: list[Cause] = []
    for module in modules_below(grpodoctor.probe.attribution.causes):
        for value in vars(module).values():
            defined_here = inspect.isclass(value) and value.__module__ == module.__name__
            if defined_here and issubclass(value, Cause) and not inspect.isabstract(value):
                causes.append(value())
    return tuple(sorted(causes, key=lambda cause: cause.id))
