"""Readers of facts that several keys of a config give together."""

from __future__ import annotations

from math import prod

from grpodoctor.frameworks.knob_mapping import Reader
from grpodoctor.frameworks.written_settings import Settings
from grpodoctor.vocabulary.knobs import Setting


def product_with(*keys: str, default: int | None = None, per: str = "", off: str = "") -> Reader:
    """A reader of a count times those of other keys.

    Args:
        keys: the other counts.
        default: the value of a key that the config lacks; None makes the product unknown.
        per: the key of a count to divide by; 1 if the config lacks it.
        off: a key with which the count has no meaning if it is true.
    """

    def read(setting: Setting, settings: Settings) -> Setting | None:
        counts = [setting, *(settings.get(key, default) for key in keys)]
        divisor = settings.get(per, 1) if per else 1
        if (off and settings.get(off) is True) or not all(map(_is_count, [*counts, divisor])):
            return None
        whole = prod(int(count or 1) for count in counts)
        return None if whole % int(divisor or 1) else whole // int(divisor or 1)

    return read


def lowest_with(*keys: str) -> Reader:
    """A reader of the smallest of several limits, as far as the config has them."""

    def read(setting: Setting, settings: Settings) -> Setting | None:
        limits = [value for value in (setting, *map(settings.get, keys)) if _is_count(value)]
        return min((int(limit or 1) for limit in limits), default=None)

    return read


def count_if(switch: str, *, factor: str = "") -> Reader:
    """A reader of a count that takes effect with a switch, times another one."""

    def read(setting: Setting, settings: Settings) -> Setting | None:
        if settings.get(switch) is not True:
            return None
        return product_with(*([factor] if factor else ()), default=1)(setting, settings)

    return read


def count_only(setting: Setting, _: Settings) -> Setting | None:
    """A count; -1 and 0 mean that another setting decides."""
    return setting if _is_count(setting) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
