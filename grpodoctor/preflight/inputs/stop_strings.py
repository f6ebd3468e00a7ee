"""The texts at which the run's config ends a response."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_STOP_KEY = re.compile(r"(?:^|_|\.)stop(?:_(?:strings?|str|sequences?|words?|texts?))?$")
_KEPT_KEY = "include_stop_str_in_output"
_DEEPEST = 8


def stop_strings(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The stop strings that a config sets, and that engines cut off; empty if they are kept.

    Args:
        settings: the config, nested or with dotted keys.
    """
    found: dict[str, None] = {}
    for key, value in _values(settings, _DEEPEST):
        if key.endswith(_KEPT_KEY) and value is True:
            return ()
        if _STOP_KEY.search(key):
            texts = value if isinstance(value, list | tuple) else [value]
            found |= dict.fromkeys(text for text in texts if isinstance(text, str) and text)
    return tuple(found)


def _values(settings: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        yield str(key), value
        if isinstance(value, Mapping) and depth:
            yield from _values(value, depth - 1)
