"""All remedies, found by looking: a module in `grpodoctor/remedies/formulary/` is enough."""

from __future__ import annotations

import difflib
import importlib
import inspect
import itertools
import pkgutil
from collections.abc import Iterator, Mapping
from functools import lru_cache

from grpodoctor.errors import ConfigError
from grpodoctor.remedies import formulary
from grpodoctor.remedies.base import Remedy
from grpodoctor.vocabulary.knobs import Setting

UNTREATED: Mapping[str, Setting] = {
    "loss": "ppo_clip",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "sequence-mean",
    "advantage": "group",
    "correction": "none",
    "correction_cap": 3.0,
    "old_logprobs": "sampler",
    "dynamic_sampling": False,
    "overlong": "none",
    "overlong_buffer": 1,
    "kl_coefficient": 0.0,
    "learning_rate": 1e-6,
    "temperature": 1.0,
    "updates_per_batch": 16,
    "max_length": 4096,
    "sampler_sync_every": 8,
}
"""A run in which nothing is treated yet, to show what a remedy changes when there is no run."""


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
