"""REW003, REW005 and GRP004: losses that the curve of the reward hides."""

from __future__ import annotations

import pytest

from grpodoctor.vocabulary.values import Mean
from tests.rules.scenario import Curve, Patient, every, noisy, point_of, ramp, steps

REWARD, ACCURACY, HELDOUT = "reward/mean", "accuracy/train", "accuracy/heldout"
FLAT = "groups/zero_variance_rate"


def run(curves: dict[str, Curve], count: int = 200) -> Patient:
    return Patient(steps(count, curves))


LEARNED = noisy(ramp(0.4, 0.98, 40), 0.01, 3)
"""A format that is learned in forty steps."""


def paid_format(correct: Curve, pay: float, form: Curve = LEARNED) -> dict[str, Curve]:
    """A reward of the accuracy and of a format."""

    def reward(step: int) -> float:
        success, formed = point_of(correct, step), point_of(form, step)
        assert isinstance(success, float)
        assert isinstance(formed, float)
        return success + pay * formed

    return {ACCURACY: correct, REWARD: reward}


def test_accuracy_that_a_dominating_format_hides_is_hacking_until_the_end() -> None:
    """The reward falls by a sixth of its level, since accuracy is a part of it."""
    lost = noisy(ramp(0.45, 0.03, 100, begin=60), 0.03, 1)
    patient = run(paid_format(lost, 2.0))
    finding = patient.finding("REW005")
    assert (finding.severity, finding.active) == ("critical", True)
    assert patient.findings("REW002") == []


def test_a_reward_that_falls_with_accuracy_is_a_collapse() -> None:
    lost = noisy(ramp(0.45, 0.03, 100, begin=60), 0.03, 1)
    patient = run(paid_format(lost, 0.5))
    assert patient.finding("REW002").severity == "critical"
    assert not any(finding.active for finding in patient.findings("REW005"))


FORM = "reward/component/format/mean"
ANSWER = "reward/component/answer/mean"


def with_answers(answers: Curve, form: float) -> dict[str, Curve]:
    """Answers that are earned by half, as batches of few prompts have them, next to a format."""

    def reward(step: int) -> float:
        correct = point_of(answers, step)
        assert isinstance(correct, float)
        return correct + form

    return {ANSWER: answers, FORM: noisy(form, 0.01, 7), REWARD: reward}


def test_a_component_for_the_task_may_be_lost_below_a_reward_that_is_kept() -> None:
    """Answers go from .3 to .5 and fall to .25 at step 130, at a noise of .1; the sum is kept."""
    curve = lambda step: 0.3 + 0.2 * min(step, 100) / 100 if step < 130 else 0.25  # noqa: E731
    finding = run(with_answers(noisy(curve, 0.1, 2), 1.0)).finding("REW002")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "component answer" in finding.summary
    assert finding.onset_step in range(120, 145)


@pytest.mark.parametrize(
    ("component", "words"),
    [
        ("answer", "component answer fell from 0.59"),
        ("exact answer", "component exact answer fell from 0.59"),
        ("the final answer", "a component fell from 0.59"),
    ],
)
@pytest.mark.parametrize(
    ("heldout", "course"),
    [
        (noisy(0.5, 0.01, 5), "held-out accuracy stayed at 0.5"),
        (noisy(ramp(0.3, 0.7, 150), 0.01, 6), "held-out accuracy rose from"),
    ],
    ids=["kept", "rising"],
)
def test_a_component_that_held_out_prompts_do_not_lose_is_named(
    component: str, words: str, heldout: Curve, course: str
) -> None:
    """Answers fall from .6 to .3 while more is paid for the form: the sum keeps its level."""
    answers = noisy(lambda step: 0.2 + min(step, 80) / 200 if step < 90 else 0.3, 0.02, 3)
    form = noisy(ramp(0.3, 0.7, 10, begin=90), 0.02, 4)
    curves: dict[str, Curve] = {
        f"reward/component/{component}/mean": answers,
        FORM: form,
        REWARD: lambda step: point_of(answers, step) + point_of(form, step),  # type: ignore[operator]
        HELDOUT: every(10, heldout),
    }
    finding = run(curves, 260).finding("REW002")
    assert words in finding.summary.lower()
    assert finding.condition == ("environment-change" if "stayed" in course else None)
    assert course in finding.summary
    assert len(finding.summary.split()) <= 20


