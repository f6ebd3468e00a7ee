"""All remedies, found by looking: a module in `grpodoctor/remedies/formulary/` is enough."""

from __future__ import annotations

import difflib
import importlib
import inspect
import itertools
import pkgutil
from collections.abc import Iterator
from functools import lru_cache

from grpodoctor.errors import ConfigError
from grpodoctor.remedies import formulary
from grpodoctor.remedies.base import Remedy


@lru_cache(maxsize=1)
def all_remedies() -> tuple[Remedy, ...]:
    """One instance of every remedy, by id.

    Raises:
        ValueError: if two remedies share an id.
    """
    remedies = sorted((kind() for kind in _remedy_classes()), key=lambda remedy: remedy.id)
    for one, other in itertools.pairwise(remedies):
        if one.id == other.id:
            raise ValueError(f"two remedies share the id {one.id}")
    return tuple(remedies)


def _remedy_classes() -> Iterator[type[Remedy]]:
    for found in pkgutil.iter_modules(formulary.__path__, f"{formulary.__name__}."):
        module = importlib.import_module(found.name)
        for kind in vars(module).values():
            # An imported class belongs to the module that defines it.
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and issubclass(kind, Remedy) and not inspect.isabstract(kind):
                yield kind


def remedy_of(remedy_id: str) -> Remedy:
    """The remedy with this id.

    Raises:
        ConfigError: if there is none; the message names the nearest.
    """
    wanted = remedy_id.strip().lower()
    known = {remedy.id: remedy for remedy in all_remedies()}
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    raise ConfigError(
        f"there is no remedy {remedy_id[:60]!r}",
        remedy=f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}",
    )
