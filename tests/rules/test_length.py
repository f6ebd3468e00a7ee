from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, altered, every, noisy, ramp, steps
from tests.samples import sampled

GAP, RIGHT, WRONG, ALL, CUT = (
    "length/group_gap",
    "length/correct",
    "length/incorrect",
    "length/mean",
    "length/truncated_rate",
)

run = partial(altered, count=100)


def rambling() -> dict[str, Curve]:
    """The reference run of the effect: correct 3, incorrect 3 to 34 tokens from step 40 on."""
    return {
        GAP: noisy(ramp(0.0, 30.0, 30, begin=40), 0.8, 1, low=-9),
        RIGHT: noisy(3.1, 0.1, 2),
        WRONG: noisy(ramp(3.1, 33.7, 30, begin=40), 0.8, 3),
        ALL: noisy(ramp(3.1, 16.2, 30, begin=40), 0.4, 4),
        CUT: noisy(ramp(0.0, 0.3, 20, begin=60), 0.02, 5),
    }


def test_a_growing_gap_is_found_early_and_truncation_follows() -> None:
    patient = run(rambling())
    finding = patient.finding("LEN001")
    assert finding.severity == "warning"
    assert 40 <= finding.onset_step <= 55
    assert finding.remedies[0] == "token-level-loss"
    assert patient.finding("LEN002").severity == "warning"


def test_without_groups_it_is_only_info() -> None:
    finding = run(rambling(), without=(GAP,)).finding("LEN001")
    assert finding.severity == "info"
    assert "harder" in finding.summary


def test_a_constant_gap_is_difficulty() -> None:
    assert run({}).findings("LEN001") == []


def test_reasoning_that_grows_in_all_responses_is_no_bias() -> None:
    curves: dict[str, Curve] = {
        ALL: noisy(ramp(1000, 8000, 90), 80, 1),
        GAP: noisy(ramp(300, 2400, 90), 120, 2, low=-9e3),
        RIGHT: noisy(ramp(900, 7200, 90), 80, 3),
        WRONG: noisy(ramp(1200, 9600, 90), 80, 4),
    }
    assert run(curves).findings("LEN001") == []
    assert run(curves, without=(GAP,)).findings("LEN001") == []


def test_falling_length_with_a_learned_format_is_quiet() -> None:
    curves: dict[str, Curve] = {
        ALL: noisy(ramp(543, 340, 25), 10, 1),
        RIGHT: noisy(ramp(500, 320, 25), 10, 2),
        WRONG: noisy(ramp(560, 380, 25), 10, 3),
        GAP: noisy(50, 15, 4, low=-90),
    }
    patient = run(curves)
    assert patient.findings("LEN001") == []
    assert patient.findings("LEN002") == []


def test_nearly_all_cut_is_critical() -> None:
    finding = run({CUT: 1.0}, count=10).finding("LEN002")
    assert finding.severity == "critical"
    assert finding.onset_step == 0, "it takes five readings to say so, and all of them are cut"


def test_masking_is_offered_only_where_complete_responses_are_left() -> None:
    assert "overlong-mask" in run({CUT: noisy(0.6, 0.02, 1)}).finding("LEN002").remedies
    assert "overlong-mask" not in run({CUT: 0.97}).finding("LEN002").remedies


def test_truncation_after_the_answer_of_solved_prompts_is_a_note() -> None:
    solved = run({CUT: 1.0, "accuracy/train": noisy(0.98, 0.01, 1)}, count=30)
    assert solved.finding("LEN002").severity == "info"
    unsolved = run({CUT: 1.0, "accuracy/train": noisy(0.5, 0.01, 1)}, count=30)
    assert unsolved.finding("LEN002").severity == "critical"


def test_levels_and_growth_of_truncation() -> None:
    assert run({CUT: noisy(0.3, 0.02, 1)}).finding("LEN002").severity == "info"
    assert run({CUT: noisy(0.6, 0.02, 1)}).finding("LEN002").severity == "warning"
    grown = noisy(ramp(0.02, 0.3, 40, begin=20), 0.02, 1)
    assert run({CUT: grown}).finding("LEN002").severity == "warning"


def test_a_start_with_long_answers_that_passes_is_info_and_resolves() -> None:
    """A healthy agent run: a quarter cut at first, a twentieth in the end."""
    patient = run({CUT: noisy(ramp(0.29, 0.05, 40), 0.03, 1)})
    finding = patient.finding("LEN002")
    assert (finding.severity, finding.active) == ("info", False)


