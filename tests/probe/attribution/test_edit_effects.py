"""Effects that were measured in one setup leave out edits in another, as far as they hold there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.edit_effects import (
    CALIBRATED,
    EffectMemory,
    angle,
    screened,
)
from grpodoctor.probe.attribution.variant import Setup
from grpodoctor.probe.contract import Processing

TOKENS = 400
RANDOM = np.random.default_rng(0)
GAP = RANDOM.normal(size=TOKENS) / 3
KNOWN = [RANDOM.normal(size=TOKENS) / 3 for _ in range(120)]
FOLDER = Path("sample")


def setup_of(**changes: Any) -> Setup:
    learner: Any = SimpleNamespace(key="learner")
    return replace(Setup(learner, Processing()), **changes)


def computed(turn: float) -> tuple[list[int], list[int]]:
    """The items that are computed and left out, if effects turn by an angle between the setups."""
    tried: list[int] = []
    effects = [*KNOWN, GAP + 0.3 * KNOWN[0], GAP + 2.0 * KNOWN[1]]

    def measured(items: Sequence[int]) -> list[np.ndarray | None]:
        tried.extend(items)
        return [turned(effects[item], turn, item) for item in items]

    items = list(range(len(effects)))
    left = screened(items, effects.__getitem__, measured, GAP, explained=0.3)
    return tried, left


def turned(effect: np.ndarray, by: float, seed: int) -> np.ndarray:
    other = np.random.default_rng(seed).normal(size=effect.size)
    other -= effect * (other @ effect) / (effect @ effect)
    other *= np.linalg.norm(effect) / np.linalg.norm(other)
    return np.asarray(math.cos(by) * effect + math.sin(by) * other)


def test_edits_whose_effect_would_have_to_turn_too_far_are_left_out() -> None:
    tried, left = computed(turn=0.2)
    assert {120, 121} <= set(tried)
    assert len(tried) == CALIBRATED
    assert sorted([*tried, *left]) == list(range(122))


def test_no_edit_is_left_out_if_effects_turn_much() -> None:
    tried, left = computed(turn=1.2)
    assert not left
    assert len(tried) == 122


def test_few_edits_are_no_calibration() -> None:
    tried: list[int] = []

    def measured(items: Sequence[int]) -> list[np.ndarray | None]:
        tried.extend(items)
        return [KNOWN[item] for item in items]

    assert not screened([0, 1, 2], KNOWN.__getitem__, measured, GAP, explained=0.3)
    assert sorted(tried) == [0, 1, 2]


def test_the_angle_is_that_of_the_explained_share() -> None:
    missing = GAP[:100]
    moved = missing + 0.5 * KNOWN[0][:100]
    explained = (moved @ missing) ** 2 / ((moved @ moved) * (missing @ missing))
    assert math.cos(angle(moved, missing)) ** 2 == pytest.approx(explained)
    assert angle(-moved, missing) == pytest.approx(math.pi - angle(moved, missing))
    assert angle(-moved, missing, either=True) == pytest.approx(angle(moved, missing))
    assert angle(np.zeros(100), missing) == pytest.approx(math.pi / 2)


def test_effects_are_known_in_other_setups_on_the_same_tokens() -> None:
    memory, first = EffectMemory(), setup_of()
    later = setup_of(edits=(("norm_epsilon", "0.1"),))
    edit = ("window", "4")
    memory.note(first, FOLDER, edit, GAP)
    memory.note(later, FOLDER, ("window", "8"), GAP)  # of a later setup: not kept
    assert memory.of(first, FOLDER) is None
    assert memory.of(later, Path("others")) is None
    known = memory.of(later, FOLDER)
    assert known is not None
    assert list(known.effects) == [edit]
    assert memory.in_first(first, FOLDER) is known
    assert memory.in_first(later, FOLDER) is None
