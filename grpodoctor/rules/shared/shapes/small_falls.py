"""Falls of the outcome that are too small for an alarm by their size alone."""

from __future__ import annotations

import operator
import statistics
from functools import partial

from grpodoctor.rules.base import Sighting, cite
from grpodoctor.rules.shared.health.run_health import RECENT, first_step_where, share_lost
from grpodoctor.rules.shared.shapes.level_jumps import BEFORE, level_jump
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.plain_names import PLAIN_NAMES

_LOST = 0.25
"""Share of the level before that is lost: of training and held-out outcome, or in one reading."""
_EVALUATIONS = 3
"""Evaluations that make a level."""
_AFTER = 10
"""Readings after a fall."""
_NOISES = 5.0
"""Noises of one reading that a fall within one reading exceeds. Of 2,000 simulated runs of forty
noisy readings around one level, 7 had a fall of four, and 3 one of five
(tests/benchmarks/bench_chance.py)."""
_BACK = 0.9
"""Part of the level before the fall at which the outcome is back; see REW002."""


def joint_fall(chart: Chart, name: str) -> Sighting | None:
    """A fall of the training outcome that the held-out evaluations share.

    Two independent measures that both lost a quarter of their best level are as certain as one that
    lost more, and show that the policy got worse and not its prompts.
    """
    series, best = chart.series(name), chart.series(name).highest
    if best is None or best.level <= 0 or series.level(RECENT) > (1 - _LOST) * best.level:
        return None
    if not share_lost(series) >= _LOST:
        return None
    for heldout in HELDOUT:
        values = chart.series(heldout).tail(WINDOW)
        if len(values) < 3 * _EVALUATIONS:
            continue
        starts = range(len(values) - 2 * _EVALUATIONS + 1)
        levels = [statistics.median(values[at : at + _EVALUATIONS]) for at in starts]
        then = levels.index(max(levels))
        latest = values[-_EVALUATIONS:]
        if max(latest) >= min(values[then : then + _EVALUATIONS]):
            continue
        if not 0 < statistics.median(latest) <= (1 - _LOST) * levels[then]:
            continue
        noun = "Accuracy" if name == "accuracy/train" else "Reward"
        text = (
            f"{noun} fell from {best.level:.3g} (best, around step {best.step}) to "
            f"{series.level(RECENT):.3g}, and {PLAIN_NAMES[heldout]} from {levels[then]:.3g} to "
            f"{statistics.median(latest):.3g}."
        )
        middle = (best.level + series.level(RECENT)) / 2
        onset = partial(first_step_where, series, partial(operator.ge, middle), after=best.step)
        evidence = (cite(chart, name, best.level), cite(chart, heldout, levels[then]))
        return Sighting("warning", text, evidence, find_onset=onset)
    return None


def step_fall(chart: Chart, name: str) -> Sighting | None:
    """A fall within one reading from which the outcome did not recover: something changed then."""
    series = chart.series(name)
    steps, values = series.steps(WINDOW), series.tail(WINDOW)
    falls = [(values[at - 1] - values[at], at) for at in range(BEFORE, len(values) - _AFTER + 1)]
    if not falls:
        return None
    at = max(falls)[1]
    levels = level_jump(values, at, _NOISES)
    if levels is None:
        return None
    before, after = levels
    now = series.mean(2 * RECENT)
    if before <= 0 or not after <= (1 - _LOST) * before or now > _BACK * before:
        return None
    noun = "Accuracy" if name == "accuracy/train" else "Reward"
    text = f"{noun} fell from {before:.2g} to {after:.2g} at step {steps[at]} and is {now:.2g} now."
    evidence = (cite(chart, name, before),)
    return Sighting("info", text, evidence, ("recheck-reward",), partial(int, steps[at]))
