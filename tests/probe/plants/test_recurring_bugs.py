"""The plants of `recurring_bugs` load and do what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.plants import recurring_bugs
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.set_checks import (
    check_fault_changes_its_engine_alone,
    group_sizes,
    kinds_of,
    mostly_slow,
    probability_gap,
)

PLANTS = [each for each in unseen() if each.group.startswith("recurring-bugs")]
COMPUTED = (
    ("seed_oss", "row_bias_twice", "2"),
    ("arcee", "residual_after_norm", ""),
    ("olmoe", "clip_lost", ""),
    ("persimmon", "partial_pairs", ""),
    ("exaone4", "norm_before_block", ""),
    ("granitemoe", "weight_on_input", ""),
    ("ernie4_5", "rows_reversed", "48,64"),
    ("mamba", "conv_activation_lost", ""),
)
"""Faults of the forward pass that need no generation: family, name and value."""


def test_the_set_has_the_stated_size_and_each_kind_has_a_source() -> None:
    assert group_sizes(PLANTS) == {
        "recurring-bugs": 15,
        "recurring-bugs-double": 2,
        "recurring-bugs-healthy": 2,
    }
    kinds = kinds_of(PLANTS)
    assert kinds - {"hidden_temperature"} == set(recurring_bugs.SOURCES)
    assert set(recurring_bugs.EXPERT) == set(recurring_bugs.SOURCES)


@pytest.mark.parametrize(
    ("family", "fault", "value"),
    mostly_slow(COMPUTED, 4),
)
def test_a_fault_changes_the_values_of_its_engine_alone(
    load: Any, family: str, fault: str, value: str
) -> None:
    check_fault_changes_its_engine_alone(load, family, fault, value)


def test_four_bit_floats_have_the_values_of_the_format() -> None:
    row = torch.linspace(-1, 1, 32)
    rounded = recurring_bugs._mxfp4(row)
    assert {abs(each) for each in rounded.tolist()} <= {0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0}
    assert (rounded - row).abs().max() <= 0.126


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.key)
def test_a_fault_is_a_gap_that_matters_and_a_healthy_pair_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    """Without attribution."""
    mean = probability_gap(plant, root, monkeypatch)
    if plant.causes:
        assert mean > 0.01
    else:
        assert mean < (0.004 if plant.options.get("dtype") else 1e-5)
