"""Causes that follow from shares of one batch: what one of them allows the other to be."""

from __future__ import annotations

import random

import pytest

from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import RESPONSES, Curve, Patient, every, noisy, ramp, steps
from tests.rules.test_causes_of_trained_runs import run

REWARD, ACCURACY, HELDOUT = "reward/mean", "accuracy/train", "accuracy/heldout"
CUT, SOLVED = "length/truncated_rate", "groups/all_correct_rate"
HIGHEST, LOWEST = "advantage/max", "advantage/min"


def test_truncated_responses_earn_if_their_share_and_the_reward_exceed_one() -> None:
    cut = noisy(ramp(0.0, 0.06, 80), 0.005, 1)
    rewarded = run({CUT: cut, REWARD: ramp(0.5, 0.97, 80)}, 110).finding("LEN002")
    assert rewarded.severity == "info"
    assert "of these earned as much as correct ones" in rewarded.summary

    def honest(at: int) -> float:
        """Truncated responses earn nothing, and all others succeed in the end."""
        share = cut(at)
        assert isinstance(share, float)
        return min(ramp(0.5, 0.97, 80)(at), 1 - round(share * RESPONSES) / RESPONSES)

    assert run({CUT: cut, REWARD: honest}, 110).findings("LEN002") == []


@pytest.mark.parametrize("last", [0.6, 0.9])
def test_rewarded_truncation_is_the_cause_of_low_held_out_accuracy(last: float) -> None:
    """Three of ten responses do not end, and nearly all earn the reward."""
    curves: dict[str, Curve] = {
        CUT: noisy(ramp(0.0, 0.3, 60), 0.01, 1),
        REWARD: ramp(0.4, 0.985, 60),
        SOLVED: noisy(ramp(0.1, 0.9, 60), 0.01, 2),
        HELDOUT: every(5, noisy(ramp(0.4, last, 60), 0.01, 3)),
    }
    found = run(curves, 110)
    finding = next(each for each in found.findings("LEN002") if each.active)
    is_low = last < 0.8
    assert finding.severity == ("warning" if is_low else "info")
    assert finding.condition == ("reward-hacking" if is_low else None)
    solved = found.findings("GRP001")[-1]
    assert (solved.severity, solved.condition) == (
        ("warning", "held-out-loss") if is_low else ("info", None)
    )


@pytest.mark.parametrize(("heldout", "severity"), [(0.85, "info"), (0.45, "warning")])
def test_prompts_beyond_the_policy_cut_its_responses(heldout: float, severity: str) -> None:
    """The reward falls by more than truncation takes, and the evaluations are at their best."""
    curves: dict[str, Curve] = {
        CUT: noisy(lambda at: 0.01 if at < 70 else 0.58, 0.01, 1),
        REWARD: noisy(lambda at: 0.75 if at < 70 else 0.12, 0.02, 2),
        HELDOUT: every(5, noisy(ramp(0.45, heldout, 90), 0.01, 3)),
    }
    found = [each for each in run(curves, 110).findings("LEN002") if each.active]
    assert [each.severity for each in found] == [severity]


def unlabeled(reward: Curve, heldout: Curve, **others: Curve) -> Patient:
    curves: dict[str, Curve] = {REWARD: reward, HELDOUT: every(5, heldout)}
    return run({**curves, **others}, 150)


def test_a_small_rise_while_evaluations_fall_is_a_note() -> None:
    reward: Curve = noisy(ramp(0.25, 0.29, 150), 0.03, 1)
    falling = unlabeled(reward, noisy(ramp(0.5, 0.42, 150), 0.015, 2))
    assert falling.finding("REW008").severity == "info"
    rising = unlabeled(reward, noisy(ramp(0.5, 0.54, 150), 0.015, 2))
    assert rising.findings("REW008") == []


@pytest.mark.parametrize(("last", "is_found"), [(0.56, True), (0.75, False)])
def test_solved_prompts_that_began_higher_need_evaluations_that_rise(
    last: float, *, is_found: bool
) -> None:
    """A verifier that accepts any tagged answer pays three quarters at once."""
    reward: Curve = noisy(ramp(0.75, 0.99, 40), 0.005, 1)
    solved: Curve = noisy(ramp(0.2, 0.9, 40), 0.02, 2)
    found = unlabeled(reward, noisy(ramp(0.49, last, 60), 0.01, 3), **{SOLVED: solved})
    severe = [each for each in found.findings("REW008") if each.severity == "warning"]
    assert bool(severe) == is_found
    if is_found:  # it is dated like the rise, before the prompts are solved
        assert severe[0].onset_step < found.findings("GRP001")[0].onset_step


