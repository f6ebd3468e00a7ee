"""Suggestions for a mapping from the keys of an unknown log to canonical metrics.

A suggestion rests on two things: the words of the key, and whether the values can be the metric's.
What a table says about a key comes before its words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.log_formats.base import LogRow, chunks_of
from grpodoctor.runs.reading.bare_keys import metrics_of_bare_keys, metrics_of_letters
from grpodoctor.runs.reading.key_words import WordPattern, is_heldout, pattern_of
from grpodoctor.runs.reading.log_files import LogFiles
from grpodoctor.runs.reading.no_run_error import no_run_error
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.vocabulary.metrics import metric_of

_MAX_ROWS = 200_000


@dataclass(slots=True)
class KeyStatistics:
    """The finite values of one key."""

    count: int = 0
    first: float = math.nan
    last: float = math.nan
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0

    def add(self, value: float) -> None:
        """Add a value; values that are not finite are left out."""
        if not math.isfinite(value):
            return
        if not self.count:
            self.first = value
        self.count += 1
        self.last = value
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.total += value

    @property
    def mean(self) -> float:
        """The mean of all values; NaN without values."""
        return self.total / self.count if self.count else math.nan


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A proposed metric for a key."""

    key: str
    metric: str
    statistics: KeyStatistics
    objection: str = ""
    """Why the key is not read as the metric: what its name leaves open, how its values contradict
    the metric, or which key is preferred; empty if nothing does."""


@dataclass(frozen=True, slots=True)
class MapSuggestions:
    """The suggestions for a log."""

    suggestions: tuple[Suggestion, ...]
    known: Mapping[str, str]
    """Keys that are read without a mapping, and their metrics."""
    unknown: Mapping[str, KeyStatistics]
    """Keys for which there is no suggestion."""
    without_metric: tuple[str, ...] = ()
    """Keys of the framework that hold no metric."""


_HELD_OUT = {"reward/mean": "reward/heldout", "accuracy/train": "accuracy/heldout"}


def suggest_map(path: Path, options: ReadOptions) -> MapSuggestions:
    """Suggest metrics for the keys of a log that are not read yet.

    Raises:
        RunError: if there is no log.
        ConfigError: if the options name an unknown format.
    """
    statistics = _statistics(path, options)
    translator = _translator(path, options)
    known = _known_keys(translator, statistics)
    without_metric = _without_metric(translator, [key for key in statistics if key not in known])
    taken = {metric.partition("/set/")[0]: key for key, metric in known.items()}
    bare = metrics_of_bare_keys(key for key in statistics if key not in known)
    letters = metrics_of_letters(
        {key: stats.low for key, stats in statistics.items() if key not in known and stats.count}
    )
    suggestions: list[Suggestion] = []
    unknown: dict[str, KeyStatistics] = {}
    for key, stats in sorted(statistics.items(), key=lambda pair: (-pair[1].count, pair[0])):
        if key in known or key in without_metric:
            continue
        reason = _reason_unread(translator, key)
        suggestion = _suggestion(key, stats, taken, reason) if stats.count else None
        if key in bare and not known:
            suggestion = Suggestion(key, bare[key], stats)
        if key in letters and letters[key] not in taken:
            suggestion = Suggestion(key, letters[key], stats)
        if suggestion is None:
            unknown[key] = stats
            continue
        suggestions.append(suggestion)
        if not suggestion.objection:
            taken[suggestion.metric] = key
    ordered = sorted(suggestions, key=lambda each: (bool(each.objection), each.metric, each.key))
    return MapSuggestions(tuple(ordered), known, unknown, without_metric)


def _suggestion(
    key: str, stats: KeyStatistics, taken: Mapping[str, str], reason: str
) -> Suggestion | None:
    pattern = pattern_of(key)
    metric = pattern.metric if pattern else ""
    if is_heldout(key):
        metric = _HELD_OUT.get(metric, "")
    if pattern is None or not metric:
        return None
    objection = reason or pattern.doubt or _objection(pattern, stats)
    if not objection and metric in taken:
        objection = f"{metric} is read from {taken[metric]}"
    return Suggestion(key, metric, stats, objection)


def _objection(pattern: WordPattern, stats: KeyStatistics) -> str:
    row = metric_of(pattern.metric)
    low = max(pattern.low, row.low if row else -math.inf)
    high = min(pattern.high, row.high if row else math.inf)
    if stats.low < low or stats.high > high:
        return f"its values leave the range of {pattern.metric} ({low:g} to {high:g})"
    if stats.count > 1 and stats.low == stats.high == 0:
        return "it is zero in every row"
    return ""


def _statistics(path: Path, options: ReadOptions) -> dict[str, KeyStatistics]:
    statistics: dict[str, KeyStatistics] = {}
    for row in _rows(path, options):
        for key, value in row.values.items():
            if key not in statistics and len(statistics) >= MOST_KEYS:
                continue
            statistics.setdefault(key, KeyStatistics()).add(value)
    if not statistics:
        raise no_run_error(path, [])
    return statistics


def _rows(path: Path, options: ReadOptions) -> Iterator[LogRow]:
    logs = LogFiles(path, None, RowKeys())
    logs.search()
    rows = 0
    for file in logs.in_order():
        for chunk in chunks_of(file.reader):
            options.progress.update(chunk.size, total=logs.size, detail=file.reader.path.name)
            yield from chunk.records
            rows += len(chunk.records)
            if rows >= _MAX_ROWS:
                return


def _translator(path: Path, options: ReadOptions) -> Translator:
    """The translator that reads the log; that of common names if no framework is found."""
    try:
        run = open_run(path, options)
    except RunError:
        run = None  # no key is known
    translator = run.follower.translator if isinstance(run, FrameworkRun) else None
    return translator or Translator(generic_framework(), own=options.mapping)


def _known_keys(translator: Translator, keys: Iterable[str]) -> dict[str, str]:
    """The keys that are read already, and their metrics: on their own or with other keys."""
    keys = tuple(keys)
    known = translator.metrics_of(keys)
    for key in keys:
        known.update(translator.metrics_of([key]))
    return known


def _without_metric(translator: Translator, keys: Iterable[str]) -> tuple[str, ...]:
    """The keys that the framework's table has, with no metric and no caveat."""
    framework = translator.framework
    return tuple(
        key
        for key in keys
        if framework.knows(framework.bare_key(key)) and not _reason_unread(translator, key)
    )


def _reason_unread(translator: Translator, key: str) -> str:
    """Why a table reads no metric from a key: that of the framework, else that of common names."""
    if reason := translator.reason_unread(key):
        return reason
    common = generic_framework()
    rows = common.meanings_of(common.bare_key(key))
    return next((row.caveat for row, _ in rows if row.caveat and not row.metric), "")
