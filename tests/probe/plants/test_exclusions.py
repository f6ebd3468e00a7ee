"""The plants that forbid tokens do what they say, and are gaps that matter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.probe.plants import exclusions
from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.set_checks import check_gap_matters_unless_healthy, group_sizes

PLANTS = [each for each in unseen() if each.group.startswith("exclusion")]


def kept(probs: list[float], everything: list[int], **mine: str) -> list[bool]:
    """Which tokens are left."""
    logits = exclusions.changed_row(torch.tensor(probs).log(), everything, mine)
    flags: list[bool] = logits.isfinite().tolist()
    return flags


def test_the_set_has_the_stated_size() -> None:
    assert group_sizes(PLANTS) == {"exclusion": 12, "exclusion-healthy": 4}


def test_all_likely_tokens_but_the_last_are_excluded() -> None:
    probs = [0.05, 0.3, 0.5, 0.15]
    assert kept(probs, [1], xtc_random="0.1,1") == [True, False, False, True]
    assert kept(probs, [1], xtc_random="0.4,1") == [True] * 4  # one token alone is left alone
    assert kept(probs, [1], xtc_random="0.1,0") == [True] * 4
    assert kept(probs, [1], likeliest_excluded="1") == [True, True, False, True]


def test_a_repetition_is_penalized_by_its_length() -> None:
    flat = torch.zeros(8)
    changed = exclusions.changed_row(flat, [1, 2, 3, 5, 2, 3, 4, 1, 2], {"dry": "0.5,2,1"})
    assert changed.tolist() == [0, 0, 0, -1.0, 0, 0, 0, 0]  # 1 2 twice: 0.5 * 2 ** (2 - 1)


def test_what_may_follow_depends_on_the_last_token() -> None:
    probs = [0.25] * 4
    assert kept(probs, [5], grammar="2") == [True, False, True, False]
    assert kept(probs, [3], words="2") == [True, False, False, True]


def test_rare_tokens_are_cut() -> None:
    assert kept([0.9, 0.06, 0.03, 0.01], [1], eta_cutoff="0.04") == [True, True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.key)
def test_a_fault_is_a_gap_that_matters_and_a_healthy_pair_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    check_gap_matters_unless_healthy(root, monkeypatch, plant)
