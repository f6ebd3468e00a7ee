"""The latest readings of one metric, its baseline and its extremes, in constant memory."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from itertools import islice
from math import isfinite
from operator import sub
from typing import Any, Concatenate, ParamSpec, TypeVar

from grpodoctor.runs.block_means import BlockMeans
from grpodoctor.runs.estimators import Trend, median, noise_of_distances, robust_level, step_noise

WINDOW = 128
"""Readings kept per metric: enough for a trend, and small enough for hundreds of metrics."""

BASELINE = 10
"""Readings of a baseline; the failing runs that were studied diverge later."""

OPENING = 3
"""Readings of the opening, for runs that fail within their baseline."""

MOST_OPENING_NOISE = 4.0
"""Difference of opening and baseline, in noises of one reading, above which the baseline contains
a change: five standard errors."""

_NEVER = -(10**18)
"""A step before any step of a log."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The start of the run for one metric: robust level and spread."""

    level: float
    """Median of the first `BASELINE` finite readings."""
    spread: float
    """Their median absolute deviation, scaled to a standard deviation under normality."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The highest or lowest level of a metric: the median of a block, which ignores outliers."""

    level: float
    step: int
    """The last step of the block."""
    mean: float = math.nan
    """The mean of the block's finite values: the median of few shares jumps between them."""


class _WindowExtreme:
    """The highest or lowest reading of a window.

    Rules ask for it at every step or every second one, so only the new readings are compared with
    the previous answer, as long as that is in the window.
    """

    __slots__ = ("_asked", "_choose", "_step", "_value")

    def __init__(self, choose: Callable[..., float]) -> None:
        self._choose = choose
        self._value = math.nan
        self._step = self._asked = _NEVER

    def of(self, steps: Sequence[int], values: Sequence[float]) -> float:
        """The extreme of the last `WINDOW` readings."""
        newest = steps[-1]
        if self._asked == newest:
            return self._value
        count = len(steps)
        if self._step >= steps[-count if count < WINDOW else -WINDOW]:
            if steps[-2] == self._asked:  # the usual case, without a copy
                last = values[-1]
                if self._choose(last, self._value) == last:
                    self._value, self._step = last, newest
            else:
                since = values[bisect_right(steps, self._asked) :]
                extreme = self._choose(since)
                if self._choose(extreme, self._value) == extreme:
                    self._value, self._step = extreme, steps[since.index(extreme) - len(since)]
        else:
            latest = values[-WINDOW:]
            self._value = self._choose(latest)
            self._step = steps[latest.index(self._value) - len(latest)]
        self._asked = newest
        return self._value


class _Distances:
    """The distances between successive readings of a window, which the noise is computed from."""

    __slots__ = ("_asked", "_distances")

    def __init__(self) -> None:
        self._distances: list[float] = []
        self._asked = _NEVER

    def of(self, steps: Sequence[int], values: Sequence[float]) -> list[float]:
        """The distances, oldest first; only those of new readings are computed."""
        if self._asked != steps[-1]:
            begin = bisect_right(steps, self._asked)
            if not begin:  # none of the readings that were known is still there
                self._distances.clear()
            new = values[max(0, begin - 1) :]
            self._distances += map(abs, map(sub, islice(new, 1, None), new))
            del self._distances[: 1 - WINDOW]
            self._asked = steps[-1]
        return self._distances


class _Rises:
    """The directions of the changes in a window, one bit per change; the latest is the lowest bit.

    One comparison then counts the changes that two metrics make in the same direction.
    """

    __slots__ = ("_asked", "_bits")

    def __init__(self) -> None:
        self._bits = 0
        self._asked = _NEVER

    def of(self, steps: Sequence[int], values: Sequence[float]) -> int:
        """The bits, 1 for a rise; only those of new readings are computed."""
        if self._asked != steps[-1]:
            begin, bits = bisect_right(steps, self._asked), self._bits
            for place in range(max(begin, 1), len(values)):
                bits = bits << 1 | (values[place - 1] < values[place])
            self._bits = bits & (1 << WINDOW) - 1
            self._asked = steps[-1]
        return self._bits


