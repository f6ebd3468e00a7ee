"""The table of semantics: what a framework's key means, as data.

A row says which canonical metric a key is, and all that its name does not say: unit, estimator,
denominator, mask, policies compared. Where a key changed its meaning with a version or means
something else under another loss, it has several rows; where it is not what it is called, the row
says so in `lie` and maps to no metric.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

Formula = Literal["as-is", "one-minus", "negated", "sum", "difference", "product", "ratio", "log"]

FORMULAS: Mapping[Formula, Callable[[Sequence[float]], float]] = {
    "as-is": lambda values: values[0],
    "one-minus": lambda values: 1 - sum(values),
    "negated": lambda values: -values[0],
    "sum": sum,
    "difference": lambda values: values[0] - sum(values[1:]),
    "product": math.prod,
    "ratio": lambda values: values[0] / values[1] if values[1] else math.nan,
    "log": lambda values: math.log(values[0]) if values[0] > 0 else math.nan,
}
"""How the canonical number is made of the logged ones, before the factor.

Whatever the numbers: not `math.fsum`, which raises where infinities meet and where a sum overflows.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """One row: what a key, or several together, mean."""

    key: str | tuple[str, ...]
    """As logged, without the framework's prefixes. `<name>` stands for any text without a slash,
    `<path>` for any text; what they match may stand in `metric` again. Several keys are joined by
    `formula`, and all of them must be logged."""
    metric: str = ""
    """Canonical; empty where the key must not be used for what its name says, or has no use."""
    formula: Formula = "as-is"
    factor: float = 1.0
    """Turns the logged unit into the canonical one: 0.01 for a percentage."""
    unit: str = ""
    """As logged, where it is not the canonical one."""
    over: str = ""
    """The denominator and the way to it: tokens of a micro-batch, then a mean of ranks."""
    estimator: str = ""
    mask: str = ""
    """Which tokens or responses are left out, and at which stage the rest was filtered."""
    policies: str = ""
    """Which policies it compares, as the vocabulary writes them."""
    when: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """Settings of the framework under which the row holds, each one of those given. A setting that
    nobody knows is taken for its default, where the framework's table has one."""
    since: str = ""
    """First version that means this; empty: always did."""
    until: str = ""
    """First version that does not mean it any more; empty: still does."""
    always: bool = False
    """Whether every row of every log since that version has the key: its absence dates a log."""
    structural_zero: str = ""
    """Why a zero under one update per batch says nothing; the reading is then not applicable."""
    lie: str = ""
    """What the name suggests and the number is not."""
    how: str = ""
    """How the framework is told to log it, where it does not by itself."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it needs."""
        return (self.key,) if isinstance(self.key, str) else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobMeaning:
    """Which canonical knob a setting is."""

    key: str
    """Dotted, as the framework writes it."""
    knob: str
    of: Mapping[Setting, Setting] | Callable[[Setting, Mapping[str, Setting]], Setting | None] = (
        field(default_factory=dict)
    )
    """Names translated; or a function of the setting and all others, None where nothing follows.
    Empty: the setting is the knob's own."""
    default: Setting | None = None
    """What the framework takes where the setting is not given; None if that is not certain."""


