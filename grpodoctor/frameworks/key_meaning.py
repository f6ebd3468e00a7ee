"""What the keys of a framework's log mean, as rows of a table.

A row names the canonical metric that a key holds and states what the key's name does not: unit,
estimator, denominator, mask and the policies compared. A key has several rows if its meaning
changed with a version or depends on the loss. A key that does not hold what its name suggests
states so in `caveat`; it maps to no metric if it holds none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from operator import itemgetter
from typing import Generic, Literal, TypeVar

from grpodoctor.vocabulary.knobs import Setting

_Item = TypeVar("_Item")

Formula = Literal[
    "as-is", "one-minus", "plus-one", "negated", "sum", "difference", "product", "ratio", "share",
    "log", "at-limit", "with-filtered", "zero", "explained",
]  # fmt: skip

FORMULAS: Mapping[Formula, Callable[[Sequence[float]], float]] = {
    "as-is": lambda values: values[0],
    "one-minus": lambda values: 1 - sum(values),
    "negated": lambda values: -values[0],
    "sum": sum,
    "difference": lambda values: values[0] - sum(values[1:]),
    "product": math.prod,
    "plus-one": lambda values: values[0] + 1,
    "ratio": lambda values: values[0] / values[1] if values[1] else math.nan,
    "share": lambda values: values[0] / rest if (rest := sum(values[1:])) else math.nan,
    "at-limit": lambda values: values[0] if values[1] >= values[-1] else 0.0,
    "with-filtered": lambda values: (
        (values[0] * values[-1] + values[1]) / all_prompts
        if (all_prompts := values[-2] + values[-1])
        else math.nan
    ),
    "zero": lambda _: 0.0,
    "explained": lambda values: (
        1 - 2 * values[0] / values[1] / values[1] if values[1] else math.nan
    ),
    "log": lambda values: math.log(values[0]) if values[0] > 0 else math.nan,
}
"""How the canonical value follows from the logged ones, before the factor.

`share` is the first value over the sum of the others. `at-limit` is the share of responses that are
as long as the longest one; it is zero if the longest one is shorter than the limit.
`with-filtered` extends a share among the kept prompts to all prompts, given the numbers of filtered
prompts that count in full, of all filtered ones and of kept ones. `explained` is the share of the
variance that half a mean squared error leaves explained, given the standard deviation.

