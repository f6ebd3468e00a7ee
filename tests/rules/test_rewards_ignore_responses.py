"""REW021: rewards that do not follow what the responses say."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import rankdata

from grpodoctor.measure.answers import answer_matches, answer_readings
from grpodoctor.measure.groups import equal_text_readings, groups_of
from grpodoctor.vocabulary.values import Rate, scalar
from tests.rules.scenario import RESPONSES, Curve, Patient, noisy, ramp, steps

EQUAL, OTHER = "groups/equal_text_variance", "groups/other_text_variance"
CORRELATION, DISAGREEMENT = "reward/answer_correlation", "reward/answer_disagreement_rate"
BY_PLACE, LENGTH_BY_PLACE = "groups/reward_by_place", "groups/length_by_place"
FLAT: Curve = noisy(0.4, 0.05, 1)
RISING: Curve = noisy(ramp(0.2, 0.7, 60), 0.04, 1)


def run(curves: dict[str, Curve], reward: Curve = FLAT) -> Patient:
    return Patient(steps(80, {"reward/mean": reward, **curves}))


def test_identical_responses_that_differ_as_much_as_others_are_a_warning() -> None:
    curves: dict[str, Curve] = {EQUAL: noisy(0.2, 0.05, 2), OTHER: noisy(0.22, 0.05, 3)}
    finding = run(curves).finding("REW021")
    assert (finding.severity, finding.remedies) == ("warning", ("recheck-reward",))
    assert "of the variance of different ones" in finding.summary
    assert run(curves, RISING).finding("REW021").severity == "info"


@pytest.mark.parametrize(("equal", "severity"), [(0.0, None), (0.005, None), (0.06, "info")])
def test_a_sampled_judge_is_a_note_and_a_function_of_the_text_is_nothing(
    equal: float, severity: str | None
) -> None:
    found = run({EQUAL: equal, OTHER: noisy(0.22, 0.05, 3)}).findings("REW021")
    assert [each.severity for each in found] == ([severity] if severity else [])


def test_rewards_that_do_not_follow_the_reference_answers_are_a_warning() -> None:
    """The keys of the next row: some batches correlate by chance, in both directions."""
    curves: dict[str, Curve] = {CORRELATION: noisy(0.02, 0.2, 2, low=-1), DISAGREEMENT: 0.4}
    finding = run(curves).finding("REW021")
    assert finding.severity == "warning"
    assert "correlation is" in finding.summary
    assert run(curves, RISING).finding("REW021").severity == "info"
    inverted: dict[str, Curve] = {CORRELATION: noisy(-0.8, 0.1, 2, low=-1)}
    assert run(inverted).finding("REW021").severity == "warning"


def test_a_part_of_the_rewards_that_disagrees_is_a_note() -> None:
    """A tolerance that is too wide, a judge that times out on long responses."""
    curves: dict[str, Curve] = {CORRELATION: noisy(0.6, 0.1, 2), DISAGREEMENT: noisy(0.22, 0.03, 3)}
    finding = run(curves).finding("REW021")
    assert finding.severity == "info"
    assert finding.summary.startswith("22%")
    assert run({CORRELATION: 0.95, DISAGREEMENT: 0.03}).findings("REW021") == []


def test_rewards_that_depend_on_the_place_in_the_group_are_a_warning() -> None:
    """One of several reward workers fails."""
    curves: dict[str, Curve] = {
        BY_PLACE: noisy(0.6, 0.1, 2), LENGTH_BY_PLACE: noisy(0.0, 0.05, 3, low=-1)
    }  # fmt: skip
    finding = run(curves).finding("REW021")
    assert finding.severity == "warning"
    assert "place" in finding.summary
    assert run(curves, RISING).finding("REW021").severity == "info"


@pytest.mark.parametrize(("reward", "length"), [(0.0, 0.0), (0.04, 0.0), (0.5, 0.5)])
def test_exchangeable_rewards_and_responses_that_differ_by_place_are_nothing(
    reward: float, length: float
) -> None:
    curves: dict[str, Curve] = {
        BY_PLACE: noisy(reward, 0.05, 2, low=-1), LENGTH_BY_PLACE: noisy(length, 0.05, 3, low=-1)
    }  # fmt: skip
    assert run(curves).findings("REW021") == []


AGREED, AGREED_WRONG = "groups/agreed_rate", "groups/agreed_incorrect_rate"


def agreeing(wrong: Curve, reward: Curve = FLAT) -> Patient:
    """Sixteen groups per batch, of which half agree on an answer."""
    records = steps(80, {"reward/mean": reward, AGREED_WRONG: wrong})
    counts = {AGREED: Rate(8, 16)}
    return Patient([replace(each, values={**each.values, **counts}) for each in records])


def test_groups_that_agree_on_a_wrong_answer_are_a_warning() -> None:
    """Prompts that lost their minus signs, and half of the answer keys wrong."""
    finding = agreeing(noisy(0.4, 0.1, 2)).finding("REW021")
    assert finding.severity == "warning"
    assert "of the groups that agree" in finding.summary
    assert agreeing(noisy(0.4, 0.1, 2), RISING).finding("REW021").severity == "info"
    assert agreeing(noisy(0.1, 0.1, 2)).findings("REW021") == []


def test_few_batches_with_such_responses_are_not_enough() -> None:
    few: Curve = lambda step: 0.2 if step < 15 else None  # noqa: E731
    assert run({EQUAL: few, OTHER: few}).findings("REW021") == []
    assert run({CORRELATION: lambda step: 0.0 if step < 15 else None}).findings("REW021") == []


def test_it_explains_responses_that_stay_level() -> None:
    """Scores in the order of a sorted batch: the updates are not too small."""
    level: dict[str, Curve] = {
        "optimizer/grad_norm": noisy(0.5, 0.05, 4), "entropy/mean": noisy(0.5, 0.02, 5),
        "length/mean": noisy(9.0, 0.4, 6, low=1), EQUAL: 0.2, OTHER: 0.22,
    }  # fmt: skip
    patient = run(level)
    assert patient.finding("OPT005").severity == "warning"
    assert patient.finding("REW021").onset_step <= patient.finding("OPT005").onset_step


Respond = Callable[[random.Random, int, bool], tuple[str, str, float]]
"""Text, reference answer and reward of a response to the prompt of a group, right or wrong."""
Responses = list[tuple[str, str, float]]
"""Texts, reference answers and rewards, of sixteen groups of eight in their order."""


def batch(respond: Respond, chance: random.Random) -> Responses:
    """Responses of which four in ten are right."""
    return [respond(chance, at // 8, chance.random() < 0.4) for at in range(128)]


def repeated(values: list[float | None], step: int) -> float | None:
    return values[step % len(values)]


def partial_credit(chance: random.Random, group: int, is_right: bool) -> tuple[str, str, float]:
    answer = 100 + group if is_right else chance.randint(1, 99)
    is_boxed = chance.random() < 0.7
    text = f"so \\boxed{{{answer}}}" if is_boxed else f"it is {answer}"
    return text, str(100 + group), 1.0 * (is_right and is_boxed) + 0.2 * is_boxed


def length_penalty(chance: random.Random, group: int, is_right: bool) -> tuple[str, str, float]:
    text, answer, _ = partial_credit(chance, group, is_right)
    words = chance.randint(1, 40)
    return f"{'well ' * words}{text}", answer, is_right - words / 40


def noisy_judge(chance: random.Random, group: int, is_right: bool) -> tuple[str, str, float]:
    return *partial_credit(chance, group, is_right)[:2], is_right + chance.gauss(0, 0.2)


def several_forms(chance: random.Random, group: int, is_right: bool) -> tuple[str, str, float]:
    answer = chance.choice(["\\frac{1}{2}", "0.5", "1/2", "50\\%"]) if is_right else "7"
    return f"{chance.random()} \\boxed{{{answer}}}", "\\frac{1}{2}", float(is_right)


def confidence(chance: random.Random, group: int, is_right: bool) -> tuple[str, str, float]:
    answer = group if is_right else group + chance.randint(1, 5)
    return f"Answer: {answer}. Confidence: {chance.randint(0, 10)}", str(group), float(is_right)


def program(chance: random.Random, group: int, is_right: bool) -> tuple[str, str, float]:
    added = 5 if is_right else chance.randint(6, 9)
    text = f"def f(x):\n    return x + {added}  # {chance.choice(['ok', 'done'])}"
    return text, "def f(x): return 5 + x  # ok", float(is_right)


def two_sources(chance: random.Random, group: int, is_right: bool) -> tuple[str, str, float]:
    """Hard prompts earn ten points for the attempt, easy ones none."""
    is_hard = group % 2 == 0
    is_right = chance.random() < (0.1 if is_hard else 0.9)
    answer = 100 + group if is_right else chance.randint(1, 99)
    return f"it is {answer}", str(100 + group), 10.0 * is_hard + is_right


@pytest.mark.parametrize(
    "respond",
    [
        partial_credit, length_penalty, noisy_judge, several_forms, confidence, program,
        two_sources,
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_relative", [False, True])
def test_healthy_rewards_are_no_warning(respond: Respond, is_relative: bool) -> None:
    """Also as ranks within the group, which have the same mean in each."""
    groups, chance = np.repeat(np.arange(16), 8), random.Random(11)
    readings: dict[str, list[float | None]] = {name: [] for name in (EQUAL, OTHER, CORRELATION)}
    for _ in range(24):
        texts, references, paid = zip(*batch(respond, chance), strict=True)
        rewards = np.array(paid)
        if is_relative:
            rewards = np.concatenate([rankdata(each) for each in rewards.reshape(-1, 8)])
        numbers = np.unique(texts, return_inverse=True)[1]
        found = equal_text_readings(groups_of(groups), numbers, rewards)
        found |= answer_readings(answer_matches(texts, references), rewards, groups)
        for name, values in readings.items():
            values.append(scalar(found[name]) if name in found else None)
    curves: dict[str, Curve] = {
        name: partial(repeated, values) for name, values in readings.items()
    }
    found_by_rule = run(curves).findings("REW021")
    assert [each for each in found_by_rule if each.severity != "info"] == []
    if respond is not noisy_judge:
        assert found_by_rule == []


SAME, OTHER_ANSWERS = "groups/same_answer_variance", "groups/other_answer_variance"
PAIRS_BY_LENGTH = "groups/same_answer_length_correlation"


VERDICT: Curve = lambda step: math.sqrt(FLAT(step) * (1 - FLAT(step)))  # type: ignore[operator]  # noqa: E731
"""Standard deviation of rewards of 0 and 1 with the mean of FLAT."""


def beyond(same: Curve, equal: Curve = 0.0, by_length: Curve = 0.0) -> dict[str, Curve]:
    return {
        SAME: noisy(same, 0.02, 2),
        OTHER_ANSWERS: noisy(0.25, 0.02, 3),
        EQUAL: equal,
        OTHER: 0.25,
        PAIRS_BY_LENGTH: by_length,
    }


def test_rewards_that_differ_between_responses_with_the_same_answer_are_a_warning() -> None:
    finding = run({**beyond(0.12), "reward/std": VERDICT}).finding("REW021")
    assert finding.severity == "warning"
    assert "Responses with the same answer differ in reward" in finding.summary
    assert run(beyond(0.12), RISING).finding("REW021").severity == "info"


@pytest.mark.parametrize(
    "curves", [beyond(0.04), beyond(0.1, equal=0.1), {**beyond(0.12), EQUAL: lambda _: None}]
)
def test_a_small_part_and_noise_are_not_paid_beyond_the_answer(curves: dict[str, Curve]) -> None:
    found = [each.summary for each in run(curves).findings("REW021")]
    assert not any("same answer" in text for text in found)


def test_success_that_does_not_follow_the_answer_rises_in_vain() -> None:
    """A verifier that reads another part of the response; a format gate is learned instead."""
    share: Curve = lambda step: round(RISING(step) * RESPONSES) / RESPONSES  # type: ignore[operator]  # noqa: E731
    rising = {"accuracy/train": share}
    assert run({**beyond(0.24), **rising}, share).finding("REW021").severity == "warning"
    gate = {**beyond(ramp(0.3, 0.05, 80)), **rising}
    assert run(gate, share).finding("REW021").severity == "info"


@pytest.mark.parametrize("deviation", [None, 0.3, 0.6])
def test_a_flat_reward_of_more_than_two_values_is_no_proof(deviation: float | None) -> None:
    """Parts for a format, a tool call or a reward model's taste, in a run that does not learn."""
    curves: dict[str, Curve] = {} if deviation is None else {"reward/std": deviation}
    assert run({**beyond(0.12), **curves}).finding("REW021").severity == "info"


