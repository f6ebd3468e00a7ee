"""Metrics over a whole run as means of blocks of steps, so that two runs can be compared.

Blocks begin at multiples of their width, which is a power of two: the blocks of a longer run are
whole numbers of blocks of a shorter one. Memory does not grow with the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean, scalar

MOST_BLOCKS = 512
"""Blocks per run. When there are more, the width doubles."""

COMPARED = (
    ("reward", "reward/mean"),
    ("held-out reward", "reward/heldout"),
    ("accuracy", "accuracy/train"),
    ("held-out accuracy", "accuracy/heldout"),
    ("entropy", "entropy/mean"),
    ("response length", "length/mean"),
    ("truncated responses", "length/truncated_rate"),
    ("zero-variance groups", "groups/zero_variance_rate"),
    ("clipped low", "clip/low_rate"),
    ("clipped high", "clip/high_rate"),
    ("KL to reference", "kl/reference/k3"),
    ("mean mismatch", "mismatch/prob_diff_mean"),
    ("gradient norm", "optimizer/grad_norm"),
)
"""Label and metric of each compared quantity, the outcome first."""

_LENGTH = "length/mean"
_FEWEST_RESPONSES = 2


@dataclass
class _Block:
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tokens: float = 0.0

    def add(self, metric: str, value: float, count: int = 1) -> None:
        self.sums[metric] = self.sums.get(metric, 0.0) + value
        self.counts[metric] = self.counts.get(metric, 0) + count

    def merge(self, other: _Block) -> None:
        self.tokens += other.tokens
        for metric, total in other.sums.items():
            self.add(metric, total, other.counts[metric])


@dataclass(frozen=True, slots=True)
class MeanSeries:
    """One metric as means of blocks of steps."""

    width: int
    """Steps per block."""
    blocks: tuple[int, ...]
    """Number of each block that has readings; block `n` begins at step `n * width`."""
    means: tuple[float, ...]
    tokens: tuple[float, ...] = ()
    """Tokens generated up to the end of each block; empty if the run does not record them."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The first step of each block."""
        return tuple(block * self.width for block in self.blocks)


@dataclass(frozen=True, slots=True)
class RunMeans:
    """The compared metrics of a run at one moment."""

    series: dict[str, MeanSeries] = field(default_factory=dict)
    """By metric; a metric that was never read is missing."""

    @property
    def has_tokens(self) -> bool:
        """Whether the run records how many tokens were generated."""
        return any(each.tokens for each in self.series.values())


class StepMeans:
    """Collects the compared metrics of a run."""

    def __init__(self) -> None:
        self._width = 1
        self._blocks: dict[int, _Block] = {}
        self._step = -1

    def observe(self, record: StepRecord) -> None:
        """Add a step; one at or before the latest step means that the run went back."""
        if record.step <= self._step:
            rewound = record.step // self._width
            self._blocks = {at: block for at, block in self._blocks.items() if at < rewound}
        self._step = record.step
        while record.step // self._width >= MOST_BLOCKS:
            self._double()
        block = self._blocks.setdefault(record.step // self._width, _Block())
        for _, metric in COMPARED:
            value = scalar(record.values[metric]) if metric in record.values else None
            if value is not None and math.isfinite(value):
                block.add(metric, value)
        block.tokens += generated_tokens(record)

    def _double(self) -> None:
        merged: dict[int, _Block] = {}
        for at, block in sorted(self._blocks.items()):
            merged.setdefault(at // 2, _Block()).merge(block)
        self._blocks, self._width = merged, 2 * self._width

    def means(self) -> RunMeans:
        """The state now."""
        names = [metric for _, metric in COMPARED]
        series = {metric: self._series(metric) for metric in names}
        return RunMeans({metric: each for metric, each in series.items() if each.blocks})

    def _series(self, metric: str) -> MeanSeries:
        numbers: list[int] = []
        means: list[float] = []
        tokens: list[float] = []
        total = 0.0
        for at, block in sorted(self._blocks.items()):
            total += block.tokens
            if metric in block.counts:
                numbers.append(at)
                means.append(block.sums[metric] / block.counts[metric])
                tokens.append(total)
        return MeanSeries(self._width, tuple(numbers), tuple(means), tuple(tokens) if total else ())


def generated_tokens(record: StepRecord) -> float:
    """Tokens generated at a step; 0 if the record does not contain the responses' lengths.

    A log of another framework contains a mean as one measurement, which tells nothing about the
    number of responses behind it.
    """
    lengths = record.values.get(_LENGTH)
    is_sum = isinstance(lengths, Mean) and lengths.count >= _FEWEST_RESPONSES
    return float(lengths.total) if isinstance(lengths, Mean) and is_sum else 0.0


def widened(series: MeanSeries, width: int) -> MeanSeries:
    """The same series in wider blocks.

    Args:
        series: the series.
        width: a multiple of its width.
    """
    factor = width // series.width
    if factor <= 1:
        return series
    members: dict[int, list[int]] = {}
    for place, block in enumerate(series.blocks):
        members.setdefault(block // factor, []).append(place)
    return MeanSeries(
        width,
        tuple(members),
        tuple(_mean([series.means[place] for place in places]) for places in members.values()),
        tuple(series.tokens[places[-1]] for places in members.values()) if series.tokens else (),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
