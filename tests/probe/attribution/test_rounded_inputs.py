"""What an edit leaves that rounds the inputs of layers to 8 bits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.base import Identity
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.rounding import of_steps
from grpodoctor.probe.attribution.search.gap_tests import GapTests

GAP, LEFT = 0.01, 1e-4


def pair(edit: str, share: float) -> tuple[GapTests, Any, Any, Any]:
    outcome = SimpleNamespace(identity=Identity("quantisation", "", ()))
    before = SimpleNamespace(setup=SimpleNamespace(edits=()), gap=GAP)
    after = SimpleNamespace(setup=SimpleNamespace(edits=((edit, '"fp8/row"'),)), gap=LEFT)
    return (
        GapTests(SimpleNamespace()),
        SimpleNamespace(share=share, outcome=outcome),
        before,
        after,
    )


@pytest.mark.parametrize(
    ("edit", "share", "is_rounding"),
    [
        ("linear_rounding", 0.99, True),
        ("activation_rounding", 0.99, True),
        ("linear_rounding", 0.9, False),
        ("weight_rounding", 0.99, False),
        ("router_bias", 0.999, True),
        ("router_bias", 0.99, False),
    ],
)
def test_what_a_nearly_whole_explanation_leaves_is_rounding(
    edit: str, share: float, is_rounding: bool
) -> None:
    """Weights are rounded once, the same way on both sides; inputs, with every kernel's errors."""
    found, tried, before, after = pair(edit, share)
    found.learn_rounding(tried, before, after)
    assert (found.noise == LEFT) == is_rounding


@pytest.mark.parametrize(
    ("edit", "share", "left", "is_rounding"),
    [
        ("kv_cache", 0.99, 1e-6, True),
        ("in_response", 0.99, 1e-6, True),
        ("kv_cache", 0.99, 1e-4, False),
        ("kv_cache", 0.9, 1e-6, False),
        ("weight_rounding", 0.99, 1e-6, False),
    ],
)
def test_steps_of_a_cache_leave_what_errors_of_kernels_move_across_their_borders(
    edit: str, share: float, left: float, is_rounding: bool
) -> None:
    found, tried, before, after = pair(edit, share)
    if edit == "in_response":
        after.setup.edits = ((edit, '["kv_cache", "fp8"]'),)
    after.gap, found.noise = left, 1e-11
    assert (found.shown_rounding(tried, before, after) is not None) == is_rounding


def test_two_sides_that_round_to_the_same_steps_differ_by_the_stated_mean_square() -> None:
    """A simulation of the formula, with steps a thousand times the errors."""
    numbers = np.random.default_rng(1)
    exact, errors = numbers.uniform(0, 100, 400_000), 1e-3 * numbers.standard_normal(400_000)
    left = np.mean((np.round(exact + errors) - np.round(exact)) ** 2)
    noise, whole = np.mean(errors**2), np.mean((np.round(exact) - exact) ** 2)
    assert of_steps(noise, whole).noise == pytest.approx(left, rel=0.1)


def test_both_spellings_of_the_rotary_layout_are_one_cause() -> None:
    """Two names of one cause would be rivals, and neither would be proven."""
    setting = cause_of(("setting", '["rope_interleave", false]'))
    assert setting.id == cause_of(("rope_layout", '"halves"')).id == "rope-layout"


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ('["D", 0.0]', "missing-skip"),
        ('["dt_bias", 0.0]', "missing-bias"),
        ('["dt_bias", 2.0]', "bias-scale"),
    ],
)
def test_parameters_per_head_have_causes_of_their_own(value: str, cause: str) -> None:
    assert cause_of(("parameter_scale", value)).id == cause
