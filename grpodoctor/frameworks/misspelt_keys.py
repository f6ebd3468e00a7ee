"""Keys of a config that resemble a setting of the framework, and are none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

_LETTERS_PER_EDIT = 8
"""Letters of a name for each one that may differ, be forgotten or change places with another:
`local_rank` and `lora_rank` are two settings."""
_MIN_LETTERS = 8
_MOST_KEYS = 2000


def misspelt_keys(config: Mapping[str, Any], known: Collection[str]) -> dict[str, str]:
    """Keys of a config with the setting that they were meant to be.

    The meant setting is not in the config: names of two settings of one framework may resemble each
    other, and a config that has both means both.

    Args:
        config: a config with dotted keys.
        known: the keys of the framework's settings, as far as they are known.
    """
    missing = [key for key in known if key not in config and len(_name(key)) >= _MIN_LETTERS]
    unknown = [key for key in config if key not in known][:_MOST_KEYS]
    found: dict[str, str] = {}
    for key in unknown:
        near = [other for other in missing if _is_near(key, other)]
        if len(near) == 1:
            found[key] = near[0]
    return found


def _name(key: str) -> str:
    return key.rpartition(".")[2]


def _is_near(one: str, other: str) -> bool:
    """Whether two keys of one section differ by a slip, and not by a number or a single letter."""
    section, name = one.rpartition(".")[0], _name(one)
    most = len(name) // _LETTERS_PER_EDIT
    if section != other.rpartition(".")[0] or abs(len(one) - len(other)) > most:
        return False
    if len(name) < _MIN_LETTERS or any(map(str.isdigit, name + _name(other))):
        return False
    return not _has_other_word(name, _name(other)) and _edits(name, _name(other)) <= most


def _has_other_word(one: str, other: str) -> bool:
    """Whether a word stands in place of another, as in `min_prompt_length` for `max_...`.

    A slip leaves most letters of a word as they are.
    """
    pairs = list(zip(one.split("_"), other.split("_"), strict=False))
    if one.count("_") != other.count("_"):
        return False
    return any(2 * _edits(*pair) > max(map(len, pair)) for pair in pairs)


def _edits(one: str, other: str) -> int:
    """Letters to add, remove, replace or exchange with their neighbor."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, wanted in enumerate(other, 1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != wanted))
            is_exchange = row > 1 and column > 1 and one[row - 2] == wanted
            if is_exchange and other[column - 2] == letter:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        before, last = last, current
    return last[-1]
