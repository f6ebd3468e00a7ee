"""Translates the keys of a framework's log to canonical readings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import FORMULAS, KeyMeaning, fill_placeholders
from grpodoctor.frameworks.row_keys import MOST_KEYS
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, Min, NotApplicable, Quantiles, Reading

_LINE = "line/"
"""Prefix of keys that the user's own code printed between the framework's rows."""

_LOGGER_KEYS = frozenset({"_runtime", "_timestamp", "_wandb", "_step"})
"""Keys that loggers add."""

_Version = tuple[int, ...]
_UNKNOWN: _Version = ()


@dataclass(frozen=True, slots=True)
class _Use:
    """A row of the table, applied to this log."""

    meaning: KeyMeaning
    metric: str
    keys: tuple[str, ...]
    """Bare keys with their placeholders filled."""


@dataclass(slots=True)
class UnusedKeys:
    """Keys of a log that the table does not translate, with the reasons."""

    unmapped: dict[str, int] = field(default_factory=dict)
    """Keys that the table lacks, with the number of rows that hold them."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Keys that do not hold what their name suggests, with the table's caveat."""
    ambiguous: dict[str, str] = field(default_factory=dict)
    """Keys whose meaning depends on an unknown setting or version, with its name."""
    generic: dict[str, str] = field(default_factory=dict)
    """Keys that the user's code added, with the metrics that the generic table gives for them.
    These are translated."""


