"""The order of a log's rows: repeated rows, counters of rollouts and of updates, restarts."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace

from grpodoctor.frameworks.framework import Framework
from grpodoctor.runs.log_formats.base import LogRow

_MAX_FINGERPRINTS = 20_000
"""Steps whose rows are remembered, to recognize a copy of them later in the log."""

_MAX_ROWS_PER_STEP = 1000
"""Rows of a step that are remembered, so that a log whose steps never advance does not fill the
memory."""

_MIN_ROLLOUTS = 2
"""Complete rollouts that show how many updates each of them has."""

_ADDITION = 0.5
"""Share of a row's keys that its step already has, up to which the row adds keys to the step."""

_MIN_RUN_STEPS = 3
"""Steps after which a step before the first one begins another run."""

_RECENT_STEPS = 64
"""Steps whose keys are remembered, to tell a late row of another process from a restart."""

_MEASURED = 2
"""Values of a row that are no whole numbers, from which an equal row of a step is a repeat."""

Fingerprint = tuple[int, float]


_EPOCH = "epoch"


@dataclass(slots=True)
class _EpochSteps:
    """Steps that begin again in each epoch, made to continue those of the previous one.

    A second run in the same log begins again with its first epoch.
    """

    epoch: float = -1
    """The epoch of the latest row; -1 before the first one."""
    first: int = -1
    """The first step of that epoch."""
    last: int = -1
    """The largest step of that epoch."""
    offsets: dict[float, int] = field(default_factory=dict)
    """What is added to the steps of each epoch."""

    def continued(self, row: LogRow) -> LogRow:
        """The row with a step that continues the previous epochs."""
        epoch, step = row.values.get(_EPOCH), row.step
        if step is None or (epoch is not None and not float(epoch).is_integer()):
            return row
        if epoch is not None and epoch != self.epoch:
            begins_again = epoch == self.epoch + 1 and step <= self.first < self.last
            gap = self.last - step + 1 if begins_again else 0
            if epoch not in self.offsets or begins_again:
                self.offsets[epoch] = self.offsets.get(self.epoch, 0) + gap
            self.epoch, self.first, self.last = epoch, step, step
        self.last = max(self.last, step)
        offset = self.offsets.get(self.epoch, 0)
        return replace(row, step=step + offset) if offset else row


@dataclass(slots=True)
class _Counter:
    """The rows with one counter."""

    last: int = -1
    """The largest step since the latest restart."""
    first: int = -1
    """The smallest step; -1 before the first row."""
    current: Mapping[str, float] = field(default_factory=dict)
    """The values of the latest step."""
    # To remove its first entry, a plain dict skips all entries that were removed before.
    keys: OrderedDict[int, Set[str]] = field(default_factory=OrderedDict)
    """The keys of the recent steps."""
    fingerprints: OrderedDict[int, tuple[Fingerprint, ...]] = field(default_factory=OrderedDict)

    def repeats(self, row: LogRow, step: int, fingerprint: Fingerprint) -> bool:
        """Whether the log already has this row, or all of its values."""
        if step < self.last:
            return fingerprint in self.fingerprints.get(step, ())
        return step == self.last and _has_all(self.current, row.values) and _is_measured(row)

    def adds_keys(self, row: LogRow, step: int) -> bool:
        """Whether the row mainly has keys that its step lacks."""
        known = self.keys.get(step)
        return known is not None and adds_to(known, row.values)

    def is_late(self, step: int) -> bool:
        """Whether an earlier step never occurred, so that only its row is late.

        A step before the first one is a late row at the beginning of the log. After some steps, it
        begins another run.
        """
        if step in self.fingerprints:
            return False
        return step > self.first or len(self.fingerprints) < _MIN_RUN_STEPS

    def remember(self, row: LogRow, step: int, fingerprint: Fingerprint) -> None:
        values = row.values
        if step >= self.last:
            self.current = {**self.current, **values} if step == self.last else values
        if step > self.last:  # the common case
            self.last = step
        if self.first < 0 or step < self.first:
            self.first = step
        known = self.keys.get(step)
        self.keys[step] = values.keys() if known is None else known | values.keys()
        seen = self.fingerprints.get(step, ())
        self.fingerprints[step] = (*seen[-_MAX_ROWS_PER_STEP:], fingerprint)
        if len(self.fingerprints) > _MAX_FINGERPRINTS:
            self.fingerprints.popitem(last=False)
        if len(self.keys) > _RECENT_STEPS:
            self.keys.popitem(last=False)

    def go_back(self, step: int) -> None:
        """Forget the steps from `step` on."""
        if self.last < step:
            return
        for late in [known for known in self.fingerprints if known >= step]:
            del self.fingerprints[late]
            self.keys.pop(late, None)
        self.last, self.current = step - 1, {}


