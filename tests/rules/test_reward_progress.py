"""REW008 to REW011: reward that rises without success, for one component, or too noisily."""

from __future__ import annotations

import math

import pytest

from grpodoctor.rules.catalogue import all_rules
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, point_of, ramp, steps

REWARD, STD, HELDOUT = "reward/mean", "reward/std", "accuracy/heldout"
RISING: Curve = noisy(ramp(0.2, 0.7, 70), 0.04, 1)
FLAT: Curve = noisy(0.4, 0.05, 2)


def run(curves: dict[str, Curve], count: int = 100, **knobs: Setting) -> Patient:
    return Patient(steps(count, curves), knobs=knobs)


def test_a_reward_that_rises_alone_is_a_warning() -> None:
    """One hundred steps and ten evaluations, all around .42."""
    heldout = every(10, noisy(ramp(0.44, 0.41, 90), 0.004, 3))
    finding = run({REWARD: RISING, HELDOUT: heldout}).finding("REW008")
    assert (finding.severity, finding.remedies[0]) == ("warning", "recheck-reward")
    assert finding.active


@pytest.mark.parametrize(
    ("evaluations", "is_reported"),
    [
        ([0.4, 0.38, 0.31], True),
        ([0.4, 0.4, 0.4], True),
        ([0.4, 0.38, 0.41], False),  # it rises
        ([0.4, 0.31], False),
        ([0.9, 0.88, 0.85], False),  # hardly anything is left to gain
    ],
)
def test_solved_prompts_and_a_low_held_out_accuracy(
    evaluations: list[float], is_reported: bool
) -> None:
    """Three evaluations are enough once the training prompts are solved."""
    solved = noisy(ramp(0.4, 1.0, 40), 0.01, 1)
    heldout = every(80 // len(evaluations), lambda step: evaluations[
        min(step * len(evaluations) // 80, len(evaluations) - 1)])  # fmt: skip
    curves: dict[str, Curve] = {REWARD: lambda step: min(solved(step), 1.0), HELDOUT: heldout}
    found = run(curves, 80).findings("REW008")
    assert [finding.severity for finding in found] == ["warning"] * is_reported
    unsolved = run({**curves, REWARD: noisy(ramp(0.4, 0.8, 40), 0.01, 1)}, 80)
    assert unsolved.findings("REW008") == []


def test_few_evaluations_are_info() -> None:
    heldout = every(15, noisy(ramp(0.44, 0.42, 90), 0.004, 3))
    finding = run({REWARD: RISING, HELDOUT: heldout}).finding("REW008")
    assert finding.severity == "info"


def test_a_stall_after_early_progress_is_seen_in_the_window() -> None:
    """Both rise together at first; from step 300 on only the reward does."""
    reward = noisy(lambda step: 0.2 + min(step, 100) / 400 + max(0, step - 300) / 400, 0.02, 1)
    heldout = every(10, noisy(ramp(0.3, 0.5, 100), 0.003, 3))
    finding = run({REWARD: reward, STD: 0.3, HELDOUT: heldout}, 500).finding("REW008")
    assert finding.severity == "warning"
    assert finding.onset_step > 300


@pytest.mark.parametrize("seed", range(8))
def test_evaluations_that_end_a_little_higher_by_chance_are_a_stall(seed: int) -> None:
    """Half of all flat series end above their beginning."""
    curves = {
        REWARD: noisy(ramp(0.3, 0.8, 160), 0.02, seed),
        HELDOUT: every(10, noisy(0.4, 0.01, 40 + seed)),
    }
    assert run(curves, 200).finding("REW008").active


def test_a_stall_is_seen_with_an_evaluation_at_every_step() -> None:
    """The latest 128 evaluations contain only the last part of the rise."""
    curves = {REWARD: noisy(ramp(0.3, 0.8, 200), 0.02, 1), HELDOUT: noisy(0.4, 0.005, 2)}
    assert run(curves, 200).finding("REW008").active


@pytest.mark.parametrize("seed", range(5))
def test_a_fifth_of_the_rise_is_no_stall(seed: int) -> None:
    heldout = every(10, noisy(ramp(0.4, 0.5, 100), 0.01, seed))
    assert run({REWARD: RISING, HELDOUT: heldout}, 150).findings("REW008") == []


@pytest.mark.parametrize("seed", range(4))
def test_what_the_reward_gained_before_the_first_evaluation_does_not_count(seed: int) -> None:
    """Held-out accuracy rises a fifth as far as the reward, over the same steps."""

    def reward(step: int) -> float:
        return 0.7 - 0.4 * math.exp(-step / 25)

    evaluation = noisy(lambda step: 0.3 + 0.2 * (reward(step) - 0.3), 0.015, seed)
    heldout: Curve = lambda step: evaluation(step) if step % 10 == 5 and step > 10 else None  # noqa: E731
    patient = run({REWARD: noisy(reward, 0.01, 60 + seed), HELDOUT: heldout}, 200)
    assert [each for each in patient.findings("REW008") if each.severity == "warning"] == []


@pytest.mark.slow
def test_small_rises_of_held_out_accuracy_are_rarely_an_alarm() -> None:
    """A fifth of the reward's rise, with the noise of 50 to 500 held-out prompts."""
    alarms = 0
    for seed in range(200):
        scale = (0.06, 0.03, 0.02)[seed % 3]
        heldout = every(5 + 5 * (seed % 2), noisy(ramp(0.2, 0.28, 100), scale, seed))
        patient = run({REWARD: noisy(ramp(0.3, 0.7, 100), 0.02, 500 + seed), HELDOUT: heldout})
        alarms += any(each.severity == "warning" for each in patient.findings("REW008"))
    assert alarms <= 4


@pytest.mark.parametrize("seed", range(5))
def test_evaluations_that_rise_with_the_reward_are_quiet(seed: int) -> None:
    heldout = every(10, noisy(ramp(0.4, 0.6, 90), 0.03, seed))
    assert run({REWARD: RISING, HELDOUT: heldout}).findings("REW008") == []


def evaluated(first: float, last: float, heldout: float, scale: float, seed: int) -> Patient:
    """Sixty steps of a rising reward, and twelve evaluations that begin at .2."""
    evaluation = noisy(ramp(0.2, heldout, 60), scale, 1000 + seed)
    return run(
        {
            REWARD: noisy(ramp(first, last, 60), 0.05 * (last - first), seed),
            HELDOUT: every(5, evaluation),
        },
        60,
    )


@pytest.mark.parametrize(("first", "last"), [(0.3, 0.7), (1.0, 5.0)])
@pytest.mark.parametrize(("scale", "least"), [(0.005, 9), (0.012, 8)])
def test_noise_does_not_hide_a_stall_in_any_unit(
    first: float, last: float, scale: float, least: int
) -> None:
    """A return that grows from 1 to 5 has another unit than a share of wins."""
    findings = [
        finding
        for seed in range(10)
        for finding in evaluated(first, last, 0.2, scale, seed).findings("REW008")
        if finding.active and finding.severity == "warning"
    ]
    assert len(findings) >= least
    assert max(finding.onset_step for finding in findings) < 20  # the reward rises from step 0


def test_a_rare_success_among_held_out_prompts_is_a_stall_too() -> None:
    """One of fifty prompts in every fifth evaluation: the medians are 0, but REW009 is quiet."""
    heldout: Curve = every(5, lambda step: 0.02 if step % 25 == 10 else 0.0)
    finding = run({REWARD: noisy(ramp(1.0, 5.0, 60), 0.2, 1), HELDOUT: heldout}).finding("REW008")
    assert finding.severity == "warning"


@pytest.mark.parametrize(("first", "last"), [(0.3, 0.7), (1.0, 5.0)])
def test_a_rise_within_the_noise_of_few_prompts_is_no_warning(first: float, last: float) -> None:
    """Fifty held-out prompts: chance keeps some of the latest evaluations below the first."""
    patients = [evaluated(first, last, 0.3, 0.06, seed) for seed in range(10)]
    found = [finding for patient in patients for finding in patient.findings("REW008")]
    assert {finding.severity for finding in found} <= {"info"}


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_a_held_out_reward_of_another_unit_is_judged_in_its_own(scale: float) -> None:
    """A correct response earns 10 in the training and 1 in the evaluations, or the reverse."""
    rises = every(8, noisy(ramp(0.3 * scale, 0.4 * scale, 100), 0.05 * scale, 3))
    stays = every(8, noisy(0.3 * scale, 0.005 * scale, 4))
    curves: dict[str, Curve] = {REWARD: noisy(ramp(0.3, 0.7, 70), 0.03, 1)}
    risen = run({**curves, "reward/heldout": rises}).findings("REW008")
    assert [each for each in risen if each.severity == "warning"] == []
    assert run({**curves, "reward/heldout": stays}).finding("REW008").severity == "warning"


@pytest.mark.parametrize(("last", "is_stall"), [(0.43, True), (0.38, False)])
def test_a_fall_of_more_than_a_fifth_is_no_stall(last: float, is_stall: bool) -> None:
    """From there on it is a drop alone: 14 % and 24 % of the level are lost."""
    level: Curve = lambda step: 0.5 if step < 24 else last  # noqa: E731
    patient = run({REWARD: RISING, HELDOUT: every(8, noisy(level, 0.004, 3))})
    stalls = [each for each in patient.findings("REW008") if each.severity == "warning"]
    assert bool(stalls) is is_stall
    assert patient.finding("REW003").onset_step == 24


def test_no_stall_without_a_rise_or_near_the_ceiling() -> None:
    steady = every(10, noisy(0.42, 0.004, 3))
    assert run({REWARD: FLAT, HELDOUT: steady}).findings("REW008") == []
    solved = every(10, noisy(0.96, 0.004, 3))
    assert run({REWARD: RISING, HELDOUT: solved}).findings("REW008") == []


def test_shaping_that_rises_while_nothing_succeeds() -> None:
    """A format reward from 0 to .5; the evaluation has been -1 since the start."""
    shaped = noisy(ramp(0.0, 0.5, 60), 0.03, 1)
    finding = run({REWARD: shaped, "reward/heldout": every(10, -1.0)}).finding("REW009")
    assert (finding.severity, finding.remedies[0]) == ("warning", "recheck-reward")
    trained = run({REWARD: shaped, "accuracy/train": 0.0}).finding("REW009")
    assert "Training accuracy has been 0" in trained.summary


def test_any_success_or_a_flat_reward_ends_it() -> None:
    shaped = noisy(ramp(0.0, 0.5, 60), 0.03, 1)
    once = every(10, lambda step: 0.02 if step == 50 else 0.0)
    assert [
        each for each in run({REWARD: shaped, HELDOUT: once}).findings("REW009") if each.active
    ] == []
    assert run({REWARD: FLAT, HELDOUT: every(10, 0.0)}).findings("REW009") == []


def component(name: str, part: str = "mean") -> str:
    return f"reward/component/{name}/{part}"


def test_a_component_that_rises_while_another_falls_is_a_warning() -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.2, 1.0, 60), 0.03, 1),
        component("style"): noisy(ramp(0.0, 1.2, 60), 0.03, 2),
        component("correct"): noisy(ramp(0.4, 0.05, 60), 0.02, 3),
    }
    finding = run(curves, 150).finding("REW010")
    assert (finding.severity, finding.remedies[0]) == ("warning", "reweight-rewards")
    assert "Component style rose" in finding.summary
    assert "correct fell" in finding.summary


