"""Whether the treated branches of a fork are better than the untreated ones.

Each pair of branches has the same seed and differs in the treatment only. If the treatment has no
effect on average, the differences of the pairs are as likely negative as positive. The p-value is
the share of the sign patterns whose statistic is at least the observed one (Fisher 1935); several
targets share the level by the largest statistic (Westfall and Young 1993).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.treatment.assessment import LEVEL, Assessment, Comparison, Role

Levels = Sequence[Mapping[str, float]]
"""The level of each metric in each branch, by pair."""


def compare_branches(
    remedy: Remedy, treated: Levels, untreated: Levels, baselines: Mapping[str, float]
) -> Assessment:
    """Keep the treatment if a target moved and no guard did, and undo it otherwise.

    Args:
        remedy: the treatment.
        treated: levels in the treated branches.
        untreated: levels in the untreated branches, in the same order of pairs.
        baselines: starting values of metrics, for targets that should return to them.
    """
    targets = _compare(remedy.targets, "target", treated, untreated, baselines)
    guards = [
        each
        for guard in remedy.guards
        for each in _compare([guard], "guard", treated, untreated, baselines)
    ]
    breached = [str(each) for each in guards if each.moved]
    helped = [str(each) for each in targets if each.moved]
    is_kept = bool(helped) and not breached
    names = " or ".join(target.metric for target in remedy.targets)
    reasons = breached or helped or [str(each) for each in targets]
    verdict = "; ".join(reasons) if targets else f"too few readings of {names} to compare"
    return Assessment("keep" if is_kept else "undo", (*targets, *guards), verdict)


def _compare(
    criteria: Sequence[Criterion],
    role: Role,
    treated: Levels,
    untreated: Levels,
    baselines: Mapping[str, float],
) -> list[Comparison]:
    readable = [each for each in criteria if _is_readable(each, treated, untreated, baselines)]
    rises = {each.metric: _rises(each, treated, untreated, baselines) for each in readable}
    p_values = sign_flip_p_values(rises)
    comparisons = []
    for criterion in readable:
        name = criterion.metric
        off = statistics.mean(levels[name] for levels in untreated)
        on = statistics.mean(levels[name] for levels in treated)
        tolerance = max(criterion.slack, criterion.tolerance * abs(off))
        moved = p_values[name] <= LEVEL and (role == "target" or abs(on - off) > tolerance)
        comparisons.append(
            Comparison(name, role, criterion.direction, off, on, p_values[name], moved)
        )
    return comparisons


def _is_readable(
    criterion: Criterion, treated: Levels, untreated: Levels, baselines: Mapping[str, float]
) -> bool:
    name = criterion.metric
    needs = criterion.direction == "toward-baseline"
    is_read = all(name in levels for levels in (*treated, *untreated))
    return is_read and (not needs or name in baselines)


def _rises(
    criterion: Criterion, treated: Levels, untreated: Levels, baselines: Mapping[str, float]
) -> list[float]:
    """The differences of the pairs, with the sign that makes the tested movement a rise."""
    name = criterion.metric
    pairs = [(on[name], off[name]) for on, off in zip(treated, untreated, strict=True)]
    if criterion.direction == "toward-baseline":
        start = baselines[name]
        return [abs(off - start) - abs(on - start) for on, off in pairs]
    sign = 1 if criterion.direction == "up" else -1
    return [sign * (on - off) for on, off in pairs]


def sign_flip_p_values(rises: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """One-sided p-value of each metric's rise, corrected for the number of metrics.

    Args:
        rises: differences of the pairs by metric, in the same order of pairs.
    """
    if not rises:
        return {}
    pairs = len(next(iter(rises.values())))
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=pairs)))
    flipped = {}
    for name, values in rises.items():
        differences = np.array(values)
        norm = float(np.linalg.norm(differences))
        flipped[name] = signs @ differences / norm if norm else np.zeros(len(signs))
    highest = np.max(list(flipped.values()), axis=0)
    # The first pattern is the observed one. Patterns with the same statistic differ by rounding.
    return {name: float(np.mean(highest >= each[0] - 1e-9)) for name, each in flipped.items()}
