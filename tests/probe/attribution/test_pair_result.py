"""Two causes that were found together: their names, and how sure they are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.causes.computation.pair_result import result_of
from grpodoctor.probe.attribution.causes.computation.what_if import WhatIf
from grpodoctor.probe.attribution.explanation import Explanation
from grpodoctor.probe.attribution.search.pair_search import Change, ClosedPair
from grpodoctor.probe.attribution.search.selection import TriedCause
from grpodoctor.probe.attribution.split_steps import in_steps
from grpodoctor.probe.attribution.tokens import of_columns
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing

TARGET = np.full(200, -2.0)
SKIPPED = Change(("operation", '["mlp#1:sigmoid", "skipped"]'))
WINDOW = Change(("window", "8"))
HEAT = Change(None, 1.15)


class Learner:
    """The learner's values by the number of edits and the temperature."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def vary(self, variant: Variant, **changes: Any) -> Variant:
        setup = replace(variant.setup, **changes)
        off = 0.4 - 0.2 * len(setup.edits)
        return Variant(setup, of_columns(TARGET + off, TARGET))

    def is_loud(self, gap: float) -> bool:
        return gap > self.limit


def pair_of(first: Change, second: Change, left: float, limit: float = 1e-8) -> Any:
    engine: Any = SimpleNamespace(key="learner")
    variant = Variant(Setup(engine, Processing()), of_columns(TARGET + 0.4, TARGET))
    setup = second.applied(first.applied(variant.setup))
    after = Variant(setup, of_columns(TARGET + left, TARGET))
    experiments: Any = Learner(limit)
    pair = ClosedPair(first, second, after, ((SKIPPED, Change(("attention_scale", "0.5"))),))
    return experiments, variant, result_of(experiments, variant, pair)


def test_both_are_steps_with_their_own_names() -> None:
    experiments, variant, result = pair_of(SKIPPED, HEAT, 1e-6)
    assert [part.identity.id for part in result.parts] == ["missing-activation", "temperature"]
    assert result.confidence == "proven"
    tried = TriedCause(WhatIf(), result, 1.0, 1.0)
    steps = in_steps(experiments, tried, variant, result.after)
    assert [step.id for step in steps] == ["missing-activation", "temperature"]
    assert steps[0].outcome.after.setup.edits == (SKIPPED.edit,)
    assert steps[1].outcome.after is result.after
    assert steps[1].explained == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("left", "limit", "sure"),
    [(1e-6, 1e-8, "proven"), (0.02, 1e-8, "likely"), (0.05, 1e-2, "likely")],
)
def test_a_pair_is_proven_only_if_next_to_nothing_is_left(
    left: float, limit: float, sure: str
) -> None:
    """Rounding may be as large as what one of half a million pairs leaves by chance."""
    _, _, result = pair_of(SKIPPED, WINDOW, left, limit)
    assert {part.confidence for part in (result, *result.parts)} == {sure}
    rivals = [part.rivals for part in result.parts]
    assert rivals == ([(), (("attention_scale", "0.5"),)] if sure == "proven" else [(), ()])


def test_two_edits_of_one_cause_are_one() -> None:
    _, _, result = pair_of(WINDOW, Change(("layer_window", '["even", 8]')), 1e-6)
    assert not result.parts
    assert result.identity.id == "sliding-window"
    assert len(result.details) == 2


def test_the_change_that_lowers_the_gap_alone_comes_first() -> None:
    """The other one alone changes nothing, so its share would be none, and that of this one all."""
    _, variant, result = pair_of(HEAT, SKIPPED, 1e-6)
    first, second = result.parts
    assert [first.identity.id, second.identity.id] == ["missing-activation", "temperature"]
    assert second.after.gap < first.after.gap < variant.gap


@pytest.mark.parametrize(
    ("edit", "left", "is_rounding"),
    [("linear_rounding", 0.02, True), ("linear_rounding", 0.1, False), ("window", 0.02, False)],
)
def test_a_pair_with_rounded_inputs_shows_the_rounding_that_it_leaves(
    edit: str, left: float, is_rounding: bool
) -> None:
    """Neither step alone explains nearly all, and a further cause would be searched in the rest."""
    pair = Change((edit, '"fp8"')), Change(("attention_scale", "0.5"))
    experiments, variant, result = pair_of(*pair, left)
    experiments.named, experiments.with_routes = set(), lambda one: one
    experiments.rounding = SimpleNamespace(remains_without_flips=lambda _: False)
    explanation = Explanation(experiments)
    explanation.variant = explanation.first = variant
    explanation.tests.noise = 1e-12
    share = 1 - result.after.gap / variant.gap
    explanation._refreshed = lambda after: after  # type: ignore[method-assign]
    explanation._accept(TriedCause(WhatIf(), result, share, 1.0))
    assert len(explanation.steps) == 2
    assert (explanation.tests.noise == result.after.gap) == is_rounding
