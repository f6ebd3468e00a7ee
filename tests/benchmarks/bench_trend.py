"""The trend over a whole run: false positives and power by the length of the run.

Series without a trend, and series with a linear one whose score is 4 on average, have normal noise
with an autocorrelation of 0, .3 and .6. The table has the share of scores of at least 2.5, as
`rises_over_run` requires, for the blocks of `Series` and for means of ten readings from 128 on, as
the rules used before. The last lines are the autocorrelations of rewards and accuracies in the logs
of the tests. The exit code is 1 if, with independent noise, the power falls by more than a tenth
from one length to the next.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from bench_lead_time import opened, unpacked

from grpodoctor.rules.shared.health.whole_run import MIN_TREND_SCORE
from grpodoctor.runs.estimators import Trend
from grpodoctor.runs.series import BASELINE, WINDOW, Series
from grpodoctor.vocabulary.values import scalar

LENGTHS = (30, 60, 127, 128, 140, 200, 255, 256, 400, 1000, 4000)
AUTOCORRELATIONS = (0.0, 0.3, 0.6)
RUNS, SCORE, WARM_UP = 400, 4.0, 50
MOST_LOSS = 0.1
"""Standard errors of a power of .9 are .015."""
OUTCOMES = ("accuracy/train", "reward/mean")
FEWEST, LATEST = 40, 200


def noise(draw: np.random.Generator, count: int, autocorrelation: float) -> np.ndarray:
    """Noise with a standard deviation of 1."""
    values = draw.normal(size=count + WARM_UP) * math.sqrt(1 - autocorrelation**2)
    for at in range(1, len(values)):
        values[at] += autocorrelation * values[at - 1]
    return values[WARM_UP:]


def slope(count: int, autocorrelation: float) -> np.ndarray:
    """A linear rise, so large that least squares with the true noise finds a score of `SCORE`."""
    inflation = (1 + autocorrelation) / (1 - autocorrelation)
    return np.linspace(0, SCORE * math.sqrt(12 * inflation / count), count)


def score(values: Sequence[float]) -> float:
    """The score of a run of the rules."""
    series = Series()
    for step, value in enumerate(values):
        series.append(step, value)
    return series.trend


def score_by_tens(values: Sequence[float]) -> float:
    """The score with means of ten from a full window on, at most 64 of them."""
    if len(values) >= WINDOW:
        size = BASELINE
        while len(values) // size >= 64:
            size *= 2
        count = len(values) // size
        values = np.reshape(values[: count * size], (count, size)).mean(axis=1).tolist()
    trend = Trend()
    for value in values:
        trend.add(value)
    return trend.score


def shares(count: int, autocorrelation: float) -> tuple[float, ...]:
    """False positives and power of the blocks, then both of means of ten."""
    draw = np.random.default_rng(count)
    hits = []
    for _ in range(RUNS):
        flat = noise(draw, count, autocorrelation)
        rising = noise(draw, count, autocorrelation) + slope(count, autocorrelation)
        pair = flat.tolist(), rising.tolist()
        scores = [*map(score, pair), *map(score_by_tens, pair)]
        hits.append([each >= MIN_TREND_SCORE for each in scores])
    return tuple(map(statistics.fmean, zip(*hits, strict=True)))


def autocorrelation_of(values: Sequence[float]) -> float:
    """Autocorrelation of neighbors, whatever the trend.

    From the ranks' mean squared differences at a distance of two and of one, whose ratio is
    1 + the autocorrelation of a first-order process.
    """
    ranks = np.argsort(np.argsort(values)).astype(float)
    near, far = np.diff(ranks), ranks[2:] - ranks[:-2]
    return float(np.mean(far**2) / np.mean(near**2)) - 1


def logged() -> Iterator[tuple[str, float]]:
    """The autocorrelation of an outcome in each log that has at least `FEWEST` readings of it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, _, records in opened(list(unpacked(Path(folder)))):
            for metric in OUTCOMES:
                readings = [
                    scalar(step.values[metric]) for step in records if metric in step.values
                ]
                values = [value for value in readings if value is not None and math.isfinite(value)]
                if len(values) >= FEWEST and len(set(values)) > BASELINE:
                    yield f"{Path(name).stem} {metric}", autocorrelation_of(values[-LATEST:])
                    break


def main() -> int:
    """Print the tables."""
    print("| autocorrelation | readings | false positives | power | both with means of ten |")
    print("|---:|---:|---:|---:|---:|")
    falls = []
    for autocorrelation in AUTOCORRELATIONS:
        powers = []
        for count in LENGTHS:
            false, power, *tens = shares(count, autocorrelation)
            powers.append(power)
            text = f"{false:.3f} | {power:.2f} | {tens[0]:.3f}, {tens[1]:.2f}"
            print(f"| {autocorrelation:g} | {count} | {text} |", flush=True)
        falls.append(max(before - after for before, after in pairwise(powers)))
    print()
    for name, value in logged():
        print(f"{name}: autocorrelation {value:+.2f}")
    return int(falls[0] > MOST_LOSS)


if __name__ == "__main__":
    raise SystemExit(main())
