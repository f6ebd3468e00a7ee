"""Changes to nested values: what a JSON, YAML or TOML file contains, and what it must not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Path = tuple[str | int, ...]


def odd_value(rng: random.Random) -> Any:
    """A value that its place does not expect."""
    return rng.choice(_ODD)(rng)


def changed(rng: random.Random, tree: Any) -> Any:
    """A copy of a tree with one to five changes."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.randint(1, 5)):
        places = list(_places(tree, ()))
        if not places:
            return odd_value(rng)
        *way, last = rng.choice(places)
        holder = tree
        for step in way:
            holder = holder[step]
        rng.choice(_CHANGES)(rng, holder, last)
    return tree


def _places(tree: Any, way: Path) -> list[Path]:
    if isinstance(tree, dict):
        inner = list(tree.items())
    elif isinstance(tree, list):
        inner = list(enumerate(tree))
    else:
        return []
    places: list[Path] = []
    for key, value in inner:
        places += [(*way, key), *_places(value, (*way, key))]
    return places


def _replace(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = odd_value(rng)


def _remove(_: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def _rename(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice((_odd_text(rng), f"{key}/x", str(key).upper(), ""))] = holder.pop(key)


def _repeat(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, list):
        holder[key:key] = [holder[key]] * rng.randint(1, 5)
    else:
        holder[f"{key}{rng.randrange(10)}"] = holder[key]


def _wrap(rng: random.Random, holder: Any, key: Any) -> None:
    wraps: tuple[Callable[[Any], Any], ...] = (
        lambda value: [value],
        lambda value: {"value": value},
        str,
        lambda value: [value] * 40,
    )
    holder[key] = rng.choice(wraps)(holder[key])


def _scale(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder[key], int | float):
        holder[key] = holder[key] * rng.choice((-1, 0, 1e-300, 1e300, 2**70, 0.5))
    else:
        _replace(rng, holder, key)


_CHANGES = (_replace, _replace, _replace, _remove, _rename, _repeat, _wrap, _scale)


def _odd_number(rng: random.Random) -> Any:
    return rng.choice((0, -1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324,
                       float("nan"), float("inf"), float("-inf"), -0.0, 0.1, 1e20))  # fmt: skip


def _odd_text(rng: random.Random) -> str:
    return rng.choice(("", " ", "nan", "Infinity", "1e999", "0x10", "1_000", "-", "true", "null",
                       "\ud800", "\0", "\n", "\r", "\x1b[31m", "\u202e", "ё" * 300, "x" * 5000,
                       "../../etc/passwd", "[bold]", "{0}", "%s", "<script>", "٣", "²", "9" * 5000,
                       "2024-01-01", "step", "reward/mean"))  # fmt: skip


def _deep(rng: random.Random) -> Any:
    value: Any = odd_value(rng) if rng.random() < 0.5 else 1
    for _ in range(rng.choice((3, 30, 200))):
        value = rng.choice(([value], {"a": value}))
    return value


def _wide(rng: random.Random) -> Any:
    count = rng.choice((0, 1, 50, 2000))
    return rng.choice(([0.5] * count, {f"k{n}": n for n in range(count)}, ["x"] * count))


_ODD: tuple[Callable[[random.Random], Any], ...] = (
    _odd_number,
    _odd_number,
    _odd_text,
    _odd_text,
    lambda rng: rng.choice((None, True, False)),
    _wide,
    _deep,
)