class Translator:
    """Translates the rows of one log.

    Args:
        framework: the framework that wrote the log.
        settings: the framework's settings as far as they are known, with dotted keys.
        version: the framework's version; if empty, it is inferred from the keys.
        own: the user's mapping from keys to canonical metrics; it overrides the table.
        generic: a table for keys that are not the framework's. It applies only to metrics that none
            of the framework's keys gives.
    """

    def __init__(
        self,
        framework: Framework,
        settings: Mapping[str, Setting] | None = None,
        version: str = "",
        own: Mapping[str, str] | None = None,
        generic: Framework | None = None,
    ) -> None:
        self.framework, self.version = framework, version
        self.given = dict(settings or {})
        self.settings = {**framework.defaults, **self.given}
        self.unused = UnusedKeys()
        self._updates = framework.knobs.read(self.settings).get("updates_per_batch")
        self._own = dict(own or {})
        self._generic = generic if generic is not framework else None
        self._bare: dict[str, str] = {}
        self._bounds: tuple[_Version, _Version] = (_UNKNOWN, _UNKNOWN)
        self._known: set[str] = set()
        self._uses: dict[str, tuple[_Use, ...]] = {}

    def readings(self, values: Mapping[str, float]) -> dict[str, Reading]:
        """The canonical readings of one row of the log."""
        self._learn(values)
        bare = {self._bare[key]: value for key, value in values.items() if key in self._bare}
        readings: dict[str, Reading] = {}
        for key in bare:
            for use in self._uses[key]:
                reading = self._read(use, bare)
                if reading is not None:
                    readings[use.metric] = reading
        return readings

    def _learn(self, keys: Iterable[str]) -> None:
        """Look up new keys. Their effect on the version comes first, as it decides their rows."""
        unseen = [key for key in keys if key not in self._bare]
        if not unseen or len(self._bare) >= MOST_KEYS:
            return
        bare_key = self.framework.bare_key
        self._bare |= {
            key: key if key in self._own else bare_key(key) for key in unseen[:MOST_KEYS]
        }
        fresh = {self._bare[key] for key in unseen[:MOST_KEYS]} - self._known
        self._known |= fresh
        before = self._bounds
        self._infer_version()
        for key in self._known if self._bounds != before else fresh:
            self._uses[key] = self._look_up(key)
        self._apply_generic_table()

    def _apply_generic_table(self) -> None:
        """Translate unmapped keys by the generic table, unless the metric has a key already."""
        if self._generic is None:
            return
        taken = {use.metric for uses in self._uses.values() for use in uses}
        for key in sorted(key for key in self.unused.unmapped if not key.startswith(_LINE)):
            rows = self._generic.meanings_of(self._generic.bare_key(key))
            metric = rows[0][0].metric if rows else ""
            if metric and metric not in taken:
                self._uses[key] = (_Use(rows[0][0], metric, (key,)),)
                self.unused.generic[key] = metric
                taken.add(metric)
        for key in self.unused.generic:
            self.unused.unmapped.pop(key, None)

    def _infer_version(self) -> None:
        """Bound the version: it has every logged key, and lacks each key it would always log."""
        if self.version:
            self._bounds = (_parts(self.version), _next(_parts(self.version)))
            return
        lows, highs = [_UNKNOWN], list[_Version]()
        for key in self._known:
            rows = [meaning for meaning, _ in self.framework.meanings_of(key)]
            if rows and all(row.since for row in rows):
                lows.append(min(_parts(row.since) for row in rows))
            if rows and all(row.until for row in rows):
                highs.append(max(_parts(row.until) for row in rows))
        for row in self.framework.meanings:
            if row.always and row.since and not self._known.intersection(row.keys):
                highs.append(_parts(row.since))
        self._bounds = (max(lows), min(highs, default=_UNKNOWN))

    @property
    def version_note(self) -> str:
        """The version that wrote the log and how it is known; empty if unknown."""
        if self.version:
            return f"{self.version}, from the run's settings"
        low, high = (".".join(map(str, version)) for version in self._bounds)
        if low and high:
            return f"{low} or later and before {high}, inferred from its keys"
        if low or high:
            bound = f"{low} or later" if low else f"before {high}"
            return f"{bound}, inferred from its keys"
        return ""

    def _look_up(self, key: str) -> tuple[_Use, ...]:
        if key in self._own:
            metric = self._own[key]
            return (_Use(KeyMeaning(key, metric), metric, (key,)),)
        rows = self.framework.meanings_of(key)
        if not rows:
            if key in self.unused.generic:
                return self._uses[key]
            if not self.framework.knows(key) and key not in _LOGGER_KEYS:
                self.unused.unmapped.setdefault(key, 0)
            return ()
        return self._choose(key, [(row, match) for row, match in rows if self._may_hold(row)])

    def _choose(self, key: str, rows: list[tuple[KeyMeaning, re.Match[str]]]) -> tuple[_Use, ...]:
        certain = [(row, match) for row, match in rows if self._holds(row)]
        uses = tuple(
            _Use(
                row,
                fill_placeholders(row.metric, match),
                tuple(fill_placeholders(key, match) for key in row.keys),
            )
            for row, match in certain
            if row.metric
        )
        if not uses:
            caveats = [row.caveat for row, _ in rows if row.caveat]
            if certain and caveats:
                self.unused.rejected[key] = caveats[0]
            elif not certain and rows:
                self.unused.ambiguous[key] = self._deciding_settings([row for row, _ in rows])
        return uses

    def _deciding_settings(self, rows: list[KeyMeaning]) -> str:
        settings = sorted({name for row in rows for name in row.when if name not in self.settings})
        versions = sorted({v for row in rows for v in (row.since, row.until) if v})
        version = [f"the version (before or after {', '.join(versions)})"] if versions else []
        return " and ".join([*settings, *version])

    def _may_hold(self, row: KeyMeaning) -> bool:
        """Whether no known setting or version excludes a row."""
        for name, allowed in row.when.items():
            if name in self.settings and self.settings[name] not in allowed:
                return False
        low, high = self._bounds
        too_old = bool(row.until) and low != _UNKNOWN and low >= _parts(row.until)
        too_new = bool(row.since) and high != _UNKNOWN and high <= _parts(row.since)
        return not too_old and not too_new

    def _holds(self, row: KeyMeaning) -> bool:
        """Whether the known settings and version are enough to say that a row holds."""
        if any(name not in self.settings for name in row.when):
            return False
        low, high = self._bounds
        since = not row.since or (low != _UNKNOWN and low >= _parts(row.since))
        until = not row.until or (high != _UNKNOWN and high <= _parts(row.until))
        return since and until

    def _read(self, use: _Use, values: Mapping[str, float]) -> Reading | None:
        if any(key not in values for key in use.keys):
            return None
        numbers = [values[key] for key in use.keys]
        if use.meaning.structural_zero and self._is_structural(numbers):
            return NotApplicable(use.meaning.structural_zero)
        return _reading(use.metric, FORMULAS[use.meaning.formula](numbers) * use.meaning.factor)

    def _is_structural(self, numbers: list[float]) -> bool:
        return self._updates == 1 and not any(numbers)

    def count(self, values: Mapping[str, float]) -> None:
        """Count the unmapped keys of a row."""
        for name in values:
            key = self._bare.get(name, name)
            if key in self.unused.unmapped:
                self.unused.unmapped[key] += 1


def _reading(metric: str, value: float) -> Reading:
    """A logged number as one measurement: a log does not say how many it averages."""
    row = metric_of(metric)
    if row is None or row.kind in ("mean", "rate"):
        # `Mean.of` builds arrays and takes ten times as long; a log has a million numbers.
        return Mean(Fraction(value), 1) if math.isfinite(value) else Mean(Fraction(0), 0, 1)
    if row.kind == "quantiles":
        return Quantiles.of([value])
    return Max.of([value]) if row.kind == "max" else Min.of([value])


def _parts(version: str) -> _Version:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _next(version: _Version) -> _Version:
    """The smallest version above this one, to three places."""
    padded = (*version, 0, 0, 0)[:3]
    return (*padded[:2], padded[2] + 1)
