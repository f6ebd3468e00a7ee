"""Readers of facts that several keys of a config give together."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeGuard

from grpodoctor.frameworks.knob_mapping import Reader
from grpodoctor.frameworks.written_settings import Settings
from grpodoctor.vocabulary.knobs import Setting


def product_with(*keys: str, default: int | None = None, per: Sequence[str] = ()) -> Reader:
    """A reader of a count times those of other keys.

    Args:
        keys: the other counts.
        default: the value of a key that the config lacks; None makes the product unknown.
        per: the keys, by version, of a count to divide by; 1 if the config lacks them.
    """

    def read(setting: Setting, settings: Settings) -> Setting | None:
        counts = [setting, *(settings.get(key, default) for key in keys)]
        known = [count for count in counts if is_count(count)]
        whole, divisor = prod(known), largest_count(settings, per)
        return whole // divisor if len(known) == len(counts) and not whole % divisor else None

    return read


def lowest_with(*keys: str) -> Reader:
    """A reader of the smallest of several limits, as far as the config has them."""

    def read(setting: Setting, settings: Settings) -> Setting | None:
        return min(filter(is_count, (setting, *map(settings.get, keys))), default=None)

    return read


def largest_count(settings: Settings, keys: Sequence[str]) -> int:
    """The largest of several counts, as far as the config has them; 1 if it has none."""
    return max(filter(is_count, map(settings.get, keys)), default=1)


def count_only(setting: Setting, _: Settings) -> Setting | None:
    """A count; -1 and 0 mean that another setting decides."""
    return setting if is_count(setting) else None


def is_count(value: object) -> TypeGuard[int]:
    """Whether a setting is a positive whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