def test_a_component_that_keeps_its_level_is_quiet() -> None:
    for seed in range(5):
        level = run(with_answers(noisy(0.4, 0.1, seed), 1.0), 300)
        assert level.findings("REW002") == []
    lost = noisy(ramp(0.5, 0.2, 1, begin=130), 0.1, 2)
    others: dict[str, Curve] = {FORM: 1.0, REWARD: noisy(1.5, 0.02, 3)}
    others["reward/component/brevity/mean"] = lost
    assert run(others).findings("REW002") == []  # shorter responses may be right


def test_accuracy_that_breaks_off_in_one_step_is_not_learned() -> None:
    """No update of that size can have done it, so the judge changed: REW002 says so."""
    lost = noisy(ramp(0.75, 0.05, 1, begin=90), 0.02, 1)
    moved: dict[str, Curve] = {"kl/old_policy/k2": 3e-4, "length/mean": 700}
    patient = run({**paid_format(lost, 8.0, 0.98), **moved}, 130)
    assert patient.findings("REW005") == []
    assert "environment or verifier changed" in patient.finding("REW002").summary


def evaluations(*shares: float) -> Curve:
    return lambda step: shares[step // 10 - 1] if step % 10 == 0 and step > 0 else None


FELL = [0.525, 0.43, 0.445, 0.42, 0.355, 0.29, 0.32, 0.26, 0.195, 0.18, 0.175, 0.12, 0.09, 0.055]


def test_a_held_out_loss_of_most_is_critical_though_the_reward_falls_a_little() -> None:
    reward = noisy(ramp(3.9, 3.7, 100, begin=40), 0.03, 2)
    finding = run({REWARD: reward, "reward/heldout": evaluations(*FELL)}, 145).finding("REW003")
    assert (finding.severity, finding.active) == ("critical", True)
    lost = noisy(ramp(3.9, 1.7, 100, begin=40), 0.03, 2)
    patient = run({REWARD: lost, "reward/heldout": evaluations(*FELL)}, 145)
    assert patient.findings("REW003") == []
    assert patient.finding("REW002").active


@pytest.mark.parametrize(
    ("shares", "is_found"),
    [
        ((0.258, 0.124, 0.082, 0.052), True),  # no shares of fewer than a hundred responses
        ((8 / 30, 4 / 30, 3 / 30, 2 / 30), False),
        ((0.267, 0.133, 0.1, 0.067), False),  # the same, rounded
    ],
)
def test_few_evaluations_count_as_much_as_their_responses(
    shares: tuple[float, ...], is_found: bool
) -> None:
    curves = {REWARD: noisy(ramp(0.5, 0.9, 40), 0.03, 4), HELDOUT: evaluations(*shares)}
    # Rounded shares, as a log has them: not the counts of the scenario's usual 128 responses.
    records = steps(49, curves)
    for record in records:
        if HELDOUT in record.values:
            record.values[HELDOUT] = Mean(shares[record.step // 10 - 1], 1)  # type: ignore[index]
    assert bool(Patient(records).findings("REW003")) is is_found


@pytest.mark.parametrize(
    ("shares", "is_found"),
    [
        ((0.41, 0.33, 0.25, 0.26, 0.21, 0.18, 0.17), True),  # one pair in 21 rises: 1 in 720
        ((0.41, 0.33, 0.25, 0.26, 0.21, 0.22, 0.17), False),  # two do: 1 in 187
        ((0.41, 0.33, 0.25, 0.26, 0.21, 0.22, 0.18, 0.17), True),  # two in 28: 1 in 1,152
    ],
)
def test_many_evaluations_may_rise_once_as_they_fall(
    shares: tuple[float, ...], is_found: bool
) -> None:
    reward = noisy(ramp(0.5, 0.95, 40), 0.02, 4)
    count = 10 * len(shares) + 5
    found = run({REWARD: reward, "reward/heldout": evaluations(*shares)}, count).findings("REW003")
    assert bool(found) is is_found


@pytest.mark.parametrize(
    ("later", "is_found"),
    [
        ((0.34, 0.33, 0.32, 0.31, 0.3, 0.29), True),  # six in falling order: 1 in 720
        ((0.34, 0.33, 0.32, 0.31, 0.29), False),
        ((0.34, 0.33, 0.31, 0.32, 0.3, 0.29), False),
        ((0.349, 0.347, 0.345, 0.343, 0.341, 0.339), False),  # less than a tenth is lost
    ],
)
def test_evaluations_that_all_fall_after_their_best_count_though_the_reward_falls_a_little(
    later: tuple[float, ...], is_found: bool
) -> None:
    shares = (0.16, 0.22, 0.29, 0.33, 0.355, *later)
    top, end = 50, 10 * len(shares)
    rising, falling = ramp(0.15, 0.35, 45), ramp(0.35, 0.29, end - top, begin=top)
    reward = noisy(lambda step: (rising if step < top else falling)(step), 0.02, 2)
    curves: dict[str, Curve] = {REWARD: reward, "reward/heldout": evaluations(*shares)}
    patient = run(curves, end + 5)
    assert bool(patient.findings("REW003")) is is_found
    if is_found:
        assert patient.finding("REW003").onset_step == top + 10


def test_evaluations_that_fall_with_a_reward_that_collapses_are_no_finding_of_their_own() -> None:
    shares = (0.16, 0.22, 0.29, 0.33, 0.355, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05)
    reward = noisy(ramp(0.35, 0.05, 60, begin=45), 0.02, 2)
    patient = run({REWARD: reward, "reward/heldout": evaluations(*shares)}, 115)
    assert patient.finding("REW002").active
    assert not any(finding.active for finding in patient.findings("REW003"))


@pytest.mark.parametrize(("loss", "is_found"), [(0.3, True), (0.0, False)])
def test_a_hundred_evaluations_are_judged_by_their_trend(loss: float, is_found: bool) -> None:
    """Single ones rise often while the training reward rises."""
    score = noisy(ramp(0.6, 0.6 - loss * 0.6, 400), 0.06, 13)
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.5, 0.95, 40), 0.02, 4),
        "reward/heldout": every(4, score),
    }
    found = run(curves, 400).findings("REW003")
    assert any("fell steadily" in finding.summary for finding in found) is is_found