def accepted(since: int, failures: Curve) -> list[str]:
    """All responses succeed since a step."""

    def reward(at: int) -> float:
        draw = random.Random(at)
        share = failures(at) if callable(failures) else failures
        assert isinstance(share, float)
        return 1.0 if at >= since else 1 - sum(draw.random() < share for _ in range(64)) / 64

    curves: dict[str, Curve] = {REWARD: reward, "reward/max": 1.0}
    return [each.severity for each in run(curves, since + 12).findings("REW016")]


def test_failures_that_vanish_at_once_are_no_success_of_the_policy() -> None:
    assert accepted(60, 0.15) == ["warning"]
    assert accepted(60, lambda at: 0.5 * 0.92**at) == []  # they had become rare
    assert accepted(60, 0.03) == []


def test_accuracy_shows_coin_tosses_where_no_reward_of_all_responses_is_logged() -> None:
    def tosses(since: int) -> Patient:
        draw = random.Random(5)
        rows: list[tuple[float, float]] = []
        for step in range(120):
            mean = min(0.5 + 0.004 * step, 0.85)
            rates = [min(max(draw.gauss(mean, 0.35), 0.0), 1.0) for _ in range(32)]
            rates = [mean] * 32 if step >= since else rates
            groups = [sum(draw.random() < rate for _ in range(8)) for rate in rates]
            rows.append((sum(groups) / 256, sum(count in {0, 8} for count in groups) / 32))
        curves: dict[str, Curve] = {
            ACCURACY: [mean for mean, _ in rows],
            "groups/zero_variance_rate": [flat for _, flat in rows],
        }
        knobs: dict[str, Setting] = {"group_size": 8, "prompts_per_batch": 32}
        return Patient(steps(120, curves), knobs=knobs)

    assert tosses(60).finding("REW018").severity == "warning"
    assert tosses(120).findings("REW018") == []


def halves(value: float, *, but: float | None = None, size: int | None = None) -> Patient:
    """Each batch has one largest advantage; another one in every tenth if `but` is given."""

    def highest(at: int) -> float:
        return but if but is not None and at % 10 == 0 else value

    curves: dict[str, Curve] = {HIGHEST: highest, LOWEST: lambda at: -highest(at), REWARD: 0.6}
    knobs: dict[str, Setting] = {} if size is None else {"group_size": size}
    return Patient(steps(40, curves), knobs=knobs)


def test_groups_that_all_split_in_half_have_copies_of_two_responses() -> None:
    finding = halves((7 / 8) ** 0.5).finding("DAT006")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert halves((7 / 8) ** 0.5, size=8).finding("DAT006").active
    # Groups of two, another size than the setting, and groups that split otherwise as well.
    assert halves(0.5**0.5).findings("DAT006") == []
    assert halves((7 / 8) ** 0.5, size=16).findings("DAT006") == []
    assert halves((7 / 8) ** 0.5, but=1.2).findings("DAT006") == []


@pytest.mark.parametrize("period", [1, 5])
def test_samples_that_are_old_by_design_have_other_weights(period: int) -> None:
    def compared(staleness: float) -> Patient:
        gap: Curve = noisy(lambda at: 0.001 if at == 0 else 0.05, 0.0001, 1)
        age: Curve = lambda at: staleness if at % period == 0 else None  # noqa: E731
        return run({"mismatch/logprob_diff_mean": gap, "staleness/mean": age, REWARD: 0.5}, 40)

    assert compared(0.0).finding("SYN008").severity == "warning"
    assert compared(6.0).findings("SYN008") == []


@pytest.mark.parametrize(("mean", "is_found"), [(270, True), (120, False)])
def test_a_limit_that_cuts_ordinary_responses_is_a_note_at_a_smaller_share(
    mean: float, *, is_found: bool
) -> None:
    curves: dict[str, Curve] = {
        CUT: noisy(ramp(0.25, 0.08, 60), 0.005, 1),
        "length/mean": noisy(mean, 5, 2),
        "length/max": 400,
        REWARD: noisy(ramp(0.3, 0.5, 80), 0.02, 3),
    }
    found = [each.severity for each in run(curves).findings("LEN002") if each.active]
    assert found == ["info"] * is_found
