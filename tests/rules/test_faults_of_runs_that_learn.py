"""Faults of runs that learn all the same: another sampling distribution, labels, a verifier."""

from __future__ import annotations

import random

import pytest

from grpodoctor.monitor.diagnosis.causal_table import path_between
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, every, noisy, ramp, steps
from tests.rules.test_causes_of_trained_runs import at, run

REWARD, HELDOUT, LENGTH = "reward/mean", "accuracy/heldout", "length/mean"
LOSS, CUT, ENTROPY = "optimizer/loss", "length/truncated_rate", "entropy/mean"
DIFFERENCE = "mismatch/prob_diff_mean"


@pytest.mark.parametrize(
    ("metric", "gap"), [("mismatch/kl_k1", 0.008), ("mismatch/logprob_diff_mean", 0.02)]
)
def test_a_gap_that_is_a_large_part_of_the_entropy_is_another_distribution(
    metric: str, gap: float
) -> None:
    def compared(entropy: float, **others: Curve) -> Patient:
        gaps: dict[str, Curve] = {metric: noisy(gap, 0.0005, 1), ENTROPY: noisy(entropy, 0.001, 2)}
        return run({**gaps, REWARD: noisy(ramp(0.4, 0.8, 60), 0.02, 3), **others}, 60)

    finding = compared(0.05).finding("MIS001")
    assert (finding.severity, finding.onset_step) == ("info", 0)
    assert "of the entropy" in finding.summary
    assert compared(0.5).findings("MIS001") == []
    # Unlikely tokens alone differ, or hardly any entropy is left to compare with.
    assert compared(0.05, **{DIFFERENCE: noisy(0.001, 0.0001, 4)}).findings("MIS001") == []
    assert compared(0.05, **{DIFFERENCE: noisy(0.01, 0.0001, 4)}).finding("MIS001").active
    tiny: Curve = noisy(0.001, 0.0001, 1)
    assert compared(0.002, **{metric: tiny}).findings("MIS001") == []


def test_such_a_gap_is_an_alarm_if_nothing_rises_and_nothing_corrects_for_it() -> None:
    def severity(reward: Curve, correction: str = "none", **others: Curve) -> str:
        curves: dict[str, Curve] = {
            **others,
            "mismatch/kl_k1": noisy(0.008, 0.0005, 1),
            ENTROPY: noisy(0.05, 0.001, 2),
            REWARD: noisy(reward, 0.02, 3),
        }
        patient = Patient(steps(80, curves), knobs={"correction": correction})
        return patient.finding("MIS001").severity

    assert severity(0.4) == "warning"
    assert severity(0.4, "tis_token") == "info"
    assert severity(ramp(0.4, 0.8, 60)) == "info"
    assert severity(0.9, **{"accuracy/train": 0.98}) == "info"  # solved from the start


def test_such_a_gap_may_shrink_to_half_of_that_part_of_the_entropy() -> None:
    def found(first: float) -> bool:
        curves: dict[str, Curve] = {
            "mismatch/kl_k1": noisy(ramp(first, 0.0035, 40), 0.0001, 1),
            ENTROPY: noisy(0.05, 0.001, 2),
            REWARD: noisy(ramp(0.4, 0.8, 60), 0.02, 3),
        }
        return any(each.active for each in run(curves, 100).findings("MIS001"))

    assert found(0.008)
    assert not found(0.0035)


def timeouts(**others: Curve) -> Patient:
    """At step 40 long responses begin to earn nothing, and become shorter after that."""
    curves: dict[str, Curve] = {
        REWARD: noisy(lambda at: 0.7 if at < 40 else ramp(0.4, 0.6, 50, begin=40)(at), 0.03, 1),
        LENGTH: noisy(ramp(300, 150, 50, begin=45), 6, 2),
        LOSS: noisy(lambda at: -0.02 if at < 40 else 0.12, 0.03, 3, low=-1.0),
        "clip/any_rate": 0.0,
    }
    return run({**curves, **others}, 90)


def test_longer_responses_that_earn_less_since_a_step_show_in_the_loss() -> None:
    finding = timeouts().finding("REW013")
    assert (finding.severity, finding.onset_step, finding.active) == ("warning", 40, True)
    advantage: Curve = noisy(lambda at: 0.02 if at < 40 else -0.12, 0.03, 3, low=-1.0)
    assert timeouts(**{"advantage/mean": advantage, LOSS: 0.0}).finding("REW013").onset_step == 40


