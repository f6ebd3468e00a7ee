"""All remedies, discovered from the modules below `grpodoctor/remedies/`."""

from __future__ import annotations

import itertools
from functools import lru_cache

import grpodoctor.remedies
from grpodoctor.remedies.base import Remedy
from grpodoctor.support.discovery import classes_below
from grpodoctor.support.suggestions import as_spelled, check_name


@lru_cache(maxsize=1)
def all_remedies() -> tuple[Remedy, ...]:
    """One instance of every remedy, sorted by id.

    Raises:
        ValueError: if two remedies share an id.
    """
    classes = (found for found in classes_below(grpodoctor.remedies, Remedy) if found is not Remedy)
    remedies = sorted((remedy_class() for remedy_class in classes), key=lambda remedy: remedy.id)
    for one, other in itertools.pairwise(remedies):
        if one.id == other.id:
            raise ValueError(f"two remedies share the id {one.id}")
    return tuple(remedies)


def remedy_of(remedy_id: str) -> Remedy:
    """The remedy with this id or former id.

    Raises:
        ConfigError: if there is none; the message suggests the nearest ids.
    """
    wanted = remedy_id.strip().lower()
    by_id = {remedy.id: remedy for remedy in all_remedies()}
    former = {old: remedy.id for remedy in all_remedies() for old in remedy.former_ids}
    wanted = as_spelled(former.get(wanted, wanted), by_id)
    check_name(wanted, by_id, "remedy")
    return by_id[wanted]
