"""REW020: an outcome that is where it began, with what the log shows of the reason."""

from __future__ import annotations

import json
import random
import re

import pytest

from grpodoctor.rules.base import Finding
from grpodoctor.rules.shared.outcome.flat_outcome import is_above_start
from grpodoctor.vocabulary.values import NotApplicable
from tests.cli.in_process import run
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps

REWARD, FLAT, KL = "reward/mean", "groups/zero_variance_rate", "kl/reference/k3"


def flat(level: float = 0.4, **curves: Curve) -> dict[str, Curve]:
    """A reward that does not rise, in a run with a gradient."""
    named = {name.replace("__", "/"): curve for name, curve in curves.items()}
    return {
        REWARD: noisy(level, 0.03, 1),
        "entropy/mean": noisy(0.5, 0.01, 2),
        "length/mean": noisy(200, 5, 3),
        "optimizer/grad_norm": noisy(0.4, 0.05, 4),
        FLAT: noisy(0.2, 0.03, 5),
        KL: noisy(0.005, 0.0003, 6),
        **named,
    }


@pytest.mark.parametrize("seed", range(4))
def test_medians_that_jump_between_0_and_1_are_no_rise(seed: int) -> None:
    """Batches of four responses without a trend: the medians are 0 and .5, the means .3 and .5."""
    shares = (0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0)
    middle = random.Random(seed).choices(shares, k=100)
    first = [1, 0, 0, 0, 0, 0.75, 0, 1, 0, 0.25]
    latest = [1, 0, 1, 0, 0.5, 0.75, 0.5, 1, 0, 0.25]
    patient = Patient(steps(120, {REWARD: [*first, *middle, *latest]}))
    assert not is_above_start(patient.engine.chart.series(REWARD))


def test_an_early_rise_that_is_partly_lost_is_a_rise() -> None:
    reward = lambda step: 0.2 + 0.4 * min(step, 10) / 10 - max(0, step - 10) * 0.0015  # noqa: E731
    patient = Patient(steps(120, {REWARD: noisy(reward, 0.02, 1)}))
    series = patient.engine.chart.series(REWARD)
    assert series.trend < 0
    assert is_above_start(series)


def test_chance_at_both_ends_of_a_long_run_is_no_rise() -> None:
    """Rewards of 0 to 2 of eight responses: ten low ones, 280 without a trend, ten high ones."""
    middle = [(0.25, 1.75, 0.5, 2.0, 1.0, 0.0, 1.5)[step * 5 % 7] for step in range(280)]
    first = [0.25, 1.0, 0.0, 0.5, 1.75, 0.25, 0.5, 1.25, 0.25, 0.75]
    latest = [1.5, 1.0, 1.75, 0.0, 1.75, 1.5, 1.5, 1.5, 1.75, 0.25]
    patient = Patient(steps(300, {REWARD: [*first, *middle, *latest]}))
    assert not is_above_start(patient.engine.chart.series(REWARD))


def test_a_rise_within_the_first_ten_readings_is_a_rise() -> None:
    reward = noisy(lambda step: 0.2 if step < 3 else 0.6, 0.02, 1)
    series = Patient(steps(100, {REWARD: reward})).engine.chart.series(REWARD)
    assert is_above_start(series)


def note(curves: dict[str, Curve], count: int = 120) -> Finding:
    return Patient(steps(count, curves)).finding("REW020")


@pytest.mark.parametrize(
    ("curves", "text", "remedy"),
    [
        (flat(groups__zero_variance_rate=noisy(0.7, 0.03, 5)), "% of groups have equal", 3),
        (flat(reward__mean=noisy(0.93, 0.01, 1)), "little is left to gain", "harder-prompts"),
        (flat(kl__reference__k3=noisy(0.001, 1e-4, 6)), "is still within", "raise-learning-rate"),
        (flat(), "; entropy and length are unchanged at a KL of 0.005", "raise-learning-rate"),
        (flat(kl__reference__k3=ramp(0, 0.1, 120)), "the KL rose from 0.0", "recheck-reward"),
        (
            flat(length__mean=noisy(ramp(200, 80, 120), 5, 3)),
            "; length went from",
            "recheck-reward",
        ),
        (flat(kl__reference__k3=0.0), "within its noise of", "recheck-reward"),
    ],
    ids=["groups", "ceiling", "little", "unchanged", "in vain", "length", "unknown"],
)
def test_the_note_states_what_the_log_shows(
    curves: dict[str, Curve], text: str, remedy: str | int
) -> None:
    finding = note(curves)
    assert text in finding.summary
    assert (finding.severity, finding.active) == ("info", True)
    if isinstance(remedy, str):
        assert finding.remedies[0] == remedy
    else:
        assert "dynamic-sampling" in finding.remedies


def test_equal_groups_of_failures_call_for_easier_prompts() -> None:
    curves = flat(0.03, groups__zero_variance_rate=noisy(0.8, 0.03, 5))
    assert "most are all-incorrect" in note(curves).summary
    assert note(curves).remedies[0] == "easier-prompts"