def test_a_task_that_slowly_loses_to_a_length_penalty() -> None:
    """A planted run: brevity rises from -1.6 to -.4, the task falls from .38 to .2 in the noise."""
    curves: dict[str, Curve] = {
        component("brevity"): noisy(ramp(-1.6, -0.4, 50), 0.1, 1, low=-9),
        component("task"): noisy(ramp(0.4, 0.17, 60), 0.08, 3),
        REWARD: noisy(ramp(-1.2, -0.2, 50), 0.12, 2, low=-9),
    }
    finding = run(curves, 80).finding("REW010")
    assert finding.severity == "warning"
    assert "Component brevity rose" in finding.summary
    steady = {**curves, component("task"): noisy(0.3, 0.08, 3)}
    assert run(steady, 80).findings("REW010") == []


@pytest.mark.parametrize(("correct", "severity"), [(0.01, "warning"), (0.4, "info")])
def test_a_format_alone_that_is_learned_is_no_success(correct: float, severity: str) -> None:
    """A public run: format .38 to .72 in 300 steps, answers .01 throughout."""
    curves: dict[str, Curve] = {
        component("format"): noisy(ramp(0.35, 0.75, 250), 0.05, 1),
        component("answer"): noisy(correct, 0.012, 2),
        REWARD: noisy(ramp(0.05, 0.09, 250), 0.008, 3),
    }
    finding = run(curves, 300).finding("REW010")
    assert finding.severity == severity
    first = "recheck-reward" if severity == "warning" else "reweight-rewards"
    assert finding.remedies[0] == first
    assert "component answer stayed" in finding.summary


