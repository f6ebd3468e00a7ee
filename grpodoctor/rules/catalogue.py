"""All rules, discovered from the modules below `grpodoctor/rules/`, and selection by name.

The functions for selection take anything with a code, a name and former names, so that the
preflight's checks are selected in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, Protocol, TypeVar

import grpodoctor.rules
from grpodoctor.errors import ConfigError, name_some
from grpodoctor.rules.base import Rule
from grpodoctor.support.discovery import classes_below
from grpodoctor.support.suggestions import near_names


class Named(Protocol):
    """Something that users select by code, name or former name."""

    code: ClassVar[str]
    name: ClassVar[str]
    former_names: ClassVar[tuple[str, ...]]


NamedT = TypeVar("NamedT", bound=Named)


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule with its default thresholds, sorted by code.

    Raises:
        ValueError: if two rules share a code, a name or a former name.
    """
    return sorted_by_code([rule_class() for rule_class in _rule_classes()])


def _rule_classes() -> Iterator[type[Rule]]:
    # mypy wants a concrete class where a type is expected; `Rule` is abstract.
    return classes_below(grpodoctor.rules, Rule)  # type: ignore[type-abstract]


def sorted_by_code(items: Iterable[NamedT]) -> tuple[NamedT, ...]:
    """The items sorted by code.

    Raises:
        ValueError: if two items share a code, a name or a former name.
    """
    by_code = sorted(items, key=lambda item: item.code)
    identities = Counter(each for item in by_code for each in _identities(item))
    for identity, count in identities.items():
        if count > 1:
            raise ValueError(f"two rules or checks share the code or name {identity}")
    return tuple(by_code)


def _identities(item: Named) -> tuple[str, ...]:
    return (item.code, item.name, *item.former_names)


def select(
    items: Iterable[NamedT],
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    *,
    kind: str = "rule",
) -> tuple[NamedT, ...]:
    """Choose rules by code, prefix of a code (`ENT`), name or former name.

    Args:
        items: rules or checks to choose from.
        select: selectors to keep; an empty list keeps all.
        ignore: selectors to drop, applied after `select`.
        kind: noun for the error message.

    Raises:
        ConfigError: if a selector matches nothing.
    """
    candidates = tuple(items)
    kept = _matching(candidates, select, kind) if select else {item.code for item in candidates}
    kept -= _matching(candidates, ignore, kind)
    return tuple(item for item in candidates if item.code in kept)


def _matching(items: Sequence[Named], selectors: Sequence[str], kind: str) -> set[str]:
    codes: set[str] = set()
    for selector in selectors:
        matches = {item.code for item in items if _matches(item, selector)}
        if not matches:
            raise _unknown(selector, items, kind)
        codes |= matches
    return codes


def _matches(item: Named, selector: str) -> bool:
    wanted = selector.strip()
    is_prefix = bool(wanted) and item.code.startswith(wanted.upper())
    return is_prefix or wanted.lower() in (item.name, *item.former_names)


def find(items: Iterable[NamedT], code_or_name: str, *, kind: str = "rule") -> NamedT:
    """The item with this code, name or former name.

    Raises:
        ConfigError: if there is none; the message suggests the nearest.
    """
    candidates = tuple(items)
    wanted = code_or_name.strip()
    for item in candidates:
        if item.code == wanted.upper() or wanted.lower() in (item.name, *item.former_names):
            return item
    family = sorted(item.code for item in candidates if item.code[:3] == wanted.upper())
    if family:
        raise ConfigError(
            f"{wanted.upper()} is a family of {len(family)} {kind}s",
            remedy=f"name one of them: {name_some(family, most=12)}",
        )
    raise _unknown(code_or_name, candidates, kind)


def rule_of(code_or_name: str) -> Rule:
    """The rule with this code, name or former name.

    Raises:
        ConfigError: if there is none; the message suggests the nearest.
    """
    return find(all_rules(), code_or_name)


def _unknown(selector: str, items: Sequence[Named], kind: str) -> ConfigError:
    current = {each: item.name for item in items for each in (item.name, *item.former_names)}
    current |= {item.code: item.code for item in items}
    suggestions = dict.fromkeys(current[each] for each in near_names(selector, current))
    families = ", ".join(sorted({item.code[:3] for item in items}))
    return ConfigError(
        f"no {kind} matches {selector[:60]!r}",
        where=f"{kind} selection",
        remedy=f"did you mean {' or '.join(suggestions)}?"
        if suggestions
        else f"use a code, a name or a family: {families}",
    )
