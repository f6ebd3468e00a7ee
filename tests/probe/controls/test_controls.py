"""Controls: measurements with a known outcome pass, and others fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.controls.controls import (
    not_made,
    repeat_control,
    self_scoring_control,
    stale_control,
    weights_control,
)
from grpodoctor.probe.results.results import Comparison
from tests.probe.pairs import random_responses, write


def measured(tmp_path: Path, gap: float, *, prompts: int = 40, seed: int = 1) -> Comparison:
    folder = tmp_path / f"{gap}-{prompts}-{seed}"
    return compare(*write(folder, random_responses(8 * prompts, seed, gap=gap)))


def test_an_engine_that_repeats_itself_exactly(tmp_path: Path) -> None:
    folders = write(tmp_path, random_responses(40, 1, gap=0.0))
    for control in (self_scoring_control(*folders), repeat_control(*folders)):
        assert control.passed
        assert "exactly the same" in control.summary
        assert control.figures["prob_diff_largest"] == 0


def test_noise_is_tolerated_by_precision(tmp_path: Path) -> None:
    folders = write(tmp_path, random_responses(40, 1, gap=0.002))
    sixteen, thirty_two = (
        self_scoring_control(*folders, dtype=dtype) for dtype in ("bfloat16", "float32")
    )
    assert sixteen.passed
    assert thirty_two.passed is False
    assert "float32" in thirty_two.summary
    assert 1e-4 < sixteen.figures["prob_diff_mean"] < 2e-3


def test_an_engine_that_differs_from_itself_fails(tmp_path: Path) -> None:
    control = repeat_control(*write(tmp_path, random_responses(40, 1, gap=0.1)))
    assert control.passed is False
    assert control.name == "repeat"


def test_missing_log_probabilities_are_no_failure(tmp_path: Path) -> None:
    silent = [
        replace(each, learner=np.full(len(each.sampler), np.nan))
        for each in random_responses(16, 1)
    ]
    control = self_scoring_control(*write(tmp_path, silent))
    assert control.passed is None
    assert "Not measured" in control.summary


def test_a_stale_learner_is_flagged(tmp_path: Path) -> None:
    pair = measured(tmp_path, 1e-3)
    control = stale_control(pair, measured(tmp_path, 0.05), what="an older checkpoint")
    assert control.passed
    assert "an older checkpoint is flagged" in control.summary
    assert control.figures["stale_prob_diff_mean"] > 10 * control.figures["prob_diff_mean"]


def test_a_stale_learner_that_is_not_flagged_fails_the_control(tmp_path: Path) -> None:
    pair = measured(tmp_path, 1e-3)
    control = stale_control(pair, measured(tmp_path, 1e-3, seed=2), what="an older checkpoint")
    assert control.passed is False


def test_a_gap_as_large_as_between_checkpoints_decides_nothing(tmp_path: Path) -> None:
    pair = measured(tmp_path, 0.1)
    control = stale_control(pair, measured(tmp_path, 0.1, seed=2), what="an older checkpoint")
    assert control.passed is None
    assert "too large" in control.summary


@pytest.mark.parametrize("prompts", [40, 3])
def test_wrong_weights_closer_to_the_sampler_decide_nothing(tmp_path: Path, prompts: int) -> None:
    """The sampler may hold the older checkpoint itself."""
    pair, stale = (measured(tmp_path, gap, prompts=prompts) for gap in (0.05, 1e-3))
    control = stale_control(pair, stale, what="an older checkpoint")
    assert control.passed is None
    assert "closer to the sampler than the learner itself" in control.summary


@pytest.mark.parametrize(("wrong", "passed"), [(0.05, True), (1.1e-3, False)])
def test_without_intervals_a_factor_decides(tmp_path: Path, wrong: float, passed: bool) -> None:
    pair = measured(tmp_path, 1e-3, prompts=3)
    assert not pair.intervals
    control = stale_control(pair, measured(tmp_path, wrong, prompts=3), what="noise")
    assert control.passed is passed


def test_weights_are_compared_by_name() -> None:
    assert weights_control([], 40).passed
    differing = weights_control([f"layers.{n}.weight" for n in range(7)], 40)
    assert differing.passed is False
    assert "7 of 40 tensors differ" in differing.summary
    assert "layers.4.weight and 2 more" in differing.summary
    assert weights_control(None, 40).passed is None
    assert not_made("repeat", "there was no time").summary == "Not measured: there was no time."
