"""All rules, found by looking: a module in a folder of `grpodoctor/rules/` is enough."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import ModuleType

import grpodoctor.rules
from grpodoctor.errors import ConfigError
from grpodoctor.rules.base import Rule


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule with its default thresholds, by code.

    Raises:
        ValueError: if two rules share a code or a name; codes are never reused.
    """
    rules = sorted((kind() for kind in _rule_classes()), key=lambda rule: rule.code)
    for identity in ("code", "name"):
        _refuse_twins([getattr(rule, identity) for rule in rules], identity)
    return tuple(rules)


def _rule_classes() -> Iterator[type[Rule]]:
    for module in _rule_modules():
        for kind in vars(module).values():
            # An imported class belongs to the module that defines it.
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and issubclass(kind, Rule) and not inspect.isabstract(kind):
                yield kind


def _rule_modules() -> Iterator[ModuleType]:
    for family in pkgutil.iter_modules(grpodoctor.rules.__path__, "grpodoctor.rules."):
        if family.ispkg:
            package = importlib.import_module(family.name)
            for found in pkgutil.iter_modules(package.__path__, f"{family.name}."):
                yield importlib.import_module(found.name)


def _refuse_twins(identities: list[str], kind: str) -> None:
    twins = sorted({each for each in identities if identities.count(each) > 1})
    if twins:
        raise ValueError(f"two rules share the {kind} {twins[0]}")


def select(
    rules: Iterable[Rule], select: Sequence[str] = (), ignore: Sequence[str] = ()
) -> tuple[Rule, ...]:
    """Choose rules by code, prefix of a code (`ENT`), or name.

    Args:
        rules: what to choose from.
        select: selectors to keep; none keeps all.
        ignore: selectors to drop, after `select`.

    Raises:
        ConfigError: if a selector matches no rule.
    """
    pool = tuple(rules)
    kept = _matching(pool, select) if select else {rule.code for rule in pool}
    kept -= _matching(pool, ignore)
    return tuple(rule for rule in pool if rule.code in kept)


def _matching(rules: Sequence[Rule], selectors: Sequence[str]) -> set[str]:
    codes: set[str] = set()
    for selector in selectors:
        found = {rule.code for rule in rules if _matches(rule, selector)}
        if not found:
            raise _unknown(selector, rules)
        codes |= found
    return codes


def _matches(rule: Rule, selector: str) -> bool:
    wanted = selector.strip()
    prefix = bool(wanted) and rule.code.startswith(wanted.upper())
    return prefix or rule.name == wanted.lower()


def rule_of(code_or_name: str) -> Rule:
    """The rule with this code or name.

    Raises:
        ConfigError: if there is none; the message names the nearest.
    """
    wanted = code_or_name.strip()
    for rule in all_rules():
        if rule.code == wanted.upper() or rule.name == wanted.lower():
            return rule
    raise _unknown(code_or_name, all_rules())


def _unknown(selector: str, rules: Sequence[Rule]) -> ConfigError:
    known = [each for rule in rules for each in (rule.code, rule.name)]
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(selector.lower(), lowered, n=3, cutoff=0.5)
    families = ", ".join(sorted({rule.family for rule in rules}))
    names = ", ".join(lowered[each] for each in near)
    return ConfigError(
        f"no rule matches {selector[:60]!r}",
        where="rule selection",
        remedy=f"did you mean {names}?" if near else f"use a code, a name or a family: {families}",
    )