class Series:
    """The latest readings of one metric, its baseline, and its extremes."""

    __slots__ = (
        "_distances",
        "_first",
        "_rises",
        "_steps",
        "_trend",
        "_trend_basis",
        "_unblocked",
        "_values",
        "_window_max",
        "_window_min",
        "baseline",
        "blocks",
        "highest",
        "lowest",
        "memo",
        "opening",
        "start",
    )

    def __init__(self) -> None:
        # Lists, a block longer than the window: their tails are cut out faster than a deque's.
        self._steps: list[int] = []
        self._values: list[float] = []
        self._first: list[tuple[int, float]] = []
        self._unblocked = 0
        self.blocks = BlockMeans()
        """The whole run but its latest readings, in blocks."""
        self._window_min, self._window_max = _WindowExtreme(min), _WindowExtreme(max)
        self._distances, self._rises = _Distances(), _Rises()
        self._trend: Trend | None = None
        self._trend_basis = -1, 0
        """The changes of the blocks that the trend knows, and the values that it counts."""
        self.memo: dict[Hashable, Any] = {}
        """What was computed from the readings so far, until the next one: levels by number of
        readings, noises by its negative, and results of functions; see `once_per_reading`."""
        self.opening: Extreme | None = None
        """The median of the first `OPENING` finite readings; None before that many."""
        self.baseline: Baseline | None = None
        self.start: Baseline | None = None
        """The starting value: the baseline, or the opening where the baseline contains a change."""
        self.highest: Extreme | None = None
        """The block of `BASELINE` readings with the highest median; None before the first block."""
        self.lowest: Extreme | None = None
        """The block of `BASELINE` readings with the lowest median."""

    def append(self, step: int, value: float) -> None:
        """Add the reading of a step later than all previous ones."""
        self._steps.append(step)
        self._values.append(value)
        if self.memo:
            self.memo.clear()
        if self.baseline is None and math.isfinite(value):
            self._first.append((step, value))
            self._set_starts()
        unblocked = self._unblocked + 1
        if unblocked == BASELINE:
            self._close_block()
        else:
            self._unblocked = unblocked

    def _drop_old(self) -> None:
        """Drop the readings before the window."""
        del self._steps[:-WINDOW], self._values[:-WINDOW]

    def _set_starts(self) -> None:
        """Set the opening, the baseline and the start once there are enough readings."""
        first = [value for _, value in self._first]
        if len(first) == OPENING:
            self.opening = Extreme(median(first), self._first[-1][0])
        if len(first) < BASELINE or self.opening is None:
            return
        self.baseline = self.start = Baseline(*robust_level(first))
        noise, opening = step_noise(first), self.opening.level
        # The median of three readings and that of ten differ by .8 of the noise of one reading.
        if abs(opening - self.baseline.level) > MOST_OPENING_NOISE * noise:
            self.start = Baseline(opening, noise)

    def _close_block(self) -> None:
        """Compare a block of readings with the extremes."""
        self._unblocked = 0
        steps, values = self._steps, self._values
        if len(values) > WINDOW:
            del steps[:-WINDOW], values[:-WINDOW]
        step, latest = steps[-1], values[-BASELINE:]
        total = sum(latest)
        if not self.blocks.take(latest, total):
            self.blocks.add(steps, values, BASELINE)
        if isfinite(total):
            # As `level` does, whose calls would take longer than the rest of this method.
            latest.sort()
            level = (latest[BASELINE // 2 - 1] + latest[BASELINE // 2]) / 2
            self.memo[BASELINE] = level
        elif math.isnan(level := self.level(BASELINE)):
            return
        highest, lowest = self.highest, self.lowest
        is_highest = highest is None or level > highest.level
        is_lowest = lowest is None or level < lowest.level
        if is_highest or is_lowest:
            block = Extreme(level, step, self.mean(BASELINE))
            self.highest = block if is_highest else highest
            self.lowest = block if is_lowest else lowest

    @property
    def first_steps(self) -> tuple[int, int]:
        """The steps of the first two finite readings; -1 for those that are missing."""
        steps = [step for step, _ in self._first[:2]]
        return (*steps, -1, -1)[:2]  # type: ignore[return-value]  # always two

    @property
    def first_step(self) -> int:
        """The step of the first finite reading; -1 if there is none."""
        return self._first[0][0] if self._first else -1

    @property
    def window_step(self) -> int:
        """The step of the oldest reading in the window, which must not be empty."""
        return self._steps[-len(self)]

    @property
    def first_value(self) -> float | None:
        """The first finite reading; None without one."""
        return self._first[0][1] if self._first else None

    def head(self, count: int) -> list[float]:
        """The first `count` finite readings, at most `BASELINE`; fewer if there are fewer."""
        return [value for _, value in self._first[:count]]

    def rewind(self, step: int) -> None:
        """Remove the readings from `step` on, since the run went back.

        Extremes in that range are removed too, and determined again from later readings.
        """
        self._drop_old()
        while self._steps and self._steps[-1] >= step:
            self._steps.pop()
            self._values.pop()
            self._unblocked = max(0, self._unblocked - 1)
        self.memo.clear()
        self._window_min, self._window_max = _WindowExtreme(min), _WindowExtreme(max)
        self._distances, self._rises = _Distances(), _Rises()
        self.blocks.rewind(step)
        kept = [pair for pair in self._first if pair[0] < step]
        if len(kept) < len(self._first):
            self._first, self.baseline, self.start = kept, None, None
            self.opening = self.opening if len(kept) >= OPENING else None
        if self.highest is not None and self.highest.step >= step:
            self.highest = None
        if self.lowest is not None and self.lowest.step >= step:
            self.lowest = None

    def __len__(self) -> int:
        count = len(self._values)
        if count > WINDOW:  # rules ask for the length all the time; `min` takes twice as long
            return WINDOW
        return count

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(zip(self._steps[-WINDOW:], self._values[-WINDOW:], strict=True))

    @property
    def last(self) -> float:
        """The latest reading."""
        return self._values[-1]

    @property
    def last_step(self) -> int:
        """The step of the latest reading; -1 if there is none."""
        return self._steps[-1] if self._steps else -1

    def tail(self, count: int) -> list[float]:
        """The latest `count` readings, oldest first; fewer if there are fewer."""
        if count >= WINDOW:
            return self._values[-WINDOW:]
        return self._values[-count:] if count > 0 else []

    def steps(self, count: int) -> list[int]:
        """The steps of `tail(count)`."""
        return self._steps[-min(count, WINDOW) :] if count > 0 else []

    def since(self, step: int) -> list[float]:
        """The readings of the window from a step on, oldest first."""
        return self._values[max(bisect_left(self._steps, step), len(self._steps) - WINDOW, 0) :]

    def window_min(self) -> float:
        """The lowest reading of the window, which must not be empty."""
        return self._window_min.of(self._steps, self._values)

    def window_max(self) -> float:
        """The highest reading of the window, which must not be empty."""
        return self._window_max.of(self._steps, self._values)

    def is_within(self, low: float, high: float) -> bool:
        """Whether all readings of the window are between two bounds; also if it is empty."""
        return not self._values or (low <= self.window_min() and self.window_max() <= high)

    def whole_run(self) -> list[float]:
        """The finite readings of the whole run, oldest first, or block means if they are many."""
        values = self._whole_run(0)
        # A finite sum saves looking at each value.
        if math.isfinite(sum(values)):
            return values
        return list(filter(math.isfinite, values))

    def _whole_run(self, begin: int) -> list[float]:
        """The readings or block means of the whole run, from the one with index `begin` on."""
        blocks = self.blocks.means
        values = blocks[begin:].tolist()
        if self.blocks.size == 1 and self._unblocked:
            latest = self._values[-self._unblocked :]
            values += latest[max(0, begin - len(blocks)) :]
        return values

    def course(self) -> list[float]:
        """All readings of the run, oldest first, or means of successive ones if they are many.

        NaN and infinite readings stay in a short run; a mean ignores them.
        """
        size, means = self.blocks.size, self.blocks.means.tolist()
        latest = self.tail(self.blocks.pending + self._unblocked)
        if size == 1:
            return [*means, *latest]
        parts = (latest[begin : begin + size] for begin in range(0, len(latest), size))
        finite = ([value for value in part if math.isfinite(value)] for part in parts)
        return [*means, *(sum(part) / len(part) for part in finite if part)]

    @property
    def readings(self) -> int:
        """Readings since the start of the run."""
        blocks = self.blocks
        count = len(blocks.means) * blocks.size + blocks.pending + self._unblocked
        held = len(self._values)
        if count >= held:  # the usual case, unless the run went back
            return count
        return max(count, len(self))

    @property
    def trend(self) -> float:
        """Standard score of a monotonic trend over the whole run; see `Trend`."""
        changes, counted = self._trend_basis
        if self._trend is None or changes != self.blocks.changes:
            self._trend, counted = Trend(), 0
        for value in self._whole_run(counted):
            counted += 1
            self._trend.add(value)
        self._trend_basis = self.blocks.changes, counted
        return self._trend.score

    def level(self, count: int) -> float:
        """Median of the latest `count` readings that are finite; NaN if there are none."""
        level: float | None = self.memo.get(count)
        if level is None:
            # `tail` and `median` would be further calls; rules ask for ten levels at every step.
            values = self._values[-count:] if 0 < count < WINDOW else self.tail(count)
            if values and isfinite(sum(values)):
                values.sort()
                middle = len(values) >> 1
                odd = len(values) & 1
                level = values[middle] if odd else (values[middle - 1] + values[middle]) / 2
            else:
                level = median(values)
            self.memo[count] = level
        return level

    def mean(self, count: int) -> float:
        """Mean of the latest `count` readings that are finite; NaN if there are none."""
        finite = self.tail(count)
        if not math.isfinite(sum(finite)):  # a finite sum saves looking at each value
            finite = list(filter(math.isfinite, finite))
        if not finite:
            return math.nan
        try:
            return math.fsum(finite) / len(finite)
        except OverflowError:  # of the sum, not of the mean
            return math.fsum(value / len(finite) for value in finite)

    def distances(self) -> list[float]:
        """The distances between successive readings of the window, oldest first; not a copy."""
        return self._distances.of(self._steps, self._values) if self._steps else []

    def rises(self, count: int) -> int:
        """Whether each of the latest `count` changes is a rise: a bit for each, the lowest last.

        Bits of changes before the window, or before the first one, are 0.
        """
        return self._rises.of(self._steps, self._values) & (1 << count) - 1 if self._steps else 0

    def noise(self, count: int) -> float:
        """Noise of one reading among the latest `count`; see `step_noise`."""
        noise: float | None = self.memo.get(-count)
        if noise is None:
            noise = self.memo[-count] = self._noise(min(count, len(self)))
        return noise

    def _noise(self, count: int) -> float:
        """The noise of one of the latest `count` readings, which are in the window."""
        if count < 2:
            return math.nan
        total = sum(self._distances.of(self._steps, self._values)[1 - count :])
        if math.isfinite(total):
            return noise_of_distances(total, count - 1)
        return step_noise(self.tail(count))


_UNKNOWN: Any = object()
"""Stands for a result that has not been computed."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def once_per_reading(
    function: Callable[Concatenate[Series, _Arguments], _Result],
) -> Callable[Concatenate[Series, _Arguments], _Result]:
    """Keep the result of a function of a series until the next reading.

    Many rules ask the same of the outcome at each step. The function must depend on nothing but the
    series and its other arguments, which must be hashable.
    """
    if len(signature(function).parameters) == 1:  # its key is found faster

        @wraps(function)
        def kept_alone(series: Series) -> _Result:
            result: _Result = series.memo.get(function, _UNKNOWN)
            if result is _UNKNOWN:
                result = series.memo[function] = function(series)  # type: ignore[call-arg]
            return result

        return kept_alone  # type: ignore[return-value]

    @wraps(function)
    def kept(series: Series, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        is_plain = not arguments and not named
        key = function if is_plain else (function, arguments, *named.items())
        result: _Result = series.memo.get(key, _UNKNOWN)
        if result is _UNKNOWN:
            result = series.memo[key] = function(series, *arguments, **named)
        return result

    return kept
