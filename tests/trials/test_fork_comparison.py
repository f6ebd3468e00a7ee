"""The paired comparison of a fork: exact without an effect, and it finds one."""

import random

import pytest

from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.trials.forks.comparison import compare_branches, sign_flip_p_values

REMEDY = remedy_of("recompute-old-logprobs")
TARGET = "mismatch/first_ratio_off"


def branches(target: list[float], reward: list[float]) -> list[dict[str, float]]:
    return [{TARGET: off, "reward/mean": mean} for off, mean in zip(target, reward, strict=True)]


SICK = [0.4, 0.42, 0.38, 0.41, 0.39, 0.4]
CURED = [0.01, 0.0, 0.02, 0.0, 0.01, 0.0]
STEADY = [0.5, 0.52, 0.48, 0.51, 0.49, 0.5]


def test_a_treatment_that_helps_every_pair_is_kept() -> None:
    found = compare_branches(REMEDY, branches(CURED, STEADY), branches(SICK, STEADY), {})
    assert found.decision == "keep"
    assert found.verdict.startswith(f"{TARGET} falls (0.4 off, 0.00667 on, p = 0.016)")


def test_a_breached_guard_undoes_it() -> None:
    harmed = [each - 0.3 for each in STEADY]
    found = compare_branches(REMEDY, branches(CURED, harmed), branches(SICK, STEADY), {})
    assert found.decision == "undo"
    assert found.verdict.startswith("reward/mean falls by more than its tolerance")


def test_branches_that_are_equal_show_nothing() -> None:
    """The treatment changes nothing, so both branches of a pair are the same to the last bit."""
    found = compare_branches(REMEDY, branches(SICK, STEADY), branches(SICK, STEADY), {})
    assert found.decision == "undo"
    assert {each.p for each in found.comparisons} == {1.0}


def test_a_target_that_is_not_read_is_no_reason_to_keep() -> None:
    missing = [{"reward/mean": 0.5}] * 6
    found = compare_branches(REMEDY, missing, missing, {})
    assert (found.decision, found.verdict) == ("undo", f"too few readings of {TARGET} to compare")


def test_toward_baseline_counts_from_both_sides() -> None:
    remedy = remedy_of("smaller-entropy-bonus")
    reward = [{"reward/mean": 0.5 + 0.01 * n} for n in range(6)]
    treated = [{**each, "entropy/mean": 0.52} for each in reward]
    untreated = [{**each, "entropy/mean": 0.8 if n % 2 else 0.1} for n, each in enumerate(reward)]
    assert compare_branches(remedy, treated, untreated, {"entropy/mean": 0.5}).decision == "keep"
    assert compare_branches(remedy, treated, untreated, {}).decision == "undo"


@pytest.mark.parametrize("metrics", [1, 3])
def test_without_an_effect_small_p_values_are_as_rare_as_they_say(metrics: int) -> None:
    draw, runs, small = random.Random(0), 400, 0
    for _ in range(runs):
        rises = {str(n): [draw.gauss(0, 1) ** 3 for _ in range(6)] for n in range(metrics)}
        small += min(sign_flip_p_values(rises).values()) <= 0.05
    assert small / runs <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