def scaled(large: float) -> dict[str, Curve]:
    return {
        REWARD: lambda step: 10.0 + 0.5 + step % 3,
        component("score"): lambda step: 10.0 + step % 3,
        component("score", "std"): large,
        component("format"): 0.5,
        component("format", "std"): 0.3,
    }


def test_correctness_is_meant_to_dominate() -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(1.2, 1.1, 80), 0.02, 1),
        component("correctness"): noisy(ramp(0.4, 0.85, 80), 0.02, 2),
        component("format"): noisy(ramp(0.8, 0.25, 80), 0.02, 3),
    }
    assert run(curves, 80).finding("REW010").severity == "info"


def test_a_component_on_a_larger_scale_is_info() -> None:
    finding = run(scaled(8.0)).finding("REW010")
    assert finding.severity == "info"
    assert "100%" in finding.summary
    assert run(scaled(0.6)).findings("REW010") == []


def test_unknown_weights_say_nothing_about_the_scale() -> None:
    curves = {**scaled(8.0), REWARD: lambda step: 2.0 + step % 3}
    assert run(curves).findings("REW010") == []


def test_a_public_run_with_a_learned_correctness_is_quiet() -> None:
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.2, 1.5, 60), 0.1, 1),
        component("correct"): noisy(ramp(0.1, 1.2, 60), 0.1, 2),
        component("format"): noisy(ramp(0.1, 0.3, 60), 0.02, 3),
        component("strict"): 0.0,
    }
    assert run(curves).findings("REW010") == []


