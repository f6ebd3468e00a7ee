"""Fitting the numbers of accepted causes again, so that their errors do not look like causes.

A number was fitted to the whole gap. If the gap had a second cause, or if the first guess was a
round number, a part of the gap remains that another number would remove.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpodoctor.probe.attribution.edits import shown
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_trials import refined_numbers, rounded_to
from grpodoctor.probe.attribution.tokens import difference_gap, falls
from grpodoctor.probe.attribution.variant import Setup, Variant

_AROUND = (0.97, 0.985, 1.015, 1.03)
"""First factors of a number; a fit under another fault is rarely further away."""
_ROUNDS = 3
_SWEEPS = 2
"""A number that was fitted first is fitted again next to the others' new values."""
_DIGITS = (1, 2, 3)
_KEPT = 0.98
"""Share of the tokens that must keep a finite log-probability."""
BETTER = 0.95
"""Factor by which the gap must fall for another number to be kept."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a setup that an accepted cause has set."""

    name: str
    value: float
    put: Callable[[Setup, float], Setup]
    """The setup with another value."""
    is_whole: bool = False
    """Whether it is a count."""


class _FewResponses:
    """The gap of a few responses in other setups."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._tokens = experiments, variant.tokens
        self._folder, self._at = experiments.sub_sample(variant)

    def gap(self, setup: Setup) -> float:
        """The gap in a setup; infinite if the setup does not fit the model."""
        (learner_N,) = self._experiments.score_edits(setup, [setup.edits], self._folder)
        if learner_N is None:
            return math.inf
        sampler_N, learner_N = self._tokens.sampler_N[self._at], learner_N[: self._at.size]
        finite = self._tokens.counted_N[self._at] & np.isfinite(sampler_N) & np.isfinite(learner_N)
        known = self._tokens.counted_N[self._at] & np.isfinite(sampler_N)
        if finite.sum() < _KEPT * known.sum() or not finite.any():
            return math.inf  # a truncation that excludes the tokens that differ
        return difference_gap(learner_N[finite], sampler_N[finite])


def refitted(experiments: Experiments, variant: Variant, original: Setup) -> Variant:
    """The variant with the numbers that leave the smallest gap; the same if none is better.

    The numbers are fitted one after another on a few responses, and tried on all of the part.

    Args:
        experiments: of the case.
        variant: the variant whose numbers are fitted.
        original: the setup before the causes; numbers that are equal in both stay.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    setup = variant.setup
    if setup.replay or setup.rescored is not None:
        return variant  # the learner follows the sampler's experts, or both sides score alike
    count = len(list(numbers_of(setup, original)))
    if not count:
        return variant
    few = _FewResponses(experiments, variant)
    for _ in range(min(count, _SWEEPS)):
        for number in numbers_of(setup, original):
            setup = number.put(setup, _best_value(few, setup, number))
        setup = _rounded_together(few, setup, original)
        if not experiments.is_loud(few.gap(setup)):
            break
    if setup == variant.setup:
        return variant
    after = experiments.vary(variant, processing=setup.processing, edits=setup.edits)
    is_better = after.gap < BETTER * variant.gap and falls(variant.tokens, after.tokens)
    return after if is_better else variant


def _rounded_together(few: _FewResponses, setup: Setup, original: Setup) -> Setup:
    """The setup with all numbers rounded, if that leaves the smallest gap.

    Settings seldom have many digits. Each number was fitted next to inexact others, so a single
    one that is rounded may fit worse.
    """
    setups = [setup]
    for digits in _DIGITS:
        rounded = setup
        for number in numbers_of(setup, original):
            if not number.is_whole:
                rounded = number.put(rounded, rounded_to(number.value, digits))
        setups.append(rounded)
    return min(setups, key=few.gap)


def fitted_numbers(setup: Setup, before: Setup) -> tuple[str, ...]:
    """The numbers that differ between two setups, in words."""
    return tuple(
        f"fitted again: {number.name} {shown(number.value)}" for number in numbers_of(setup, before)
    )


def numbers_of(setup: Setup, original: Setup) -> Iterator[Number]:
    """The numbers that differ from those of the original setup."""
    if setup.processing.top_k != original.processing.top_k and setup.processing.top_k:
        top_k = setup.processing.top_k
        yield Number("top-k", top_k, _put_top_k, is_whole=True)
    for name in ("temperature", "top_p", "min_p"):
        value = getattr(setup.processing, name)
        if value != getattr(original.processing, name) and value > 0:
            yield Number(name.replace("_", "-"), value, _put_processing(name))
    for place, (name, content) in enumerate(setup.edits):
        value = json.loads(content)
        *attribute, number = value if isinstance(value, list) else [value]
        if (name, content) not in original.edits and isinstance(number, float):
            is_of_folder = name in ("update_part", "update_scale")
            words = "" if is_of_folder else " ".join(map(str, attribute))
            yield Number(words or name.replace("_", " "), number, _put_edit(place))


def _put_top_k(setup: Setup, value: float) -> Setup:
    return replace(setup, processing=replace(setup.processing, top_k=int(value)))


def _put_processing(name: str) -> Callable[[Setup, float], Setup]:
    def put(setup: Setup, value: float) -> Setup:
        changes: dict[str, Any] = {name: value if name == "temperature" else min(value, 1.0)}
        return replace(setup, processing=replace(setup.processing, **changes))

    return put


def _put_edit(place: int) -> Callable[[Setup, float], Setup]:
    def put(setup: Setup, value: float) -> Setup:
        name, content = setup.edits[place]
        former = json.loads(content)
        changed = json.dumps([*former[:-1], value] if isinstance(former, list) else value)
        edits = (*setup.edits[:place], (name, changed), *setup.edits[place + 1 :])
        return replace(setup, edits=edits)

    return put


def _best_value(few: _FewResponses, setup: Setup, number: Number) -> float:
    """The value of a number that leaves the smallest gap on a few responses."""
    losses: dict[float, float] = {}
    if number.is_whole:  # the ranks of a few tokens were off by one next to another fault
        near = [number.value + far for far in (0, -1, 1, -2, 2) if number.value + far >= 1]
        return min(near, key=lambda value: few.gap(number.put(setup, value)))
    values: Sequence[float] = [number.value, *(number.value * factor for factor in _AROUND)]
    for _ in range(1 + _ROUNDS):
        for value in values:
            losses[value] = few.gap(number.put(setup, value))
        values = refined_numbers(losses)
    return min(losses, key=lambda value: losses[value])