@pytest.mark.parametrize(("size", "remedy"), [(2, "larger-groups"), (8, "dynamic-sampling")])
def test_groups_of_two_are_alike_at_every_pass_rate(size: int, remedy: str) -> None:
    finding = note(flat(groups__zero_variance_rate=noisy(0.7, 0.03, 5), groups__size=size))
    assert finding.remedies[0] == remedy
    assert ("of groups of 2 have equal rewards" in finding.summary) == (size == 2)


@pytest.mark.parametrize("count", [40, 400])
def test_a_rise_of_three_times_the_noise_is_seen(count: int) -> None:
    stated = float(note(flat(), count).summary.split("noise of ")[1].split()[0].rstrip(".;"))
    rising = flat(reward__mean=noisy(ramp(0.4, 0.4 + 3 * stated, count), 0.03, 1))
    assert all(not each.active for each in Patient(steps(count, rising)).findings("REW020"))


def test_a_reference_that_was_far_away_from_the_start_is_no_move_of_the_policy() -> None:
    """A public run: the KL went from .31 to .23, and the verdict said that it moved by .24."""
    for curve in (0.31, noisy(ramp(0.31, 0.23, 120), 0.01, 6)):
        assert "KL" not in note(flat(kl__reference__k3=curve)).summary


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("count", [20, 40, 100, 400])
def test_the_stated_rise_is_within_the_stated_noise(seed: int, count: int) -> None:
    """A public run: from .0394 to .0471, "within its noise" of .0043."""
    curve = noisy(lambda step: 0.4 + 0.02 * (step % 40 < 20), 0.03, seed)
    found = Patient(steps(count, flat(reward__mean=curve))).findings("REW020")
    for finding in found:
        pattern = r"Reward (?:fell: )?(\S+) → (\S+), (?:within|beyond) its noise of ([\d.]+\d)"
        stated = re.match(pattern, finding.summary)
        assert stated, finding.summary
        before, after, noise = map(float, stated.groups())
        assert after - before <= 1.1 * noise, finding.summary
        fell = before - after > noise
        assert ("beyond" in finding.summary) == ("fell" in finding.summary) == fell, finding.summary


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_note_is_over_when_a_run_learns(seed: int) -> None:
    found = Patient(steps(100, healthy(seed))).findings("REW020")
    assert [each for each in found if each.active] == []


@pytest.mark.parametrize(
    "curve", [1.0, 0.0, noisy(ramp(0.6, 0.1, 120), 0.03, 1)], ids=["solved", "nothing", "lost"]
)
def test_other_rules_report_rewards_that_are_constant_or_lost(curve: Curve) -> None:
    found = Patient(steps(120, flat(reward__mean=curve))).findings("REW020")
    assert [each for each in found if each.active] == []


def test_too_few_readings_and_groups_without_a_meaning_say_nothing() -> None:
    assert Patient(steps(19, flat())).findings("REW020") == []
    critic = Patient(
        steps(120, flat(groups__zero_variance_rate=NotApplicable("a critic"))),
        knobs={"advantage": "gae"},
    )
    assert "groups" not in critic.finding("REW020").summary


def test_the_verdict_of_flat_names_the_reason_and_what_to_paste(tmp_path) -> None:
    noise = random.Random(1)
    log = tmp_path / "trainer_state.json"
    rows = [
        {
            "step": step,
            "reward": 0.3 + noise.gauss(0, 0.03),
            "reward_std": 0.4,
            "kl": 0.001 + noise.gauss(0, 1e-4),
            "entropy": 0.5 + noise.gauss(0, 0.01),
            "grad_norm": 0.3,
            "learning_rate": 1e-6,
            "completions/mean_length": 200.0 + noise.gauss(0, 3),
        }
        for step in range(1, 101)
    ]
    log.write_text(json.dumps({"log_history": rows, "global_step": 100}))
    result = run("check", str(log))
    text = " ".join(result.stdout.split())
    assert text.startswith("FLAT reward 0.3")
    assert "the policy is still within" in text
    assert "first, multiply the learning rate by three. learning_rate=3e-06" in text
    assert "Findings" not in text  # the first line has said it
    assert result.returncode == 0
    verdict = json.loads(run("check", str(log), "--json").stdout)["verdict"]
    assert (verdict["kind"], verdict["code"]) == ("flat", "REW020")


def test_noise_that_would_hide_a_large_rise_calls_for_a_larger_batch_first() -> None:
    draw = random.Random(3)
    values = [sum(draw.random() < 0.4 for _ in range(4)) / 4 for _ in range(50)]
    curves = {REWARD: lambda step: values[step], "entropy/mean": noisy(0.5, 0.01, 2)}
    (note,) = Patient(steps(50, curves)).findings("REW020")
    assert "this noise would hide a rise by half" in note.summary
    assert note.remedies[0] == "larger-batch"
    (quiet,) = Patient(steps(50, {REWARD: noisy(0.4, 0.03, 1)})).findings("REW020")
    assert "would hide" not in quiet.summary
