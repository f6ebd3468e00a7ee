"""A policy that is another one from one step to the next, although no update was unusual."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grpodoctor.rules.shared.health.run_health import ENTROPY_METRICS, current_metric
from grpodoctor.rules.shared.shapes.level_jumps import BEFORE, NEARBY, largest_jump, level_jump
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT

_LENGTH = "length/mean"
_AFTER = (5, 10, 15)
"""Readings since the step: a level, and as many as an evaluation may be away. In between, only the
evaluations can have changed."""
_NOISES, _BEHAVIOR_NOISES = 6.0, 4.0
"""Change from one reading to the next in noises of one: of the outcome, as in REW014, and of what
must change at the same step, as in SYN010."""
_LOST = 0.35
"""Share of the outcome that is lost; see REW002."""
_HELDOUT_LEFT = 0.75
"""Share of the held-out level that is left at most: the policy changed, and not the prompts."""

_OTHER_LENGTH = 0.25
"""Change of the length in one step that no update makes; the noise of small batches is half of it.
"""
_HELD = 0.9
"""Part of the usual outcome that a policy has right before it is replaced."""
_LESS = 0.2
"""Part of the outcome or of the entropy that is lost with it."""

_RATE = "optimizer/learning_rate"
_MOST: Mapping[str, tuple[float, float]] = {
    "optimizer/grad_norm": (2.0, 0.0),
    _RATE: (1.5, 0.0),
    "clip/any_rate": (2.0, 0.01),
    "clip/high_rate": (2.0, 0.01),
    "clip/low_rate": (2.0, 0.01),
    "kl/old_policy/k1": (3.0, 0.001),
    "kl/old_policy/k3": (3.0, 0.001),
}
"""Measures of an update: the multiple of their usual level, and the level, that an ordinary update
does not exceed. The learning rate alone measures no update."""


class Replacement(NamedTuple):
    """A step at which the policy became another one."""

    step: int
    outcome: tuple[float, float]
    """Levels before and after it."""
    moved: dict[str, tuple[float, float]]
    """The same of entropy and length, by metric."""
    is_measured: bool
    """Whether an update before it was measured; else only the learning rate is known."""


def measures_replacement(chart: Chart, outcome: str | None) -> bool:
    """Whether a run logs what a replaced policy changes, and its updates or their rate."""
    if outcome is None or not len(chart.series(_LENGTH)):
        return False
    has_entropy = len(chart.series(current_metric(chart, ENTROPY_METRICS))) > 0
    return has_entropy and any(len(chart.series(name)) for name in _MOST)


def replaced_policy(chart: Chart, outcome_name: str) -> Replacement | None:
    """The step at which entropy, length and outcome jumped at once, after an ordinary update.

    A policy that diverges takes several updates for it, with gradients or clip fractions that grow,
    or follows a learning rate that was raised. Held-out evaluations must have fallen as well, where
    there are any: otherwise the prompts, the sampler or the verifier changed.

    Args:
        chart: the run.
        outcome_name: the metric of its outcome.
    """
    outcome = chart.series(outcome_name)
    values = outcome.tail(BEFORE + _AFTER[-1])
    if len(values) < BEFORE + _AFTER[0]:
        return None
    falls = [
        (after, fall)
        for after in _AFTER
        if (fall := _fall(values, len(values) - after)) is not None
    ]
    if not falls:
        return None  # the usual case
    behavior = [
        name for name in (current_metric(chart, ENTROPY_METRICS), _LENGTH) if chart.is_fresh(name)
    ]
    if len(behavior) < 2:
        return None
    for after, fall in falls:
        step = outcome.steps(after)[0]
        moved = {name: _jump(chart.series(name), after, _BEHAVIOR_NOISES) for name in behavior}
        jumps = {name: jump for name, jump in moved.items() if jump is not None}
        is_same_step = all(chart.series(name).steps(after)[0] == step for name in behavior)
        if len(jumps) < len(behavior) or not is_same_step:
            continue
        measures = _ordinary_measures(chart, step)
        if measures and _heldout_fell(chart, step):
            return Replacement(step, fall, jumps, is_measured=measures != [_RATE])
    return None


def sudden_length(chart: Chart, outcome_name: str) -> Replacement | None:
    """The step at which the length jumped with the outcome or the entropy, as no update does.

    Much shorter responses that earn less at once, without more truncation: another stop token or
    other weights. Much longer ones with much less entropy: other weights. Harder prompts, which
    make responses longer as well, raise the entropy.

    Args:
        chart: the run.
        outcome_name: the metric of its outcome.
    """
    lengths = chart.series(_LENGTH)
    if not len(lengths) or (1 - _OTHER_LENGTH) * lengths.window_max() < lengths.window_min():
        return None  # the usual case
    found = largest_jump(lengths)
    if found is None:
        return None
    after, (old, new) = found
    step = lengths.steps(after)[0]
    is_shorter = new <= (1 - _OTHER_LENGTH) * old
    if not is_shorter and not new >= (1 + _OTHER_LENGTH) * old:
        return None
    moved = {_LENGTH: (old, new)}
    outcome = chart.series(outcome_name)
    fell = _jump_at(outcome, step)
    if is_shorter:
        truncated = _jump_at(chart.series("length/truncated_rate"), step)
        is_cut = truncated is not None and truncated[1] > truncated[0]
        if fell is None or not _lost_part(fell, _LESS) or is_cut:
            return None
        moved[outcome_name] = fell
    else:
        sank = _entropy_sank(chart, step, outcome, fell)
        if sank is None:
            return None
        moved |= sank
    measures = _ordinary_measures(chart, step)
    if not measures:
        return None
    return Replacement(step, fell or (0.0, 0.0), moved, is_measured=measures != [_RATE])


def _entropy_sank(
    chart: Chart, step: int, outcome: Series, fell: tuple[float, float] | None
) -> dict[str, tuple[float, float]] | None:
    """The entropy before and after it sank at a step, in a policy that had not diverged before."""
    entropy = current_metric(chart, ENTROPY_METRICS)
    sank = _jump_at(chart.series(entropy), step)
    if sank is None or not sank[1] <= (1 - _LESS) * sank[0]:
        return None
    if fell is not None and _lost_part(fell, _LOST):
        return None  # see `replaced_policy`
    earlier = [value for at, value in outcome if at < step][-BEFORE:]
    if len(earlier) < BEFORE:
        return None
    levels = statistics.median(earlier), statistics.median(earlier[-NEARBY:])
    is_held = levels[1] >= levels[0] - (1 - _HELD) * abs(levels[0])
    return {entropy: sank} if is_held else None


def _lost_part(levels: tuple[float, float], part: float) -> bool:
    """Whether an outcome, which may be negative, fell by a part of its level."""
    before, after = levels
    return before - after >= part * abs(before) and after < before


def _jump_at(series: Series, step: int) -> tuple[float, float] | None:
    """The levels before and after a step at which one reading changed them."""
    steps = series.steps(WINDOW)
    at = bisect_left(steps, step)
    if at >= len(steps) or steps[at] != step:
        return None
    after = len(steps) - at
    return _jump(series, after, _BEHAVIOR_NOISES) if after >= NEARBY else None


def _fall(values: Sequence[float], at: int) -> tuple[float, float] | None:
    """The levels before and after a reading that lost much of the outcome; None if it did not."""
    if at < BEFORE or values[at] >= values[at - 1]:
        return None
    if values[at + NEARBY - 1] >= values[at - NEARBY] or values[at + 1] >= values[at - 1]:
        return None  # nearly always enough, without copies
    if max(values[at : at + NEARBY]) >= min(values[at - NEARBY : at]):
        return None  # the usual case, before the noise is estimated
    fall = level_jump(values, at, _NOISES)
    return fall if fall and fall[1] <= min((1 - _LOST) * fall[0], fall[0]) else None


def _jump(series: Series, after: int, noises: float) -> tuple[float, float] | None:
    """The levels before and after a step that one reading made, `after` readings ago."""
    values = series.tail(BEFORE + after)
    return level_jump(values, BEFORE, noises) if len(values) == BEFORE + after else None


def _ordinary_measures(chart: Chart, step: int) -> list[str]:
    """The measures of the updates right before a step; none if one was above its usual level."""
    seen = []
    for name, (factor, least) in _MOST.items():
        earlier = [abs(value) for at, value in chart.series(name) if at < step][-BEFORE:]
        if len(earlier) < BEFORE or not math.isfinite(sum(earlier)):
            continue
        seen.append(name)
        usual = statistics.median(earlier[:-NEARBY])
        if max(earlier[-NEARBY:]) > max(factor * usual, least):
            return []
        at_step = [abs(value) for at, value in chart.series(name) if at == step]
        if name == _RATE and at_step and at_step[0] > factor * usual:
            return []
    return seen


def _heldout_fell(chart: Chart, step: int) -> bool:
    """Whether the held-out evaluations fell since a step; true if there are none at all."""
    for name in HELDOUT:
        series = chart.series(name)
        if not len(series):
            continue
        readings = list(zip(series.steps(WINDOW), series.tail(WINDOW), strict=True))
        before = [value for at, value in readings if at < step][-3:]
        later = [value for at, value in readings if at > step]
        if len(before) < 2:
            continue
        return bool(later) and later[0] <= _HELDOUT_LEFT * statistics.median(before)
    return True