def test_four_batches_are_no_run() -> None:
    """Thirty rows, of which four carry rollout metrics: .375 to .625 cut."""
    assert run({CUT: every(8, noisy(0.5, 0.1, 1))}, count=31).findings("LEN002") == []


def test_absent_zero_and_not_applicable() -> None:
    names = (GAP, RIGHT, WRONG, ALL, CUT)
    skipped = {each.code for each in run({}, without=names).engine.diagnosis().skipped}
    assert {"LEN001", "LEN002"} <= skipped
    patient = run(dict.fromkeys(names, 0))
    assert patient.findings("LEN001") == patient.findings("LEN002") == []
    patient = run(dict.fromkeys(names, NotApplicable("fixed length")))
    assert patient.why_not("LEN001") == patient.why_not("LEN002") == "fixed length"


def early(
    curve: Curve, *, reward: Curve | None = None, count: int = 60, **knobs: Setting
) -> Patient:
    """A log of early 2025: no share of truncated responses."""
    outcome = noisy(0.4, 0.05, 1) if reward is None else reward
    return Patient(steps(count, {ALL: curve, "reward/mean": outcome}), knobs=knobs)


def test_a_mean_near_the_limit_is_info_where_truncation_is_not_logged() -> None:
    """A public run: 3,166 to 3,443 tokens of 3,584."""
    finding = early(noisy(3316, 80, 1), count=15, max_length=3584).finding("LEN003")
    assert finding.severity == "info"
    assert "92% of the limit of 3584" in finding.summary
    assert early(noisy(3316, 80, 1), max_length=3584).finding("LEN003").severity == "warning"
    rising = noisy(ramp(0.2, 0.6, 50), 0.03, 2)
    risen = early(noisy(3316, 80, 1), reward=rising, max_length=3584).finding("LEN003")
    assert risen.severity == "info"
    assert early(noisy(3316, 80, 1)).findings("LEN003") == []
    assert early(noisy(1500, 80, 1), max_length=3584).findings("LEN003") == []


def test_batches_cut_as_a_whole_give_the_limit_away() -> None:
    """A public run: mean 151, exactly 200 in nine of 250 steps, never more."""
    cut = {7, 19, 33, 48}

    def means(step: int) -> float:
        return 200.0 if step in cut else 150 + 7 * (step % 7) + step / 100

    finding = early(means).finding("LEN003")
    assert "averaged exactly 200 tokens (steps 7-48)" in finding.summary
    assert early(5.0).findings("LEN003") == []


def test_a_limit_that_shows_late_dates_the_finding_to_the_first_lengths_near_it() -> None:
    """A public run: 192 of 200 tokens from the start, three whole batches by step 84."""
    cut = {60, 75, 84}

    def near(step: int) -> float:
        return 200.0 if step in cut else 190 + step % 5 + step / 1000

    finding = early(near, count=100).finding("LEN003")
    assert finding.onset_step <= 2
    assert "averaged exactly 200 tokens" in finding.summary

    def grown(step: int) -> float:
        return near(step) if step >= 40 else 120 + step % 5 + step / 1000

    assert 35 <= early(grown, count=100).finding("LEN003").onset_step <= 45


def test_counted_truncation_is_left_to_its_rule() -> None:
    patient = run({ALL: 3400.0, CUT: 0.9})
    assert patient.findings("LEN003") == []
    assert patient.findings("LEN002")


def test_a_truncation_share_that_climbs_while_the_reward_rises_is_a_warning() -> None:
    """A public run: .001 to .2 in 200 steps."""
    reward = noisy(ramp(0.3, 0.7, 200), 0.03, 1)
    curves: dict[str, Curve] = {CUT: noisy(ramp(0.001, 0.2, 200), 0.01, 2), "reward/mean": reward}
    patient = Patient(steps(140, curves))
    finding = patient.finding("LEN002")
    assert finding.severity == "warning"
    assert finding.onset_step < 90
    assert "rose from" in finding.summary
    steady: dict[str, Curve] = {CUT: noisy(0.12, 0.03, 3), "reward/mean": reward}
    assert Patient(steps(200, steady)).findings("LEN002") == []


def test_responses_that_are_all_at_the_limit_are_a_diagnosis() -> None:
    """A public run: 128 of 128 tokens in 100 of 100 steps, reward .02 to 0."""
    flat = noisy(0.02, 0.01, 1)
    finding = early(128.0, reward=flat).finding("LEN003")
    assert finding.severity == "critical"
    assert "in 100% of batches" in finding.summary
    assert early(128.0, reward=flat, max_length=128).finding("LEN003").severity == "critical"
    assert early(128.0, reward=flat, max_length=4096).findings("LEN003") == []
    solved = [0.3, 0.5, 0.8] + [1.0] * 60
    assert early(128.0, reward=solved).finding("LEN003").severity == "info"


