"""What an edit leaves that rounds the inputs of layers to 8 bits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpodoctor.probe.attribution.base import Identity
from grpodoctor.probe.attribution.computed_causes import cause_of
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
    ],
)
def test_what_a_nearly_whole_explanation_leaves_is_rounding(
    edit: str, share: float, is_rounding: bool
) -> None:
    """Weights are rounded once, the same way on both sides; inputs, with every kernel's errors."""
    found, tried, before, after = pair(edit, share)
    found.learn_rounding(tried, before, after)
    assert (found.noise == LEFT) == is_rounding


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
