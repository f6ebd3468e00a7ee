from __future__ import annotations

from functools import partial

import pytest

from tests.rules.scenario import Curve, Patient, altered, noisy, ramp, steps

ACCURACY, REWARD = "accuracy/train", "reward/mean"

run = partial(altered, count=120)


def test_components_that_never_move_are_info_alongside_a_healthy_run() -> None:
    """A healthy public run: two format rewards are 0 on every one of 250 steps."""
    curves: dict[str, Curve] = {
        "reward/component/strict/mean": 0.0,
        "reward/component/language/mean": 1.0,
    }
    finding = run(curves).finding("REW004")
    assert finding.severity == "info"
    assert finding.summary.endswith("ever earned strict (always 0).")


def test_a_component_that_every_response_earns_is_no_news() -> None:
    """The format of the bundled tasks: 1 in nearly every step, with a slip now and then."""

    def slips(step: int) -> float:
        return 127 / 128 if step in {27, 60, 150} else 1.0

    assert run({"reward/component/format/mean": slips}, count=200).findings("REW004") == []


def test_a_component_that_comes_alive_resolves_it() -> None:
    finding = run({"reward/component/late/mean": ramp(0.0, 0.5, 20, begin=60)}).finding("REW004")
    assert not finding.active


def _forgone(task: Curve, **others: Curve) -> Patient:
    """A run that learned the format, so that nearly all of its groups have equal rewards."""
    curves: dict[str, Curve] = {
        REWARD: ramp(0.3, 1.5, 40),
        "groups/zero_variance_rate": ramp(0.3, 0.95, 40),
        "reward/component/format/mean": ramp(0.3, 1.0, 40),
        "reward/component/task/mean": task,
        **others,
    }
    return Patient(steps(100, curves))


def test_a_component_that_is_not_learned_while_the_others_are() -> None:
    rare: Curve = [0.02 if step % 9 == 3 else 0.0 for step in range(100)]
    finding = _forgone(rare).finding("REW004")
    assert finding.severity == "warning"
    assert finding.active
    assert "Component task is mostly 0" in finding.summary
    assert 25 <= finding.onset_step <= 45


@pytest.mark.parametrize(
    ("task", "others"),
    [
        (noisy(ramp(0.1, 0.5, 40), 0.02, 2), {}),  # it is learned
        ([-0.1 if step % 9 == 3 else 0.0 for step in range(100)], {}),  # a penalty
        ([0.02 if step % 9 == 3 else 0.0 for step in range(100)],
         {"groups/zero_variance_rate": noisy(0.4, 0.05, 1)}),  # the groups still differ
        ([0.02 if step % 9 == 3 else 0.0 for step in range(100)], {ACCURACY: 0.99}),  # solved
    ],
)  # fmt: skip
def test_a_rarely_earned_component_alone_is_no_fault(task: Curve, others: dict[str, Curve]) -> None:
    assert [each.severity for each in _forgone(task, **others).findings("REW004")] in ([], ["info"])


def test_a_task_that_was_never_rewarded_is_a_warning() -> None:
    """A public run: the format earned now and then, the equation in none of 39 batches."""
    curves: dict[str, Curve] = {
        REWARD: lambda step: 0.125 * (step % 2),
        "reward/component/format_reward_func/mean": lambda step: 0.125 * (step % 2),
        "reward/component/equation_reward_func/mean": 0.0,
    }
    finding = Patient(steps(39, curves)).finding("REW004")
    assert finding.severity == "warning"
    assert "only the form of responses is rewarded" in finding.summary
    strict: dict[str, Curve] = {**curves, "reward/component/equation_reward_func/mean": 0.3}
    strict["reward/component/strict_format/mean"] = 0.0
    assert Patient(steps(39, strict)).finding("REW004").severity == "info"


def test_the_warning_ends_once_the_task_is_rewarded() -> None:
    """A public run: no right answer in 46 steps, a fifth of them later, and a format never earned.

    The rule looks at every tenth reading, so the milder note had not replaced the warning.
    """
    curves: dict[str, Curve] = {
        REWARD: lambda step: 0.2 * (step % 2) + (0.5 if step > 50 and step % 3 else 0.0),
        "reward/component/xml_format/mean": lambda step: 0.2 * (step % 2),
        "reward/component/correctness/mean": lambda s: 0.5 if s > 50 and s % 3 else 0.0,
        "reward/component/strict_format/mean": 0.0,
    }
    early, late = Patient(steps(45, curves)), Patient(steps(150, curves))
    assert early.finding("REW004").severity == "warning"
    assert [each.severity for each in late.findings("REW004") if each.active] == ["info"]
    never: dict[str, Curve] = {**curves, "reward/component/correctness/mean": 0.0}
    active = [each for each in Patient(steps(150, never)).findings("REW004") if each.active]
    assert [each.severity for each in active] == ["warning"]


def components(**means: Curve) -> Patient:
    curves: dict[str, Curve] = {"reward/mean": noisy(1.4, 0.1, 8)}
    curves |= {f"reward/component/{name}/mean": curve for name, curve in means.items()}
    return Patient(steps(60, curves))


def test_a_component_that_everybody_earns_is_info() -> None:
    finding = components(task=noisy(0.4, 0.1, 1), language=1.0, tone=0.25).finding("REW007")
    assert (finding.severity, finding.active) == ("info", True)
    assert "language (1) and tone (0.25)" in finding.summary
    assert "task" not in finding.summary


def test_a_format_that_single_responses_miss_is_constant() -> None:
    nearly: Curve = lambda step: 0.98 if step in (3, 31) else 1.0  # noqa: E731 - a curve
    finding = components(task=noisy(0.4, 0.1, 1), format=nearly).finding("REW007")
    assert "format (1)" in finding.summary


def test_components_that_move_or_are_alone_or_were_never_earned_are_none() -> None:
    moved = noisy(0.4, 0.1, 1)
    often: Curve = lambda step: 1.0 if step % 10 else 0.98  # noqa: E731 - a curve as any other
    assert components(task=moved, format=often).findings("REW007") == []
    assert components(task=moved, format=0.0).findings("REW007") == []
    assert components(task=1.0).findings("REW007") == []


def test_a_component_whose_mean_stands_still_while_responses_differ_does_teach() -> None:
    curves: dict[str, Curve] = {
        "reward/mean": noisy(1.4, 0.1, 8),
        "reward/component/task/mean": noisy(0.4, 0.1, 1),
        "reward/component/rank/mean": 0.5,
        "reward/component/rank/std": 0.3,
    }
    assert Patient(steps(60, curves)).findings("REW007") == []