def test_a_loss_that_shows_no_covariance_with_length_is_quiet() -> None:
    # The loss is averaged per response; prompts that became harder have longer responses.
    assert timeouts(**{LOSS: noisy(0.0, 0.03, 3, low=-1.0)}).findings("REW013") == []
    longer: Curve = noisy(lambda at: 200 if at < 40 else 300, 6, 2)
    assert timeouts(**{LENGTH: longer}).findings("REW013") == []
    # Ratios differ from 1; the reward keeps its level; the change passed.
    assert timeouts(**{"clip/any_rate": 0.1}).findings("REW013") == []
    assert timeouts(**{REWARD: noisy(0.7, 0.03, 1)}).findings("REW013") == []
    passing: Curve = noisy(lambda at: 0.12 if 40 <= at < 50 else -0.02, 0.03, 3, low=-1.0)
    assert not any(each.active for each in timeouts(**{LOSS: passing}).findings("REW013"))


def memorised(heldout: Curve, rise: float = 0.09) -> Patient:
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.25, 0.25 + rise, 120), 0.03, 1),
        "reward/std": 0.45,
        HELDOUT: every(5, noisy(heldout, 0.02, 2)),
    }
    return run(curves, 150)


def test_a_rise_of_the_reward_alone_begins_at_the_step_that_made_it() -> None:
    """A reward that jumps shows no learning, and what happened at that step explains it."""
    curves: dict[str, Curve] = {
        REWARD: noisy(at(70, ramp(1.5, 1.8, 5, begin=60), 3.0), 0.05, 1),
        HELDOUT: every(5, noisy(0.34, 0.01, 2)),
    }
    assert run(curves, 150).finding("REW008").onset_step == 70


def test_a_slow_rise_that_no_evaluation_shares_is_a_note() -> None:
    finding = memorised(0.45).finding("REW008")
    assert finding.severity == "info"
    assert memorised(ramp(0.45, 0.54, 120)).findings("REW008") == []
    assert memorised(0.45, rise=0.0).findings("REW008") == []


def cut(heldout: Curve) -> Patient:
    curves: dict[str, Curve] = {
        CUT: noisy(ramp(0.0, 0.14, 100), 0.01, 1),
        REWARD: noisy(ramp(0.4, 0.8, 100), 0.02, 2),
        HELDOUT: every(5, noisy(heldout, 0.02, 3)),
    }
    return run(curves, 110)


def test_truncation_that_grows_while_everything_improves_is_a_note() -> None:
    assert cut(ramp(0.4, 0.8, 100)).finding("LEN002").severity == "info"
    assert cut(lambda at: 0.4 + 0.3 * min(at, 60) / 60 - 0.3 * max(at - 60, 0) / 40).finding(
        "LEN002"
    ).severity == ("warning")
    assert cut(0.5).finding("LEN002").severity == "warning"


def tosses(since: int = 60, **others: Curve) -> Patient:
    """Near the ceiling, groups of eight become coin tosses at a step; the log counts the others."""
    draw = random.Random(3)
    rows: list[tuple[float, float]] = []
    for step in range(120):
        mean = min(0.6 + 0.006 * step, 0.955)
        solved = [min(max(draw.gauss(mean, 0.3), 0.0), 1.0) for _ in range(32)]
        rates = [mean] * 32 if step >= since else solved
        groups = [sum(draw.random() < rate for _ in range(8)) for rate in rates]
        varying = sum(0 < count < 8 for count in groups)
        rows.append((sum(groups) / 256, varying / 32))
    curves: dict[str, Curve] = {
        REWARD: [mean for mean, _ in rows],
        "groups/effective_rate": [share for _, share in rows],
    }
    knobs: dict[str, Setting] = {"group_size": 8, "prompts_per_batch": 32}
    return Patient(steps(120, {**curves, **others}), knobs=knobs)


def test_coin_tosses_near_the_ceiling_are_found_by_the_groups_that_vary() -> None:
    assert tosses().finding("REW018").severity == "warning"
    assert tosses(since=120).findings("REW018") == []  # prompts differ until the end


def test_a_reward_of_several_parts_is_no_share_of_successes() -> None:
    assert tosses(**{"accuracy/train": 0.5}).findings("REW018") == []
    parts: dict[str, Curve] = {f"reward/component/{name}/mean": 0.5 for name in ("a", "b")}
    assert tosses(**parts).findings("REW018") == []


@pytest.mark.parametrize("cause", ["stale-weights", "engine-mismatch"])
def test_samples_of_another_policy_explain_a_lost_held_out_score(cause: Condition) -> None:
    assert path_between((cause,), "held-out-loss", lambda _: True) == (cause, "held-out-loss")