def format_first(accuracy: Curve, paid: Curve | None = None) -> dict[str, Curve]:
    """A format that is learned in a hundred steps, and a component for correctness."""
    form = paid or noisy(ramp(0.1, 0.95, 100), 0.02, 1)
    return {
        component("accuracy"): accuracy,
        component("format"): form,
        REWARD: lambda step: point_of(accuracy, step) + point_of(form, step),
    }


def test_a_correctness_that_stays_where_it_was_is_noted() -> None:
    """In one of twenty runs, chance raises the component by two standard errors at the end."""
    rules = [rule for rule in all_rules() if rule.code == "REW010"]
    noted = [
        finding
        for seed in range(20)
        for finding in Patient(
            steps(150, format_first(noisy(0.1, 0.015, seed))), rules=rules
        ).findings("REW010")
        if finding.active
    ]
    assert len(noted) >= 16
    assert {finding.severity for finding in noted} == {"info"}
    text = "supplies 100% of the reward's rise; component accuracy stayed at"
    assert all(text in finding.summary for finding in noted)


@pytest.mark.parametrize(
    "accuracy",
    [
        noisy(ramp(0.1, 0.5, 100, begin=50), 0.02, 2),  # the format is learned first
        noisy(ramp(0.1, 0.2, 150), 0.02, 2),
        noisy(0.97, 0.01, 2),  # already saturated
        noisy(0.4, 0.2, 2),  # too noisy to exclude a part of the rise
    ],
    ids=["later", "slow", "saturated", "noisy"],
)
def test_a_correctness_that_rises_or_cannot_rise_is_not(accuracy: Curve) -> None:
    assert not any(each.active for each in run(format_first(accuracy), 150).findings("REW010"))


def test_a_format_learned_in_few_steps_is_not() -> None:
    curves = format_first(noisy(0.1, 0.015, 3), noisy(ramp(0.1, 0.95, 20), 0.02, 1))
    assert run(curves, 35).findings("REW010") == []


CODES = ("REW008", "REW009", "REW010", "REW011")


@pytest.mark.parametrize("seed", range(4))
def test_healthy_runs_are_quiet(seed: int) -> None:
    patient = Patient(steps(150, healthy(seed)), knobs={"prompts_per_batch": 16})
    assert [each for code in CODES for each in patient.findings(code)] == []


