"""REW011: rewards that vary more than the batch explains, and rare ones far outside the others."""

from __future__ import annotations

import pytest

from tests.rules.scenario import Curve, noisy, ramp
from tests.rules.test_reward_progress import REWARD, STD, run


def test_noise_beyond_the_batch_is_a_warning_if_nothing_rises() -> None:
    """64 prompts explain .06; a judge that changes from step to step adds .3."""
    curves: dict[str, Curve] = {REWARD: noisy(0.5, 0.3, 1, low=-9), STD: 0.5}
    finding = run(curves, prompts_per_batch=64).finding("REW011")
    assert (finding.severity, finding.remedies[0]) == ("warning", "larger-batch")


def _with_penalty(level: Curve, size: float, *, once: int | None = None) -> dict[str, Curve]:
    """Every seventh batch of 64 has one reward of -100; or all batches from `once` on."""

    def is_hit(step: int) -> bool:
        return step % 7 == 3 if once is None else once <= step < once + 9

    base = level if callable(level) else (lambda _: level)
    reward = noisy(lambda step: base(step) + size / 64 * is_hit(step), 0.02, 4, low=-9)
    return {REWARD: reward, STD: lambda step: abs(size) / 8 if is_hit(step) else 0.4}


def test_rare_rewards_far_outside_the_others_are_named() -> None:
    finding = run(_with_penalty(0.5, -100.0), 100).finding("REW011")
    assert (finding.severity, finding.remedies) == ("warning", ("recheck-reward",))
    assert "far outside the others" in finding.summary
    assert finding.onset_step <= 10
    rising = run(_with_penalty(ramp(0.2, 6.0, 100), -100.0), 100).finding("REW011")
    assert rising.severity == "info"
    groups = _with_penalty(0.5, -100.0)
    groups["groups/reward_std"] = groups.pop(STD)
    assert run(groups, 100).finding("REW011").severity == "warning"


def test_rare_successes_that_earn_much_are_a_note() -> None:
    """A reward for shape of .05, and ten points for the goal, which one in a thousand reaches."""
    finding = run(_with_penalty(0.5, 100.0), 100).finding("REW011")
    assert finding.severity == "info"


def test_a_burst_an_ordinary_spread_and_a_solved_run_have_no_outliers() -> None:
    solved: dict[str, Curve] = {
        REWARD: lambda step: 0.99 if step > 30 else 0.5,
        STD: lambda step: 0.4 if step < 30 or step % 9 == 0 else 0.001,
    }
    first_successes: dict[str, Curve] = {
        REWARD: lambda step: 0.3 if step % 9 == 5 else 0.0,
        STD: lambda step: 0.45 if step % 9 == 5 else 0.0,
    }
    both_signs: dict[str, Curve] = {  # a reward with heavy tails
        REWARD: lambda step: 0.5 + (-1.5 if step % 14 == 3 else 1.5) * (step % 7 == 3),
        STD: lambda step: 12.0 if step % 7 == 3 else 0.4,
    }
    usual: dict[str, Curve] = {
        REWARD: lambda step: 0.5 - 1.5 * (step % 10 in {1, 4, 7}),
        STD: lambda step: 12.0 if step % 10 in {1, 4, 7} else 0.4,
    }
    for curves in (
        _with_penalty(0.5, -100.0, once=60), _with_penalty(0.5, -4.0), solved, first_successes,
        both_signs, usual,
    ):  # fmt: skip
        findings = run(curves, 100).findings("REW011")
        assert not [each for each in findings if "far outside" in each.summary]


def test_a_small_batch_gets_the_smallest_that_would_do() -> None:
    """Eight prompts scatter by .18, which 64 of them halve and halve again."""
    curves: dict[str, Curve] = {REWARD: noisy(0.5, 0.177, 1), STD: 0.5}
    finding = run(curves, prompts_per_batch=8).finding("REW011")
    assert finding.severity == "info"
    needed = int(finding.summary.split(" use ")[1].split()[0])
    assert 40 <= needed <= 100
    unknown = run(curves).finding("REW011")
    assert "times as many prompts" in unknown.summary


@pytest.mark.parametrize("prompts", [16, 64, 512])
def test_noise_as_the_batch_explains_it_is_quiet(prompts: int) -> None:
    curves: dict[str, Curve] = {REWARD: noisy(0.5, 0.45 * prompts**-0.5, 1), STD: 0.5}
    assert run(curves, prompts_per_batch=prompts).findings("REW011") == []


def test_a_batch_of_one_prompt_varies_more_than_its_groups_explain() -> None:
    """A planted run: eight groups of one prompt vary by .17, eight prompts by .10."""
    spread: dict[str, Curve] = {STD: 0.48, "groups/reward_std": 0.448, "groups/size": 8}
    same = run({REWARD: noisy(0.5, 0.17, 1), **spread}, prompts_per_batch=8)
    finding = same.finding("REW011")
    assert (finding.severity, "groups of a batch explain" in finding.summary) == ("info", True)
    spread |= {STD: 0.49, "groups/reward_std": 0.4}
    own = run({REWARD: noisy(0.5, 0.1, 1), **spread}, prompts_per_batch=8)
    assert own.findings("REW011") == []
