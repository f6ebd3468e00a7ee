"""Translates the keys of a framework's log to canonical readings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grpodoctor.frameworks.common_names import by_last_parts, metric_of_part
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import FORMULAS, KeyMeaning, fill_placeholders
from grpodoctor.frameworks.planned_uses import ROUNDING, PlannedUse, QuickUse, Use, quick_use
from grpodoctor.frameworks.row_keys import MOST_KEYS
from grpodoctor.frameworks.unused_keys import UnusedKeys
from grpodoctor.frameworks.version_bounds import VersionBounds, version_bounds
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.metric import Kind
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import (
    Max,
    Mean,
    Min,
    NotApplicable,
    Quantiles,
    Reading,
    scalar,
    single,
)

_LINE = "line/"
"""Prefix of keys that the user's own code printed between the framework's rows."""

_LOGGER_KEYS = frozenset({"_runtime", "_timestamp", "_wandb", "_step"})
"""Keys that loggers add."""

_MOST_PLANS = 256

_SUMMARY = frozenset({"train_runtime", "train_samples_per_second"})
"""Keys of the summary that transformers logs after the last step. Its loss is the run's mean."""

_SUMMARY_KEYS = frozenset({"train_loss", "total_flos", "train_steps_per_second", *_SUMMARY})


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
        self._knobs = framework.knobs.read(self.settings)
        self._updates = self._knobs.get("updates_per_batch")
        self._own = dict(own or {})
        self._generic = generic
        self._bare: dict[str, str] = {}
        self._versions = VersionBounds()
        self._known: set[str] = set()
        self._uses: dict[str, tuple[Use, ...]] = {}
        self._named_by_user: set[str] = set()
        self._out_of_range: set[str] = set()
        self._found_in_generic: dict[str, tuple[Use | None, list[tuple[str, KeyMeaning]]]] = {}
        self._plans: dict[tuple[str, ...], tuple[QuickUse, ...]] = {}
        """What is read from rows with the same keys; most logs have a few sets of keys."""

    def readings(self, values: Mapping[str, float]) -> dict[str, Reading]:
        """The canonical readings of one row of the log."""
        layout = tuple(values)
        plan = self._plans.get(layout)
        if plan is None:
            plan = self._plan(layout)
        readings: dict[str, Reading] = {}
        for key, metric, low, high, zero_too, planned in plan:
            number = values[key]
            if low < number < high and (number or zero_too):
                readings[metric] = single(number)
            else:
                self._take(planned, values, readings)
        return readings

    def unread(self, values: Mapping[str, float]) -> dict[str, float]:
        """The numbers of a row that `readings` has read, as far as their keys give no metric."""
        return {
            key: number
            for key, number in values.items()
            if not self._uses.get(self._bare.get(key, "")) and key not in _LOGGER_KEYS
        }

    @property
    def metrics(self) -> set[str]:
        """The metrics of all keys seen so far."""
        return {use.metric for uses in self._uses.values() for use in uses}

    @property
    def component_keys(self) -> list[str]:
        """The logged keys so far that hold the mean of a component of the reward."""
        return sorted(
            key
            for key, bare in self._bare.items()
            if any(_is_component(use.metric) for use in self._uses.get(bare, ()))
        )

    def metrics_of(self, keys: Iterable[str]) -> dict[str, str]:
        """The metric that each key helps to give in a row that has all of these keys."""
        uses = [quick.planned for quick in self._plan(tuple(keys))]
        metrics = {planned.keys[0]: planned.use.metric for planned in reversed(uses)}
        for planned in uses:
            for key in planned.keys:
                metrics.setdefault(key, planned.use.metric)
        return metrics

    def reason_unread(self, key: str) -> str:
        """Why the framework's table reads no metric from a key; empty if the table has no reason.

        Args:
            key: a logged key that gives no metric.
        """
        self._learn([key])
        bare = self._bare.get(key, key)
        if setting := self.unused.ambiguous.get(bare):
            return f"its meaning depends on {setting}"
        return self.unused.rejected.get(bare, "")

    def is_unmapped(self, key: str) -> bool:
        """Whether no table has a logged key that was seen before."""
        return self._bare.get(key, "") in self.unused.unmapped

    def read_as(self, key: str, metric: str) -> None:
        """Read a logged key as a metric from now on."""
        self.unused.unmapped.pop(self._bare.get(key, ""), None)
        self._own[key], self._bare[key] = metric, key
        self._uses[key] = self._look_up(key)
        self._known.add(key)
        self._plans.clear()

    def set_aside(self, key: str, reason: str) -> None:
        """Read no metric from a logged key that was seen before, for a reason."""
        bare = self._bare[key]
        self._uses[bare] = ()
        self.unused.rejected[bare] = reason
        self.unused.by_last_part.pop(bare, None)
        self._plans.clear()

    def correct_shares(self, counts: Sequence[str], percentages: Sequence[str]) -> None:
        """Read shares from keys in the unit that all their values show, not the single value.

        Args:
            counts: keys of whole numbers beyond 1, which are no shares even where they are 1.
            percentages: keys of numbers from 0 to 100.
        """
        shares = {key: self._plain_shares(key) for key in (*counts, *percentages)}
        for key in counts:
            if shares[key]:
                self.set_aside(key, "its values are counts, not shares")
        for key in percentages:
            if uses := shares[key]:
                self._uses[self._bare[key]] = tuple(
                    replace(use, meaning=replace(use.meaning, factor=0.01, unit="percent"))
                    for use in uses
                )
        self._plans.clear()

    def _plain_shares(self, key: str) -> tuple[Use, ...]:
        """The uses of a key, if each reads its value as a share."""
        uses = self._uses.get(self._bare.get(key, ""), ())
        are_shares = all(
            use.meaning.is_plain and (row := metric_of(use.metric)) and row.kind == "rate"
            for use in uses
        )
        return uses if are_shares and key not in self._own else ()

    def _take(
        self, planned: PlannedUse, values: Mapping[str, float], readings: dict[str, Reading]
    ) -> None:
        """Add the reading of a use of keys, unless their values give none."""
        if planned.is_plain:
            number = values[planned.keys[0]]
            if planned.kind != "rate" or is_share(number):
                readings[planned.use.metric] = _reading(planned.kind, number)
                return
        reading = self._read(planned, values)
        if reading is not None:
            self._add(readings, planned.use, reading)

    def _plan(self, layout: tuple[str, ...]) -> tuple[QuickUse, ...]:
        """What is read from rows with these keys, in this order."""
        self._learn(layout)
        logged = {self._bare[key]: key for key in layout if key in self._bare}
        if not _SUMMARY.isdisjoint(logged):
            logged = {bare: key for bare, key in logged.items() if bare not in _SUMMARY_KEYS}
        plan = tuple(
            PlannedUse(
                use,
                tuple(logged[key] for key in use.keys),
                row.kind if (row := metric_of(use.metric)) else "mean",
                use.meaning.is_plain,
            )
            for bare in logged
            for use in self._uses[bare]
            if all(key in logged for key in use.keys)
        )
        if self.framework.first_synonym_counts:
            plan = self._without_synonyms(plan)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        quick = self._plans[layout] = tuple(map(quick_use, plan))
        return quick

    def _without_synonyms(self, plan: tuple[PlannedUse, ...]) -> tuple[PlannedUse, ...]:
        """Of several keys for one metric, let the first in the table's order count."""
        ranked = sorted(plan, key=self._place_of)
        first: dict[str, PlannedUse] = {}
        for each in ranked:
            first.setdefault(each.use.metric, each)
        return tuple(each for each in plan if first[each.use.metric] is each)

    def _place_of(self, planned: PlannedUse) -> int:
        """The place of the row in the table; the user's own mapping comes before all rows."""
        is_own = planned.use.keys[0] in self._own
        return -1 if is_own else self.framework.place_of(planned.use.meaning.keys[0])

    def _add(self, readings: dict[str, Reading], use: Use, reading: Reading) -> None:
        metric = self._metric(use, reading)
        row, number = metric_of(metric), scalar(reading)
        if row is not None and row.kind == "rate" and number is not None and not is_share(number):
            self.unused.rejected[use.keys[0]] = "its values are no shares between 0 and 1"
        elif use.meaning.adds and metric in readings:
            readings[metric] = _sum(readings[metric], reading)
        else:
            readings[metric] = reading

    def _metric(self, use: Use, reading: Reading) -> str:
        """The metric of a reading; another one if the key ever had a value out of its range."""
        if not use.meaning.otherwise:
            return use.metric
        if use.metric not in self._out_of_range and not _is_in_range(use.metric, reading):
            self._out_of_range.add(use.metric)
        if use.metric not in self._out_of_range:
            return use.metric
        return use.meaning.otherwise + use.metric.removeprefix(use.meaning.metric)

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
        self._plans.clear()
        before = self._versions
        self._versions = version_bounds(self.framework, self.version, self._known)
        for key in self._known if self._versions != before else fresh:
            self._uses[key] = self._look_up(key)
        self._apply_generic_table()

    def _apply_generic_table(self) -> None:
        """Translate unmapped keys by the generic table, unless the metric has a key already."""
        if self._generic is None:
            return
        taken = self.metrics
        candidates: dict[str, list[tuple[str, KeyMeaning]]] = {}
        unmapped = (key for key in self.unused.unmapped if not key.startswith(_LINE))
        for key in sorted({*unmapped, *self._named_by_user}):
            use, by_last_parts = self._generic_uses(self._generic, key)
            if use is not None and use.metric not in taken:
                self._use_generic(key, use, self.unused.generic)
                taken.add(use.metric)
            for metric, row in by_last_parts:
                candidates.setdefault(metric, []).append((key, row))
        for metric, found in candidates.items():
            chosen = _above_all_others(found)
            if metric not in taken and chosen is not None:
                key, row = chosen
                self._use_generic(key, Use(row, metric, (key,)), self.unused.by_last_part)

    def _generic_uses(
        self, table: Framework, key: str
    ) -> tuple[Use | None, list[tuple[str, KeyMeaning]]]:
        """How the generic table reads a key, and if it does not, how it reads its last parts."""
        uses = self._found_in_generic.get(key)
        if uses is None:
            use = None if table is self.framework else self._generic_use(table, key)
            uses = self._found_in_generic[key] = (use, [] if use else by_last_parts(table, key))
        return uses

    @staticmethod
    def _generic_use(table: Framework, key: str) -> Use | None:
        """How the generic table reads a key; None if it does not know the key."""
        rows = table.meanings_of(table.bare_key(key))
        metric = metric_of_part(*rows[0]) if rows and rows[0][0].metric else ""
        if not metric:
            return None
        row, match = rows[0]
        others = tuple(fill_placeholders(other, match) for other in row.keys[1:])
        return Use(row, metric, (key, *others))

    def _use_generic(self, key: str, use: Use, noted: dict[str, str]) -> None:
        self._uses[key] = (use,)
        noted[key] = use.metric
        self.unused.unmapped.pop(key, None)

    @property
    def version_note(self) -> str:
        """The version that wrote the log and how it is known; empty if unknown."""
        return self._versions.note(self.version)

    def _look_up(self, key: str) -> tuple[Use, ...]:
        if key in self._own:
            metric = self._own[key]
            return (Use(KeyMeaning(key, metric), metric, (key,)),)
        if key in self.unused.generic or key in self.unused.by_last_part:
            return self._uses[key]
        rows = self.framework.meanings_of(key)
        if any(row.named_by_user for row, _ in rows):
            self._named_by_user.add(key)
        if not rows:
            if not self.framework.knows(key) and key not in _LOGGER_KEYS:
                self.unused.unmapped.setdefault(key, 0)
            return ()
        return self._choose(key, [(row, match) for row, match in rows if self._may_hold(row)])

    def _choose(self, key: str, rows: list[tuple[KeyMeaning, re.Match[str]]]) -> tuple[Use, ...]:
        certain = [(row, match) for row, match in rows if self._holds(row)]
        uses = tuple(
            Use(
                row,
                metric_of_part(row, match),
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
        knobs = {row.knob for row in rows if row.knob and row.knob not in self._knobs}
        settings += [self._key_of_knob(knob) for knob in sorted(knobs)]
        versions = sorted({v for row in rows for v in (row.since, row.until) if v})
        version = [f"the version (before or after {', '.join(versions)})"] if versions else []
        return " and ".join([*settings, *version])

    def _key_of_knob(self, knob: str) -> str:
        """The framework's key of a knob."""
        rows = [row for row in self.framework.knobs.mappings if row.knob == knob]
        return rows[0].key if rows and rows[0].key else knob

    def _may_hold(self, row: KeyMeaning) -> bool:
        """Whether no known setting or version excludes a row."""
        for name, allowed in row.when.items():
            if name in self.settings and self.settings[name] not in allowed:
                return False
        return self._versions.may_log(row)

    def _holds(self, row: KeyMeaning) -> bool:
        """Whether the known settings and version are enough to say that a row holds."""
        if any(name not in self.settings for name in row.when):
            return False
        if row.knob and not isinstance(self._knobs.get(row.knob), int | float):
            return False
        return self._versions.surely_log(row)

    def _read(self, planned: PlannedUse, values: Mapping[str, float]) -> Reading | None:
        meaning = planned.use.meaning
        numbers = [values[key] for key in planned.keys]
        if meaning.structural_zero and self._is_structural(numbers):
            return NotApplicable(meaning.structural_zero)
        if meaning.zero_is_absent and not any(numbers):
            return None
        if meaning.nan_is_absent and any(map(math.isnan, numbers)):
            return None
        if meaning.knob:
            numbers.append(float(self._knobs[meaning.knob]))
        return _reading(planned.kind, FORMULAS[meaning.formula](numbers) * meaning.factor)

    def _is_structural(self, numbers: list[float]) -> bool:
        return self._updates == 1 and not any(numbers)


def _above_all_others(
    found: Sequence[tuple[str, KeyMeaning]],
) -> tuple[str, KeyMeaning] | None:
    """The key whose branch contains all other keys of its metric; None if there is none.

    Of `training/entropy` and `training/loss/entropy` it is the first. Of `actor/entropy` and
    `critic/entropy` neither is known to be the one that is meant.
    """
    first, row = min(found, key=lambda each: each[0].count("/"))
    branch, depth = f"{first.rpartition('/')[0]}/", first.count("/")
    others = [key for key, _ in found if key != first]
    is_above = all(key.startswith(branch) and key.count("/") > depth for key in others)
    return (first, row) if is_above else None


def _is_in_range(metric: str, reading: Reading) -> bool:
    row, number = metric_of(metric), scalar(reading)
    return row is None or number is None or row.low <= number <= row.high


_COMPONENT = re.compile(r"reward/component/.+/mean")


def _is_component(metric: str) -> bool:
    return _COMPONENT.fullmatch(metric) is not None


def is_share(number: float) -> bool:
    """Whether a number may be a share; infinities and NaN are counted, not rejected."""
    return -ROUNDING <= number <= 1 + ROUNDING or not math.isfinite(number)


def _sum(left: Reading, right: Reading) -> Reading:
    """The sum of two numbers of one row of a log."""
    numbers = (scalar(left), scalar(right))
    return Mean.of_number(sum(number for number in numbers if number is not None))


def _reading(kind: Kind, value: float) -> Reading:
    """A logged number as one measurement: a log does not say how many it averages."""
    if kind in ("mean", "rate"):
        return Mean.of_number(value)
    if kind == "quantiles":
        return Quantiles.of([value])
    return Max.of_number(value) if kind == "max" else Min.of_number(value)