def test_skipped_and_not_applicable() -> None:
    skipped = {each.code for each in run({"clip/low_rate": 0.0}).engine.diagnosis().skipped}
    assert set(CODES) <= skipped
    patient = run({REWARD: NotApplicable("distilled"), HELDOUT: 0.5, STD: 0.1})
    assert patient.why_not("REW010") == "distilled"


def inverted(**curves: Curve) -> dict[str, Curve]:
    """Any wrong answer earns the reward: entropy rises until most groups are equal."""
    return {
        REWARD: noisy(ramp(0.45, 0.95, 40), 0.03, 1),
        "entropy/mean": noisy(ramp(0.5, 0.85, 30), 0.03, 2),
        "groups/zero_variance_rate": noisy(ramp(0.1, 0.8, 50), 0.05, 3),
        **curves,
    }


def test_a_reward_for_almost_any_response() -> None:
    finding = run(inverted()).finding("REW012")
    assert (finding.severity, finding.remedies[0]) == ("warning", "recheck-reward")
    assert finding.onset_step < 40


@pytest.mark.parametrize(
    "other",
    [
        {"entropy/mean": noisy(ramp(0.5, 0.2, 60), 0.02, 2)},
        {"groups/zero_variance_rate": noisy(0.2, 0.05, 3)},
        {REWARD: noisy(ramp(0.45, 0.05, 40), 0.02, 1)},
        {"accuracy/train": noisy(ramp(0.45, 0.95, 40), 0.03, 1)},
        {"entropy/mean": noisy(0.25, 0.12, 2)},  # batches of a single prompt, in a public run
        {"entropy/mean": noisy(0.25, 0.12, 7)},
    ],
)
def test_success_and_collapse_are_no_reward_for_anything(other: dict[str, Curve]) -> None:
    assert run(inverted(**other)).findings("REW012") == []


def test_a_reward_that_follows_the_length() -> None:
    length = noisy(ramp(10, 24, 60), 0.8, 1)
    paid = {REWARD: lambda step: 0.05 * length(step), "length/mean": length}
    finding = run(paid).finding("REW013")
    assert (finding.severity, finding.remedies[0]) == ("warning", "recheck-reward")
    fined = {REWARD: lambda step: -0.05 * length(step), "length/mean": length}
    assert run(fined).finding("REW013").severity == "warning"
    cut = {**fined, "length/truncated_rate": noisy(0.3, 0.02, 2)}
    assert run(cut).findings("REW013") == []


def test_a_reward_for_the_logarithm_of_the_length_beside_the_task() -> None:
    """The length explains most of the reward's changes, correctness the rest."""
    length, solved = noisy(ramp(800, 16_000, 60), 300, 1), noisy(ramp(0.3, 0.5, 60), 0.015, 2)
    paid: dict[str, Curve] = {
        REWARD: lambda step: math.log2(float(length(step))) + float(solved(step)),
        "length/mean": length,
    }
    finding = run(paid).finding("REW013")
    assert finding.severity == "warning"
    assert run({**paid, "environment/turns_mean": noisy(5, 0.2, 3)}).findings("REW013") == []
    single = {**paid, "environment/turns_mean": noisy(1, 0.0, 3)}
    assert run(single).finding("REW013").severity == "warning"


def test_two_trends_are_no_reward_for_length() -> None:
    both = {REWARD: RISING, "length/mean": noisy(ramp(300, 1100, 70), 30, 4)}
    assert run(both).findings("REW013") == []
    steady = noisy(10, 0.3, 1)
    paid = {REWARD: lambda step: 0.05 * steady(step), "length/mean": steady}
    assert run(paid).findings("REW013") == []


def test_a_component_that_pays_for_length_is_noted() -> None:
    length, task = noisy(ramp(10, 14, 60), 0.8, 1), noisy(ramp(0.4, 0.7, 60), 0.08, 2)
    curves: dict[str, Curve] = {
        "length/mean": length,
        component("length"): lambda step: 0.05 * float(length(step)),
        component("task"): task,
        REWARD: lambda step: 0.05 * float(length(step)) + float(task(step)),
    }
    finding = run(curves).finding("REW013")
    assert finding.severity == "info"
    assert "Component length pays 0.05 per token" in finding.summary
    unrelated = {**curves, component("length"): noisy(0.5, 0.04, 5)}
    assert run(unrelated).findings("REW013") == []