@dataclass(frozen=True)
class Framework:
    """A training framework: how to know its logs, and what they mean."""

    name: str
    """As `grpodoctor check --format` takes it."""
    title: str
    meanings: tuple[Meaning, ...]
    knobs: tuple[KnobMeaning, ...] = ()
    signature: tuple[str | tuple[str, ...], ...] = ()
    """RowKeys, as in `Meaning.key`, that no other framework logs; or several that are common names
    each, and this framework's where they all stand together."""
    prefixes: tuple[str, ...] = ()
    """What loggers put before every key: `train/`. Tried in this order, the bare key first."""
    row_keys: RowKeys = field(default_factory=RowKeys)
    """Under which keys its rows say step and time."""
    defaults: Mapping[str, Setting] = field(default_factory=dict)
    """What settings that `Meaning.when` asks for are, where a log does not say."""
    version_key: str = ""
    """Where a config or a row says the framework's version."""
    first_step: int = 1
    """What the framework calls its first training step."""
    hints: Callable[[Sequence[Mapping[str, float]]], Mapping[str, Setting]] | None = None
    """Settings that the first rows give away by their numbers, keys bare."""
    dumps: str = ""
    """How it is told to dump its rollouts; empty where it does so by itself, or cannot."""
    builds_on: tuple[str, ...] = ()
    """Frameworks whose keys it logs as well: where its own stand beside theirs, it is this one."""
    family: tuple[str, ...] = ()
    """Other programs that write the same log: Unsloth writes TRL's."""

    def bare(self, key: str) -> str:
        """The key without what a logger put before it, and with the table's separators."""
        if self.knows(key):
            return key
        for prefix in self.prefixes:
            if key.startswith(prefix) and self.knows(key[len(prefix) :]):
                return key[len(prefix) :]
        return self._respelled(key) or key

    def _respelled(self, key: str) -> str | None:
        """The key of the table that a spreadsheet or a database wrote in its own way.

        `actor_entropy` is `actor/entropy`, as long as the table has one such key and no more.
        """
        if "/" in key:
            return None
        plain = plainly(key)
        for prefix in ("", *(plainly(each) + "_" for each in self.prefixes)):
            rest = plain.removeprefix(prefix) if plain.startswith(prefix) else ""
            exact = self._by_plain_key.get(rest, ())
            if exact:
                return next(iter(exact)) if len(exact) == 1 else None
        matches = [
            (_vagueness(template), -len(template), filled(template, match))
            for pattern, template in self._plain_patterns
            if (match := pattern.fullmatch(plain))
        ]
        return min(matches)[2] if matches else None

    def knows(self, key: str) -> bool:
        """Whether the bare key stands in the table."""
        return any(pattern.fullmatch(key) for pattern in self._every_key)

    def signatures_in(self, keys: Collection[str]) -> list[str]:
        """What of the signature stands among bare keys; what counts together counts once."""
        alone = [key for key in keys if any(each.fullmatch(key) for each in self._signatures)]
        joint = [each for each in self.signature if not isinstance(each, str)]
        together = [" + ".join(each) for each in joint if all(key in keys for key in each)]
        return alone + together[:1]

    def meanings_of(self, key: str) -> list[tuple[Meaning, re.Match[str]]]:
        """The rows whose first key is the bare key, with what their placeholders matched.

        Rows that name it closely stand before those that name its whole family.
        """
        tried = [(each, first.fullmatch(key)) for first, each in self._by_first_key]
        found = [(each, match) for each, match in tried if match]
        closest = min((_vagueness(each.keys[0]) for each, _ in found), default=0)
        return [pair for pair in found if _vagueness(pair[0].keys[0]) == closest]

    @cached_property
    def _by_first_key(self) -> list[tuple[re.Pattern[str], Meaning]]:
        return [(pattern_of(each.keys[0]), each) for each in self.meanings]

    @cached_property
    def _every_key(self) -> list[re.Pattern[str]]:
        return [pattern_of(key) for each in self.meanings for key in each.keys]

    @cached_property
    def _signatures(self) -> list[re.Pattern[str]]:
        return [pattern_of(key) for key in self.signature if isinstance(key, str)]

    @cached_property
    def _by_plain_key(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for key in self._keys_of_table():
            if "<" not in key:
                found.setdefault(plainly(key), set()).add(key)
        return found

    @cached_property
    def _plain_patterns(self) -> list[tuple[re.Pattern[str], str]]:
        open_keys = {key for key in self._keys_of_table() if "<" in key}
        return [(pattern_of(key, plain=True), key) for key in sorted(open_keys) if _is_telling(key)]

    def _keys_of_table(self) -> Iterator[str]:
        return (key for each in self.meanings for key in each.keys)


_PLACEHOLDER = re.compile(r"<([a-z_]+)>")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def _vagueness(key: str) -> int:
    """How much of a key is left open: any path is more than any number of single parts."""
    parts = _PLACEHOLDER.findall(key)
    return sum(100 if part == "path" else 1 for part in parts)


def _is_telling(key: str) -> bool:
    """Whether enough of a key is fixed to know it again once its separators are gone."""
    return len(_PLACEHOLDER.sub("", key)) >= 5 and not key.startswith("<")


def plainly(text: str) -> str:
    """A key as it looks once every separator is an underscore."""
    return _SEPARATORS.sub("_", text.lower()).strip("_")


def pattern_of(key: str, *, plain: bool = False) -> re.Pattern[str]:
    """What matches a key of the table; its placeholders become groups.

    Args:
        key: as in `Meaning.key`.
        plain: match what `plainly` makes of the key.
    """
    parts = _PLACEHOLDER.split(key)
    if plain:
        parts[::2] = [_SEPARATORS.sub("_", part.lower()) for part in parts[::2]]
    text = "".join(
        re.escape(part) if index % 2 == 0 else f"(?P<{part}>{'.+' if part == 'path' else '[^/]+'})"
        for index, part in enumerate(parts)
    )
    return re.compile(text)


def filled(text: str, matched: re.Match[str]) -> str:
    """A metric, or another key of the row, with its placeholders as they were in the first key."""
    groups = matched.groupdict()
    return _PLACEHOLDER.sub(lambda hole: groups.get(hole[1], hole[0]), text)