def test_pay_for_the_length_of_responses_with_the_same_answer_is_named_so() -> None:
    shorter = noisy(ramp(300, 200, 60), 10, 4)
    curves = {**beyond(0.12, by_length=-0.8), "length/mean": shorter}
    for level in (noisy(300, 10, 4), noisy(ramp(300, 400, 60), 10, 4)):  # not learned, so no cause
        assert run({**curves, "length/mean": level}).finding("REW013").severity == "info"
    patient = run(curves)
    finding = patient.finding("REW013")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert "shorter ones earn more" in finding.summary
    assert patient.findings("REW021") == []
    assert run(curves, RISING).finding("REW013").severity == "info"
    assert run({**curves, PAIRS_BY_LENGTH: -0.3}).findings("REW013") == []


SLOW: Curve = noisy(ramp(0.3, 0.55, 300), 0.03, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"reward/component/format/mean": 0.5, "reward/component/correct/mean": 0.3},
        {"accuracy/train": noisy(0.2, 0.02, 7)},
    ],
)
def test_the_parts_of_a_sum_pay_beyond_the_answer_on_purpose(change: dict[str, Curve]) -> None:
    assert run({**beyond(0.12), **change}).finding("REW021").severity == "info"


@pytest.mark.parametrize(("code", "by_length"), [("REW021", 0.0), ("REW013", -0.8)])
def test_a_run_that_has_just_begun_or_rises_slowly_gets_a_note(code: str, by_length: float) -> None:
    curves = {**beyond(0.12, by_length=by_length), "length/mean": noisy(300, 10, 4)}
    early = Patient(steps(50, {"reward/mean": FLAT, **curves}))
    slow = Patient(steps(150, {"reward/mean": SLOW, **curves}))
    assert [each.finding(code).severity for each in (early, slow)] == ["info", "info"]
    more = Patient(steps(50, {"reward/mean": FLAT, **curves, SAME: noisy(0.35, 0.02, 2)}))
    assert more.finding(code).severity == "warning"


def test_a_format_that_is_learned_slowly_is_no_blind_verdict() -> None:
    share: Curve = lambda step: round(RISING(step) * RESPONSES) / RESPONSES  # type: ignore[operator]  # noqa: E731
    for same in (ramp(0.24, 0.18, 80), 0.16):
        found = run({**beyond(same), "accuracy/train": share}, share).finding("REW021")
        assert found.severity == "info"
