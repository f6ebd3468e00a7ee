"""Groups without reward variance, inferred for logs that do not count them.

Few trainers log how many groups contribute gradient, but most log something that implies it. Each
result is a lower bound of the share, so a bound of 0 means "unknown" and not "none":

- the highest reward of a batch equals the lowest one, or all advantages are 0: no group varies;
- a mean standard deviation of 0, within groups or over the batch: no group varies;
- a share of tokens without advantage, which is the share of groups up to their lengths;
- a share p of correct responses and G responses per group: at most G x p of the groups contain a
  correct response, and at most G x (1 - p) an incorrect one (Boole's inequality);
- pass@k over the training groups: the other groups are all-incorrect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.metric_qualifiers import INFERRED

ZERO_VARIANCE = "groups/zero_variance_rate"
ALL_INCORRECT = "groups/all_incorrect_rate"
ALL_CORRECT = "groups/all_correct_rate"
INFERRED_ZERO_VARIANCE = f"{ZERO_VARIANCE}/{INFERRED}"
INFERRED_ALL_INCORRECT = f"{ALL_INCORRECT}/{INFERRED}"
INFERRED_ALL_CORRECT = f"{ALL_CORRECT}/{INFERRED}"

ZERO_ADVANTAGE = 1e-4
"""Largest |advantage| that counts as 0. Rounding of equal rewards leaves up to 1e-4 after division
by a standard deviation of 0 plus 1e-6; a group with one different response among 64 has .13."""

ZERO_STD = 1e-8
"""Standard deviation that counts as 0: far below the resolution of any reward in use."""

_SOLVED = "pass_at_k/"
_TRAINING_GROUPS = ("skyrl", "slime")
"""Frameworks that compute pass@k from the training groups; others evaluate held-out prompts."""


def inferred_group_rates(
    numbers: Mapping[str, float], knobs: Mapping[str, Setting], framework: str
) -> dict[str, float]:
    """Lower bounds of the shares of zero-variance groups that the readings of a step imply.

    For steps without `groups/zero_variance_rate`.

    Args:
        numbers: the readings of the step, by canonical name.
        knobs: the settings in force, for the group size.
        framework: the framework that wrote the log.

    Returns:
        The bounds by metric name, for metrics that the step does not contain itself.
    """
    incorrect = _all_incorrect(numbers, knobs, framework)
    correct = _all_correct(numbers, knobs)
    bounds = [bound for bound in (_equal_rewards(numbers), _split(numbers)) if bound is not None]
    if incorrect is not None or correct is not None:
        bounds.append((incorrect or 0.0) + (correct or 0.0))
    inferred = {INFERRED_ZERO_VARIANCE: min(max(bounds), 1.0)} if bounds else {}
    if incorrect is not None and ALL_INCORRECT not in numbers:
        inferred[INFERRED_ALL_INCORRECT] = incorrect
    if correct is not None and ALL_CORRECT not in numbers:
        inferred[INFERRED_ALL_CORRECT] = correct
    return inferred


def _equal_rewards(numbers: Mapping[str, float]) -> float | None:
    """1 if all rewards within groups are equal, a share where it is known, None if nothing is."""
    share = numbers.get("advantage/zero_rate")
    effective = numbers.get("groups/effective_rate")
    if effective is not None:
        return 1 - effective
    if share is not None:
        return share
    verdicts = (
        _is_flat(numbers, "advantage/max", "advantage/min", ZERO_ADVANTAGE),
        _is_flat(numbers, "reward/max", "reward/min", 0.0),
        _is_zero(numbers.get("advantage/abs_max"), ZERO_ADVANTAGE),
        _is_zero(numbers.get("groups/reward_std"), ZERO_STD),
        _is_zero(numbers.get("reward/std"), ZERO_STD),
    )
    known = [verdict for verdict in verdicts if verdict is not None]
    return float(any(known)) if known else None


def _is_flat(
    numbers: Mapping[str, float], highest: str, lowest: str, tolerance: float
) -> bool | None:
    """Whether the two extremes are equal; for advantages, whether both are 0."""
    high, low = numbers.get(highest), numbers.get(lowest)
    if high is None or low is None or not (math.isfinite(high) and math.isfinite(low)):
        return None
    return max(abs(high), abs(low)) <= tolerance if tolerance else high == low


def _is_zero(number: float | None, tolerance: float) -> bool | None:
    return None if number is None else abs(number) <= tolerance


def _split(numbers: Mapping[str, float]) -> float | None:
    """The sum of the two kinds of zero-variance groups, where at least one is logged."""
    kinds = [numbers[name] for name in (ALL_CORRECT, ALL_INCORRECT) if name in numbers]
    return sum(kinds) if kinds else None


def _all_incorrect(
    numbers: Mapping[str, float], knobs: Mapping[str, Setting], framework: str
) -> float | None:
    bounds = []
    if framework in _TRAINING_GROUPS:
        solved = [number for name, number in numbers.items() if name.startswith(_SOLVED)]
        bounds += [1 - max(solved)] if solved else []
    size, correct = _group_size(numbers, knobs), numbers.get("accuracy/train")
    if size is not None and correct is not None:
        bounds.append(max(0.0, 1 - size * correct))
    return max(bounds) if bounds else None


def _all_correct(numbers: Mapping[str, float], knobs: Mapping[str, Setting]) -> float | None:
    size, correct = _group_size(numbers, knobs), numbers.get("accuracy/train")
    if size is None or correct is None:
        return None
    return max(0.0, 1 - size * (1 - correct))


def _group_size(numbers: Mapping[str, float], knobs: Mapping[str, Setting]) -> float | None:
    size = numbers.get("groups/size", knobs.get("group_size"))
    return float(size) if isinstance(size, int | float) and size >= 1 else None
