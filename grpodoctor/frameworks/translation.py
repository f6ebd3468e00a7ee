"""From a framework's keys to canonical readings, by its table of semantics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from grpodoctor.frameworks.log_keys import FORMULAS, Framework, Meaning, filled
from grpodoctor.frameworks.row_keys import MOST_KEYS
from grpodoctor.frameworks.run_config import knobs_from
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, Min, NotApplicable, Quantiles, Reading

_LINE = "line/"
"""Prefix of keys that the user's own code printed between the rows of a framework."""

_LOGGERS = frozenset({"_runtime", "_timestamp", "_wandb", "_step"})
"""What loggers write beside what they are given."""

_UNVERSIONED: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Use:
    """A row of the table at work on this log."""

    meaning: Meaning
    metric: str
    keys: tuple[str, ...]
    """Bare, placeholders filled."""


@dataclass(slots=True)
class Gaps:
    """What of a log was not used, and why."""

    unmapped: dict[str, int] = field(default_factory=dict)
    """Keys that no row of the table has, and in how many rows of the log they stood."""
    refused: dict[str, str] = field(default_factory=dict)
    """Keys that are not what they are called, with the table's words."""
    undecided: dict[str, str] = field(default_factory=dict)
    """Keys that mean this or that by a setting or a version that nobody knows."""
    borrowed: dict[str, str] = field(default_factory=dict)
    """Keys that the user's own code added, with the metrics that their plain names suggest."""


