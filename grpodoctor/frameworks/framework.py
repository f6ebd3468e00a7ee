"""A training framework: how its logs are recognized, and what its keys and settings mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from grpodoctor.frameworks.key_meaning import (
    KeyMeaning,
    PatternTable,
    SharedRows,
    all_normalized,
    fill_placeholders,
    fixed_length,
    is_distinctive,
    normalized,
    pattern_of,
    row_with_key,
)
from grpodoctor.frameworks.knob_mapping import KnobTable
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_NO_PLACEHOLDERS = cast("re.Match[str]", re.match("", ""))
"""The match of a key without placeholders, which has nothing to fill in."""


@dataclass(frozen=True)
class Framework:
    """A training framework; the `metrics` module of its folder defines one as `FRAMEWORK`."""

    name: str
    """As `--format` and `--framework` take it."""
    title: str
    meanings: tuple[KeyMeaning, ...] | SharedRows = ()
    """What its log keys mean; empty for the bundled trainer, which logs canonical metrics."""
    knobs: KnobTable = field(
        default_factory=lambda: KnobTable(title="", mappings=(), engine_settings=())
    )
    """How its settings are read and written; empty if they are unknown."""
    signature: tuple[str | tuple[str, ...], ...] = ()
    """Keys, as in `KeyMeaning.key`, that no other framework logs. A tuple holds common keys that
    identify the framework only if all of them are logged."""
    prefixes: tuple[str, ...] = ()
    """What loggers put before every key, such as `train/`, in the order to try."""
    suffixes: tuple[str, ...] = ()
    """What it puts behind keys to say how their values are reduced, such as `@sum`."""
    row_keys: RowKeys = field(default_factory=RowKeys)
    defaults: Mapping[str, Setting] = field(default_factory=dict)
    """Values of settings in `KeyMeaning.when` for logs that do not give them."""
    version_key: str = ""
    """Key of a config or log row that holds the framework's version."""
    first_step: int = 1
    """The number of the first training step."""
    update_counters: tuple[str, ...] = ()
    """Names of steps that count updates of the optimizer where other rows count rollouts, as
    `LogRow.counter` has them."""
    update_prefixes: tuple[str, ...] = ()
    """Prefixes of keys that are logged at each update, for logs that do not name their steps."""
    infer_settings: Callable[[Sequence[Mapping[str, float]]], Mapping[str, Setting]] | None = None
    """Infers settings from the values of the first rows; their keys are bare."""
    first_synonym_counts: bool = False
    """Whether the first of several keys for one metric counts, in the order of the rows."""
    how_to_dump: str = ""
    """The setting that makes it dump rollouts; empty if it always or never does."""
    how_to_dump_logprobs: str = ""
    """How its dumps come to hold the log-probabilities of sampler and learner; empty if they always
    or never do."""
    logs_unused_weights: bool = False
    """Whether the mean correction weight is logged without a correction, too."""
    weights_tokens: bool = False
    """Whether its correction weights are those of single tokens, or means over the tokens of a
    response, in all of its modes; False if some are products over a response."""
    builds_on: tuple[str, ...] = ()
    """Frameworks whose keys it logs as well. A log with keys of both is this framework's."""
    aliases: tuple[str, ...] = ()
    """Other names, such as programs that write the same log: Unsloth writes TRL's."""

    def bare_key(self, key: str) -> str:
        """A logged key without the logger's prefix and suffix, with the table's separators."""
        key = self.without_suffix(key)
        if self.knows(key):
            return key
        for prefix in self.prefixes:
            if key.startswith(prefix) and self.knows(key[len(prefix) :]):
                return key[len(prefix) :]
        return self._with_separators(key) or key

    def without_suffix(self, key: str) -> str:
        """A logged key without the way in which its values are reduced."""
        for suffix in self.suffixes:
            key = key.removesuffix(suffix)
        return key

    def _with_separators(self, key: str) -> str | None:
        """The key of the table whose separators a spreadsheet or a database has replaced.

        `actor_entropy` is `actor/entropy` if the table has no other key of that form.
        """
        if "/" in key:
            return None
        plain = normalized(key)
        for prefix in ("", *(normalized(prefix) + "_" for prefix in self.prefixes)):
            rest = plain.removeprefix(prefix) if plain.startswith(prefix) else ""
            exact = self._by_plain_key.get(rest, ())
            if exact:
                return next(iter(exact)) if len(exact) == 1 else None
        matches = [
            (fixed_length(template), template, fill_placeholders(template, match))
            for template, match in self._plain_patterns.matches(plain)
        ]
        return max(matches)[2] if matches else None

    def knows(self, key: str) -> bool:
        """Whether the table has a bare key."""
        return key in self._exact_keys or bool(self._key_patterns.matches(key))

    def signatures_in(self, keys: Collection[str]) -> list[str]:
        """The parts of the signature among bare keys; combinations of keys count once in all."""
        single = [key for key in keys if self._signatures.matches(key)]
        combined = [
            " + ".join(part)
            for part in self.signature
            if not isinstance(part, str) and all(key in keys for key in part)
        ]
        return single + combined[:1]

    def meanings_of(self, key: str) -> list[tuple[KeyMeaning, re.Match[str]]]:
        """The rows whose first key matches a bare key, with the match of their placeholders.

        If several rows match, only those with the longest fixed text count.
        """
        exact = self._by_exact_key.get(key)
        if exact:
            return [(row_with_key(key, meaning), _NO_PLACEHOLDERS) for meaning in exact]
        pairs = self._by_first_key.matches(key)
        longest = max((fixed_length(meaning.keys[0]) for meaning, _ in pairs), default=0)
        return [pair for pair in pairs if fixed_length(pair[0].keys[0]) == longest]

    def rows_of(self, metrics: Iterable[str]) -> Iterator[KeyMeaning]:
        """The rows of metrics, in the order of the metrics."""
        return (
            row_with_key(key, row)
            for metric in metrics
            for key, row in self._by_metric.get(metric, ())
        )

    def place_of(self, first_key: str) -> int:
        """The place of a row in the table, by its first key; -1 if the table has no such row."""
        return self._places.get(first_key, -1)

    @property
    def keys(self) -> Iterator[str]:
        """All keys of the table; some have placeholders."""
        yield from self._exact_keys
        yield from self._templates

    @cached_property
    def always_logged(self) -> tuple[KeyMeaning, ...]:
        """The rows of keys that every log has since a certain version."""
        return tuple(row for _, row in self._rows() if row.always and row.since)

    def _rows(self) -> Iterable[tuple[str, KeyMeaning]]:
        """Each row with its first key, which the row may share with others: see `SharedRows`."""
        if isinstance(self.meanings, SharedRows):
            return self.meanings.items()
        return ((meaning.keys[0], meaning) for meaning in self.meanings)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {key: place for place, (key, _) in enumerate(self._rows())}

    @cached_property
    def _by_metric(self) -> dict[str, list[tuple[str, KeyMeaning]]]:
        rows: dict[str, list[tuple[str, KeyMeaning]]] = {}
        for key, meaning in self._rows():
            rows.setdefault(meaning.metric, []).append((key, meaning))
        return rows

    @cached_property
    def _by_first_key(self) -> PatternTable[KeyMeaning]:
        """The rows whose first key has placeholders."""
        return PatternTable(
            (pattern_of(key), row_with_key(key, meaning))
            for key, meaning in self._rows()
            if "<" in key
        )

    @cached_property
    def _by_exact_key(self) -> dict[str, list[KeyMeaning]]:
        """The rows whose first key has none: no pattern has a longer fixed text."""
        rows: dict[str, list[KeyMeaning]] = {}
        for key, meaning in self._rows():
            if "<" not in key:
                rows.setdefault(key, []).append(meaning)
        return rows

    @cached_property
    def _exact_keys(self) -> frozenset[str]:
        return frozenset(key for key in self._table_keys() if "<" not in key)

    @cached_property
    def _templates(self) -> tuple[str, ...]:
        """The keys with placeholders, in the order of the table."""
        return tuple(key for key in self._table_keys() if "<" in key)

    @cached_property
    def _key_patterns(self) -> PatternTable[str]:
        return PatternTable((pattern_of(key), key) for key in self._templates)

    @cached_property
    def _signatures(self) -> PatternTable[str]:
        return PatternTable(
            (pattern_of(key), key) for key in self.signature if isinstance(key, str)
        )

    @cached_property
    def _by_plain_key(self) -> dict[str, list[str]]:
        by_plain: dict[str, list[str]] = {}
        keys = tuple(self._exact_keys)
        for plain, key in zip(all_normalized(keys), keys, strict=True):
            by_plain.setdefault(plain, []).append(key)
        return by_plain

    @cached_property
    def _plain_patterns(self) -> PatternTable[str]:
        return PatternTable(
            (pattern_of(key, plain=True), key)
            for key in sorted(set(self._templates))
            if is_distinctive(key)
        )

    def _table_keys(self) -> Iterator[str]:
        for key, meaning in self._rows():
            yield key
            if not isinstance(meaning.key, str):
                yield from meaning.key[1:]