class RowOrder:
    """Puts the rows of one log in order.

    A row may be repeated, because two processes print it or a file was copied behind itself: the
    repeat is dropped. Rows may have different counters: rollouts, updates, evaluations. A job was
    restarted only if one counter goes back and its values differ.

    Args:
        update_counters: the counters of the framework that count updates of the optimizer. Their
            rows are given the number of their rollout.
    """

    def __init__(self, update_counters: Collection[str] = ()) -> None:
        self._update_counters = update_counters
        self._counters: dict[str, _Counter] = {}
        self._epochs: dict[str, _EpochSteps] = {}
        self._rollout = -1
        """The latest rollout."""
        self._updates: dict[int, set[int]] = {}
        """The updates seen during the latest rollouts."""
        self.updates_per_rollout: int | None = None
        """None until it is known, or if no counter counts updates."""
        self.dropped = 0
        """Rows that repeat an earlier one."""
        self.late = 0
        """Rows that follow a row of a later step, and whose step never occurred before."""

    def place(self, row: LogRow) -> tuple[LogRow, bool] | None:
        """Return a row with its step on the common axis, and whether the job was restarted there.

        None if the row repeats an earlier one.
        """
        if row.step is None:
            return row, False
        epochs = self._epochs.get(row.counter)
        if epochs is None and _EPOCH in row.values:
            epochs = self._epochs[row.counter] = _EpochSteps()
        if epochs is not None:
            row = epochs.continued(row)
        counter = self._counters.get(row.counter)
        if counter is None:
            counter = self._counters[row.counter] = _Counter()
        step, fingerprint = row.step or 0, _fingerprint(row.values)
        if counter.repeats(row, step, fingerprint):
            self.dropped += 1
            return None
        is_behind = step < counter.last and not counter.adds_keys(row, step)
        is_late = is_behind and counter.is_late(step)
        is_restart = is_behind and not is_late
        self.late += is_late
        if is_restart:
            self._go_back(row.counter, step)
        counter.remember(row, step, fingerprint)
        common = self._common_step(row.counter, step)
        return (row if common == step else replace(row, step=common)), is_restart

    def _go_back(self, name: str, step: int) -> None:
        """Let all counters go back: the job repeats the rollouts and the updates alike."""
        back = self._common_step(name, step)
        for other, counter in self._counters.items():
            updates = self.updates_per_rollout or 1
            is_update = other in self._update_counters
            counter.go_back(step if other == name else back * updates if is_update else back)
        self._rollout = min(self._rollout, back)
        self._updates = {rollout: seen for rollout, seen in self._updates.items() if rollout < back}

    def _common_step(self, name: str, step: int) -> int:
        if not self._update_counters:
            return step
        if name not in self._update_counters:
            if name in _ROLLOUT_COUNTERS:
                self._rollout = max(self._rollout, step)
            return step
        if self._rollout < 0:
            return step  # no row counts rollouts
        if self.updates_per_rollout is None:
            self._count_update(step)
            return self._rollout
        return step // self.updates_per_rollout

    def _count_update(self, update: int) -> None:
        """Learn how many updates a rollout has, from those that are followed by another rollout."""
        self._updates.setdefault(self._rollout, set()).add(update)
        complete = [len(seen) for rollout, seen in self._updates.items() if rollout < self._rollout]
        if len(complete) >= _MIN_ROLLOUTS:
            per_rollout = Counter(complete).most_common(1)[0][0]
            if update // per_rollout in (self._rollout, self._rollout - 1):
                self.updates_per_rollout = per_rollout


_ROLLOUT = "rollout"
_ROLLOUT_COUNTERS = frozenset({_ROLLOUT, "rollout/step", "perf"})


def adds_to(known: Set[str], values: Mapping[str, float]) -> bool:
    """Whether a row mainly has keys that its step lacks."""
    return sum(key in known for key in values) <= _ADDITION * len(values)


def split_by_counter(row: LogRow, framework: Framework) -> list[LogRow]:
    """The values of a row that count rollouts, and those that count updates, as separate rows.

    TensorBoard numbers both alike, so one row may hold values of update 6 and of rollout 6.
    """
    if row.counter or row.step is None or not framework.update_prefixes:
        return [row]
    prefixes = framework.update_prefixes
    updates = {key: value for key, value in row.values.items() if key.startswith(prefixes)}
    others = {key: value for key, value in row.values.items() if key not in updates}
    families = ((_ROLLOUT, others), (framework.update_counters[0], updates))
    return [replace(row, values=values, counter=name) for name, values in families if values]


def without_suffixes(row: LogRow, framework: Framework) -> LogRow:
    """A row whose keys do not say how they are reduced.

    A console and a tracker may log the same row, one of them with the suffixes.
    """
    if not framework.suffixes:
        return row
    values = {framework.without_suffix(key): value for key, value in row.values.items()}
    return replace(row, values=values)


def _fingerprint(values: Mapping[str, float]) -> Fingerprint:
    """Number and sum of the values; two measured rows hardly ever have the same."""
    total = sum(values.values())
    if math.isnan(total):
        total = sum(value for value in values.values() if math.isfinite(value))
    return len(values), total


def _is_measured(row: LogRow) -> bool:
    """Whether equal values cannot be chance: rewards of 0 and 1 are equal in many responses."""
    return sum(not float(value).is_integer() for value in row.values.values()) >= _MEASURED


def _has_all(known: Mapping[str, float], values: Mapping[str, float]) -> bool:
    return all(
        key in known and (known[key] == value or (known[key] != known[key] and value != value))
        for key, value in values.items()
    )