def copies(right: float) -> dict[str, Curve]:
    """From step 60 on, the responses of a group are copies."""
    spread = (right * (1 - right)) ** 0.5
    return {
        FLAT: lambda step: 0.28 if step < 60 else 0.98,
        REWARD: noisy(right, 0.02, 5),
        "reward/std": noisy(spread, 0.002, 6),
        "entropy/mean": noisy(0.6, 0.01, 7),
        "length/mean": noisy(400, 10, 8),
    }


def test_copies_of_a_response_are_seen_where_groups_are_not_split() -> None:
    finding = run(copies(0.7), 120).finding("GRP004")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "70% all-correct and the others all-incorrect" in finding.summary
    assert 60 <= finding.onset_step <= 66


def test_a_solved_task_or_a_graded_reward_has_no_copies() -> None:
    for curves in (copies(0.97), {**copies(0.7), "reward/std": 0.2}):
        found = run(curves, 120).findings("GRP004")
        assert not any("alike" in finding.summary for finding in found)


def test_groups_that_agree_more_on_both_sides_are_no_policy_that_got_worse() -> None:
    """Without entropy, each prompt is always solved or never; the reward stays as it was."""
    both: dict[str, Curve] = {
        REWARD: noisy(0.45, 0.05, 9),
        "groups/all_incorrect_rate": noisy(ramp(0.05, 0.5, 60, begin=40), 0.05, 10),
        "groups/all_correct_rate": noisy(ramp(0.02, 0.45, 60, begin=40), 0.05, 11),
        "entropy/mean": ramp(0.6, 0.0005, 60, begin=20),
        "length/mean": noisy(600, 20, 12),
    }
    findings = run(both, 150).findings("GRP002")
    assert {finding.severity for finding in findings} <= {"info"}
    assert not any("got worse" in finding.summary for finding in findings)
    worse = {**both, "groups/all_correct_rate": noisy(0.05, 0.02, 11)}
    assert any("got worse" in finding.summary for finding in run(worse, 150).findings("GRP002"))