class Translator:
    """Reads the rows of one log.

    Args:
        framework: whose table.
        settings: the framework's own settings as far as they are known, dotted keys.
        version: of the framework; empty if unknown, then it is inferred from the keys themselves.
        own: the user's own mapping from keys to canonical metrics; it goes before the table.
        plain: a table of plain names, for keys that are none of the framework's and that its user
            added: they are read by it where nothing of the framework's gives the same metric.
    """

    def __init__(
        self,
        framework: Framework,
        settings: Mapping[str, Setting] | None = None,
        version: str = "",
        own: Mapping[str, str] | None = None,
        plain: Framework | None = None,
    ) -> None:
        self.framework, self.version = framework, version
        self.given = dict(settings or {})
        self.settings = {**framework.defaults, **self.given}
        self.gaps = Gaps()
        self._updates = knobs_from(framework, self.settings).get("updates_per_batch")
        self._own = dict(own or {})
        self._plain = plain if plain is not framework else None
        self._bare: dict[str, str] = {}
        self._bounds: tuple[tuple[int, ...], tuple[int, ...]] = (_UNVERSIONED, _UNVERSIONED)
        self._known: set[str] = set()
        self._uses: dict[str, tuple[_Use, ...]] = {}

    def readings(self, values: Mapping[str, float]) -> dict[str, Reading]:
        """The canonical readings of one row of the log."""
        self._learn(values)
        bare = {self._bare[key]: value for key, value in values.items() if key in self._bare}
        found: dict[str, Reading] = {}
        for key in bare:
            for use in self._uses[key]:
                reading = self._read(use, bare)
                if reading is not None:
                    found[use.metric] = reading
        return found

    def _learn(self, keys: Iterable[str]) -> None:
        """Look up the keys that were never seen before; what they tell of the version first."""
        unseen = [key for key in keys if key not in self._bare]
        if not unseen or len(self._bare) >= MOST_KEYS:
            return
        bare = self.framework.bare
        self._bare |= {key: key if key in self._own else bare(key) for key in unseen[:MOST_KEYS]}
        fresh = {self._bare[key] for key in unseen[:MOST_KEYS]} - self._known
        self._known |= fresh
        before = self._bounds
        self._infer_version()
        for key in self._known if self._bounds != before else fresh:
            self._uses[key] = self._look_up(key)
        self._borrow()

    def _borrow(self) -> None:
        """Read the keys of nobody by their plain names, where no key of the table says the same."""
        if self._plain is None:
            return
        taken = {use.metric for uses in self._uses.values() for use in uses}
        for key in sorted(each for each in self.gaps.unmapped if not each.startswith(_LINE)):
            rows = self._plain.meanings_of(self._plain.bare(key))
            metric = rows[0][0].metric if rows else ""
            if metric and metric not in taken:
                self._uses[key] = (_Use(rows[0][0], metric, (key,)),)
                self.gaps.borrowed[key] = metric
                taken.add(metric)
        for key in self.gaps.borrowed:
            self.gaps.unmapped.pop(key, None)

    def _infer_version(self) -> None:
        """Every key that is logged existed, and one that would always be logged did not."""
        if self.version:
            self._bounds = (_parts(self.version), _next(_parts(self.version)))
            return
        lows, highs = [_UNVERSIONED], list[tuple[int, ...]]()
        for key in self._known:
            rows = [meaning for meaning, _ in self.framework.meanings_of(key)]
            if rows and all(row.since for row in rows):
                lows.append(min(_parts(row.since) for row in rows))
            if rows and all(row.until for row in rows):
                highs.append(max(_parts(row.until) for row in rows))
        for row in self.framework.meanings:
            if row.always and row.since and not self._known.intersection(row.keys):
                highs.append(_parts(row.since))
        self._bounds = (max(lows), min(highs, default=_UNVERSIONED))

    @property
    def told_version(self) -> str:
        """Which version wrote the log, and how that is known; empty if nothing is."""
        if self.version:
            return f"{self.version}, as its settings say"
        low, high = (".".join(map(str, each)) for each in self._bounds)
        if low and high:
            return f"{low} or later, and before {high}, by the keys that it has and lacks"
        if low or high:
            return f"{low} or later, by its keys" if low else f"before {high}, by its keys"
        return ""

    def _look_up(self, key: str) -> tuple[_Use, ...]:
        if key in self._own:
            metric = self._own[key]
            return (_Use(Meaning(key=key, metric=metric), metric, (key,)),)
        rows = self.framework.meanings_of(key)
        if not rows:
            if key in self.gaps.borrowed:
                return self._uses[key]
            if not self.framework.knows(key) and key not in _LOGGERS:
                self.gaps.unmapped.setdefault(key, 0)
            return ()
        return self._choose(key, [(row, match) for row, match in rows if self._may_hold(row)])

    def _choose(self, key: str, rows: list[tuple[Meaning, re.Match[str]]]) -> tuple[_Use, ...]:
        sure = [(row, match) for row, match in rows if self._holds(row)]
        uses = tuple(
            _Use(row, filled(row.metric, match), tuple(filled(each, match) for each in row.keys))
            for row, match in sure
            if row.metric
        )
        if not uses:
            lies = [row.lie for row, _ in rows if row.lie]
            if sure and lies:
                self.gaps.refused[key] = lies[0]
            elif not sure and rows:
                self.gaps.undecided[key] = self._what_decides([row for row, _ in rows])
        return uses

    def _what_decides(self, rows: list[Meaning]) -> str:
        settings = sorted({name for row in rows for name in row.when if name not in self.settings})
        versions = sorted({v for row in rows for v in (row.since, row.until) if v})
        of_version = [f"the version (before or after {', '.join(versions)})"] if versions else []
        return " and ".join([*settings, *of_version])

    def _may_hold(self, row: Meaning) -> bool:
        """Whether nothing that is known speaks against a row."""
        for name, allowed in row.when.items():
            if name in self.settings and self.settings[name] not in allowed:
                return False
        low, high = self._bounds
        too_old = bool(row.until) and low != _UNVERSIONED and low >= _parts(row.until)
        too_new = bool(row.since) and high != _UNVERSIONED and high <= _parts(row.since)
        return not too_old and not too_new

    def _holds(self, row: Meaning) -> bool:
        """Whether what is known is enough to say that a row holds."""
        if any(name not in self.settings for name in row.when):
            return False
        low, high = self._bounds
        since = not row.since or (low != _UNVERSIONED and low >= _parts(row.since))
        until = not row.until or (high != _UNVERSIONED and high <= _parts(row.until))
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
        """Count a row's keys among those that nobody maps."""
        for each in values:
            key = self._bare.get(each, each)
            if key in self.gaps.unmapped:
                self.gaps.unmapped[key] += 1


def _reading(metric: str, value: float) -> Reading:
    """A number as logged: one measurement, since a log does not say of how many."""
    row = metric_of(metric)
    if row is None or row.kind in ("mean", "rate"):
        # Not `Mean.of`: its arrays cost ten times as much, and a log has a million numbers.
        return Mean(Fraction(value), 1) if math.isfinite(value) else Mean(Fraction(0), 0, 1)
    if row.kind == "quantiles":
        return Quantiles.of([value])
    return Max.of([value]) if row.kind == "max" else Min.of([value])


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _next(version: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest version above this one, to three places."""
    padded = (*version, 0, 0, 0)[:3]
    return (*padded[:2], padded[2] + 1)