They must accept any numbers. `math.fsum` raises if infinities meet or a sum overflows.
"""

RATIO_IS_ONE = (
    "with one update per batch the old log-probabilities are the learner's own, so every "
    "importance ratio is 1"
)
"""Why clip fractions and KL to the old policy are zero by construction."""


@dataclass(frozen=True, slots=True)
class KeyMeaning:
    """One row: what a key, or several keys together, mean."""

    key: str | tuple[str, ...]
    """As logged, without the logger's prefix. `<name>` stands for any text without a slash,
    `<path>` for any text, `<k>` for a number; `metric` may use the same placeholders. Several keys
    are combined by `formula`, and all of them must be logged."""
    metric: str = ""
    """Canonical metric; empty if the key holds none."""
    _: KW_ONLY
    formula: Formula = "as-is"
    knob: str = ""
    """Canonical knob whose value is the formula's last operand; without it the row is not used."""
    adds: bool = False
    """The values of all keys that match the row, and of other such rows of the metric, are added:
    counts for each value of the reward."""
    zero_is_absent: bool = False
    """Whether a zero means that there was nothing to average."""
    nan_is_absent: bool = False
    """Whether NaN means that there was nothing to average, instead of a broken value."""
    factor: float = 1.0
    """Converts the logged unit to the canonical one: 0.01 for a percentage."""
    unit: str = ""
    """The logged unit, if it differs from the canonical one."""
    over: str = ""
    """The denominator and the order of averaging: tokens of a micro-batch, then ranks."""
    estimator: str = ""
    mask: str = ""
    """Tokens or responses that are left out, and the stage at which the rest was filtered."""
    policies: str = ""
    """The policies compared, in the notation of the vocabulary."""
    when: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """The framework's settings under which the row holds; all of them must match. An unknown
    setting has its default value, if the framework's table gives one."""
    since: str = ""
    """First version with this meaning; empty if it always had it."""
    until: str = ""
    """First version without this meaning; empty if the latest version has it."""
    always: bool = False
    """Whether every log since that version has the key, so that its absence dates a log."""
    structural_zero: str = ""
    """Why a zero carries no information with one update per batch; the reading is then not
    applicable."""
    otherwise: str = ""
    """Canonical metric if a value is out of the metric's range: a reward is logged as accuracy."""
    caveat: str = ""
    """How the value differs from what the key's name suggests."""
    named_by_user: bool = False
    """Whether the user's code names what the placeholder stands for: common names count."""
    how_to_log: str = ""
    """The setting that makes the framework log the key, if it does not by default."""

    @property
    def is_plain(self) -> bool:
        """Whether the logged number is the value of the metric, whatever it is."""
        has_exception = self.structural_zero or self.zero_is_absent or self.nan_is_absent
        return self.is_plain_unless_zero and not has_exception

    @property
    def is_plain_unless_zero(self) -> bool:
        """Whether the logged number is the value of the metric if it is not zero."""
        converts = self.formula != "as-is" or self.factor != 1 or self.knob or self.adds
        return not (converts or self.otherwise)

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys of the row."""
        return (self.key,) if isinstance(self.key, str) else self.key


def without_metric(*keys: str) -> tuple[KeyMeaning, ...]:
    """Rows for keys that the framework logs and no metric corresponds to."""
    return tuple(KeyMeaning(key) for key in keys)


class SharedRows(Iterable[KeyMeaning]):
    """Rows that differ in little but their keys; each is made when it is asked for.

    The table of common names has twelve thousand keys with two hundred meanings. Making a row of
    each takes longer than reading a log.

    Args:
        meanings: a row for each first key. A row of another key lends its metric, formula,
            denominator and caveat to a key of its own.
    """

    def __init__(self, meanings: Mapping[str, KeyMeaning]) -> None:
        self._meanings = dict(meanings)

    def items(self) -> ItemsView[str, KeyMeaning]:
        """The first keys, each with its row or the row that it shares; see `row_with_key`."""
        return self._meanings.items()

    def __len__(self) -> int:
        return len(self._meanings)

    def __iter__(self) -> Iterator[KeyMeaning]:
        return (row_with_key(key, shared) for key, shared in self.items())


def row_with_key(key: str, shared: KeyMeaning) -> KeyMeaning:
    """The row of a first key: the given one, or one with its own key that shares its meaning."""
    if shared.keys[0] == key:
        return shared
    # `dataclasses.replace` takes ten times as long, and some metrics have hundreds of keys.
    return KeyMeaning(
        key, shared.metric, formula=shared.formula, over=shared.over, caveat=shared.caveat
    )


def by_estimator(
    key: str,
    metric: str,
    setting: str,
    estimators: Mapping[str, tuple[Setting, ...]],
    *,
    over: str = "",
    policies: str = "",
    how_to_log: str = "",
    when: Mapping[str, tuple[Setting, ...]] | None = None,
) -> tuple[KeyMeaning, ...]:
    """Rows for a KL divergence whose estimator is a setting.

    Args:
        key: as logged.
        metric: the canonical metric without the name of the estimator.
        setting: the framework's setting.
        estimators: for each estimator, the setting's values that select it.
        over: see `KeyMeaning`, also for the other arguments.
        policies: the policies compared.
        how_to_log: the setting that enables the key.
        when: further settings that the rows need.
    """
    return tuple(
        KeyMeaning(
            key,
            f"{metric}{estimator}",
            estimator=estimator,
            when={setting: values, **(when or {})},
            over=over,
            policies=policies,
            how_to_log=how_to_log,
        )
        for estimator, values in estimators.items()
    )


_PLACEHOLDER = re.compile(r"<([a-z_]+)>")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_ASCII_SEPARATORS = {
    code: "_" for code in range(128) if not chr(code).isalnum() and chr(code) != "\n"
}


def fixed_length(key: str) -> int:
    """Length of a key without its placeholders: of two keys that match, the longer one is meant."""
    return len(_PLACEHOLDER.sub("", key))


def is_distinctive(key: str) -> bool:
    """Whether a key with placeholders can be recognized after its separators were replaced."""
    return len(_PLACEHOLDER.sub("", key)) >= 5 and not key.startswith("<")


def normalized(text: str) -> str:
    """A key in lower case with an underscore for every separator."""
    return _SEPARATORS.sub("_", text.lower()).strip("_")


def all_normalized(keys: Sequence[str]) -> list[str]:
    """Each key as `normalized` gives it, in a tenth of the time; no key may have a line break."""
    text = "\n".join(keys).lower()
    if not text.isascii():
        return list(map(normalized, keys))
    text = text.translate(_ASCII_SEPARATORS)
    while "__" in text:
        text = text.replace("__", "_")
    return [line.strip("_") for line in text.split("\n")]


class KeyPattern:
    """A pattern that is compiled when a key may match it.

    The tables of all frameworks have a thousand keys; a log has a few dozen. Compiling every
    pattern would take longer than reading a log.

    Args:
        parts: fixed texts and, between them, the names of placeholders.
    """

    __slots__ = ("_parts", "_pattern", "start")

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts
        self.start = parts[0]
        """Fixed text that every match begins with."""
        self._pattern: re.Pattern[str] | None = None

    def fullmatch(self, key: str) -> re.Match[str] | None:
        """The match of a whole key, as by `re.Pattern.fullmatch`."""
        is_literal = len(self._parts) == 1
        if not (key == self.start if is_literal else key.startswith(self.start)):
            return None
        if self._pattern is None:
            self._pattern = re.compile(self._text())
        return self._pattern.fullmatch(key)

    def _text(self) -> str:
        """The regular expression."""
        return "".join(
            re.escape(part) if index % 2 == 0 else f"(?P<{part}>{_CONTENT.get(part, '[^/]+')})"
            for index, part in enumerate(self._parts)
        )


class PatternTable(Generic[_Item]):
    """Finds the patterns that match a key without trying all of them: by their fixed starts.

    A log of a stranger may have thousands of keys, and the tables of all frameworks have a thousand
    patterns.

    Args:
        items: each pattern with what it stands for.
    """

    def __init__(self, items: Iterable[tuple[KeyPattern, _Item]]) -> None:
        self._by_start: dict[str, list[tuple[int, KeyPattern, _Item]]] = {}
        for place, (pattern, item) in enumerate(items):
            self._by_start.setdefault(pattern.start, []).append((place, pattern, item))
        self._lengths = sorted({len(start) for start in self._by_start})

    def matches(self, key: str) -> list[tuple[_Item, re.Match[str]]]:
        """The items whose pattern matches a whole key, in the order of the table."""
        found = [
            (place, item, match)
            for length in self._lengths
            if length <= len(key)
            for place, pattern, item in self._by_start.get(key[:length], ())
            if (match := pattern.fullmatch(key))
        ]
        found.sort(key=itemgetter(0))
        return [(item, match) for _, item, match in found]


def pattern_of(key: str, *, plain: bool = False) -> KeyPattern:
    """A pattern that matches the logged keys of a row; its placeholders become named groups.

    Args:
        key: as in `KeyMeaning.key`.
        plain: match keys that went through `normalized`.
    """
    parts = _PLACEHOLDER.split(key)
    if plain:
        parts[::2] = [_SEPARATORS.sub("_", part.lower()) for part in parts[::2]]
    return KeyPattern(parts)


_CONTENT = {"path": ".+", "k": r"\d+"}
"""What a placeholder stands for, if not any text without a slash: `pass@8_std` is no pass rate."""
_COUNTS = frozenset({"n", "k", "statistic"})
"""Placeholders that do not tell what was evaluated."""


def part_of(key: str, metric: str, match: re.Match[str]) -> str:
    """What a logged key measures a part of, such as the name of a validation set.

    Args:
        key: the key of a row.
        metric: its metric; placeholders that both have are no part.
        match: the match of the logged key.
    """
    names = _PLACEHOLDER.findall(key)
    used = {*_PLACEHOLDER.findall(metric), *_COUNTS}
    return "/".join(match[name] for name in names if name not in used)


def fill_placeholders(text: str, match: re.Match[str]) -> str:
    """A metric or key of a row with the values that its placeholders have in the logged key."""
    groups = match.groupdict()
    return _PLACEHOLDER.sub(lambda hole: groups.get(hole[1], hole[0]), text)