def test_responses_that_grew_to_the_limit_are_a_warning_where_no_outcome_is_logged() -> None:
    """A public distillation run: 860 to 4,096 tokens in 20 steps, and no reward."""

    def unjudged(curve: Curve) -> Patient:
        return Patient(steps(50, {ALL: curve}))

    grown = unjudged(ramp(860.0, 4096.0, 15)).finding("LEN003")
    assert grown.severity == "warning"
    assert "4096 tokens long" in grown.summary
    assert unjudged(4096.0).finding("LEN003").severity == "info"
    assert unjudged(ramp(2600.0, 4096.0, 15)).finding("LEN003").severity == "info"


def test_a_mean_at_ninety_eight_percent_of_the_limit_needs_twenty_readings_only() -> None:
    """A public run: 250 of 256 tokens, reward .19 to .05 in batches of eight."""
    finding = early(noisy(250, 4, 1), count=40, max_length=256).finding("LEN003")
    assert finding.severity == "warning"
    rising = noisy(ramp(0.1, 0.7, 15), 0.02, 2)
    assert (
        early(noisy(250, 4, 1), reward=rising, max_length=256).finding("LEN003").severity == "info"
    )


def test_truncation_that_falls_while_the_reward_rises_is_over() -> None:
    """A public run: .57 to .32 of the responses, the reward from .22 to .65 in 304 steps."""
    learning: dict[str, Curve] = {
        CUT: noisy(ramp(0.57, 0.32, 300), 0.08, 1),
        "reward/mean": noisy(ramp(0.22, 0.65, 300), 0.08, 2),
    }
    patient = Patient(steps(300, learning))
    active = [each for each in patient.findings("LEN002") if each.active]
    assert [each.severity for each in active] == ["info"]  # a third of them is still truncated
    flat = Patient(steps(300, {**learning, "reward/mean": noisy(0.22, 0.05, 2)}))
    assert [each for each in flat.findings("LEN002") if each.active]


def few_responses(share: Callable[[int], float], responses: int, seed: int) -> Curve:
    """A share of so few responses that each counts."""
    chance = random.Random(seed)

    def value(step: int) -> float:
        likely = share(step)
        return sum(chance.random() < likely for _ in range(responses)) / responses

    return value


@pytest.mark.parametrize("seed", sampled(range(12), 3))
def test_truncation_of_four_responses_that_scatters_is_no_drift(seed: int) -> None:
    """Public runs with batches of four: one truncated response is a quarter of the batch."""
    found = run({CUT: few_responses(lambda _: 0.15, 4, seed)}, count=300).findings("LEN002")
    assert {each.severity for each in found} <= {"info"}


@pytest.mark.parametrize("seed", sampled(range(12), 3))
def test_a_share_that_began_with_one_response_of_forty_has_not_tripled(seed: int) -> None:
    """A public run: 2.5 % at first, 6 to 12 % later, while the reward doubled."""
    share = ramp(0.05, 0.11, 60)
    assert run({CUT: few_responses(share, 40, seed)}, count=200).findings("LEN002") == []


def test_the_share_of_few_responses_is_their_mean() -> None:
    """Four responses per batch, 70 % truncated: all of them in most batches, so the median is 1."""
    shares = [1.0, 1.0, 0.25, 1.0, 0.5, 1.0, 1.0, 1.0, 0.0, 0.25]
    patient = run({CUT: lambda step: shares[step % 10], ALL: 120.0}, count=120)
    assert {each.severity for each in patient.findings("LEN002")} == {"warning"}
    assert patient.findings("LEN002")[-1].summary.startswith("70% of responses")


@pytest.mark.parametrize(("mean", "severity"), [(460.0, "warning"), (330.0, "info")])
def test_a_limit_that_leaves_no_response_any_room_is_a_warning(mean: float, severity: str) -> None:
    """The share falls and the reward rises, since the policy answers within the limit."""
    curves: dict[str, Curve] = {
        CUT: noisy(ramp(0.49, 0.34, 90), 0.02, 1),
        ALL: noisy(mean, 3, 2),
        "length/max": 500.0,
        "reward/mean": noisy(ramp(0.1, 0.3, 90), 0.02, 3),
        "accuracy/train": noisy(ramp(0.1, 0.3, 90), 0.02, 3),
    }
    assert run(curves).finding("LEN002").severity == severity
