"""Checks of what a reward function returns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Set, Sized
from typing import Any, NamedTuple

from grpodoctor.errors import DataError

_CORRECT = "correct"
_MAX_REWARD = 1e100
"""Largest magnitude of a reward: the square of a larger one soon overflows in a variance."""
_REMEDY = "return one finite number per completion, or a dict of such lists"


class RewardValues(NamedTuple):
    """The rewards of a batch of completions."""

    total: list[float]
    """One number per completion."""
    components: dict[str, list[float]]
    """The summands by name; empty if the function returned a plain list."""
    correct: list[bool | None]
    """Whether each completion is correct; None where the function does not say."""


def check_returned(returned: object, count: int) -> RewardValues:
    """The values that a function returned for a number of completions.

    A dict of lists holds components, whose sum is the reward; a component `correct` of booleans
    also marks the correct completions. An entry of a plain list may be a dict with `score` and
    `acc` or `correct`, as verl's functions return it.

    Raises:
        DataError: if they are not finite numbers, one per completion.
    """
    if isinstance(returned, Mapping):
        return _check_components(returned, count)
    entries = [_scored(entry) for entry in _entries(returned, count, "")]
    total = [_number(score, index, "") for index, (score, _) in enumerate(entries)]
    return RewardValues(total, {}, [correct for _, correct in entries])


def _check_components(returned: Mapping[Any, Any], count: int) -> RewardValues:
    if not returned:
        raise DataError("returned no components", remedy=_REMEDY)
    _check_names([str(name) for name in returned])
    columns = {
        str(name): _entries(values, count, f" in component {str(name)[:40]!r}")
        for name, values in returned.items()
    }
    components = {
        name: [
            _number(entry, index, f" in component {name[:40]!r}")
            for index, entry in enumerate(entries)
        ]
        for name, entries in columns.items()
    }
    total = [math.fsum(parts) for parts in zip(*components.values(), strict=True)]
    correct = columns.get(_CORRECT, [None] * count)
    return RewardValues(
        total, components, [entry if isinstance(entry, bool) else None for entry in correct]
    )


def _check_names(names: list[str]) -> None:
    """Refuse names that would be recorded under the same metric."""
    from grpodoctor.measure.responses import component_name

    recorded: dict[str, str] = {}
    for name in names:
        if not name.strip():
            raise DataError("returned a component without a name", remedy="name every component")
        plain = component_name(name)
        if plain in recorded:
            raise DataError(
                f"returned the components {recorded[plain][:40]!r} and {name[:40]!r}, which have "
                "the same name in the records",
                remedy="give them names that differ in more than / and _",
            )
        recorded[plain] = name


def _entries(values: object, count: int, which: str) -> list[Any]:
    plain = _native(values)
    if isinstance(plain, str | bytes | Mapping | Set) or not isinstance(plain, Iterable):
        raise DataError(f"returned {type(values).__name__}{which}", remedy=_REMEDY)
    finite = plain if isinstance(plain, Sized) else itertools.islice(plain, count + 1)
    entries = [_native(entry) for entry in finite]
    if len(entries) != count:
        raise DataError(
            f"returned {len(entries)} rewards for {count} completions{which}", remedy=_REMEDY
        )
    return entries


def _scored(entry: object) -> tuple[Any, bool | None]:
    """The score and the correctness of an entry, which may be a dict as verl's functions return."""
    if not isinstance(entry, Mapping):
        return entry, None
    if "score" not in entry:
        raise DataError("returned a dict without the key 'score'", remedy=_REMEDY)
    accuracy = _native(entry.get("acc", entry.get(_CORRECT)))
    return _native(entry["score"]), bool(accuracy) if isinstance(accuracy, int | float) else None


def _number(entry: object, index: int, which: str) -> float:
    if not isinstance(entry, int | float) or not abs(entry) <= _MAX_REWARD:
        raise DataError(f"returned {_shown(entry)} for completion {index}{which}", remedy=_REMEDY)
    return float(entry)


def _native(value: Any) -> Any:
    """Arrays, tensors and their scalars as Python's lists and numbers; other values unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value


def _shown(entry: object) -> str:
    if isinstance(entry, int | float) and math.inf > abs(entry) > _MAX_REWARD:
        return f"a number beyond {_MAX_REWARD:g}"  # it may have too many digits to print
    return repr(str(entry)[:40])
