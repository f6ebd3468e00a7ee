"""Courses that show in a part of the readings: rare success beside a form that always pays, …"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from tests.monitor.diagnosis.test_first_causes import diagnosed, heads
from tests.rules.scenario import Patient, healthy, noisy, ramp, steps

REWARD, ACCURACY, FLAT = "reward/mean", "accuracy/train", "groups/zero_variance_rate"
TASK, FORM = "reward/component/{}/mean", "reward/component/format/mean"


def starved(success: float, flat: float, name: str = "accuracy_reward") -> dict:
    level = noisy(success, success / 3, 3) if success else 0.0
    total = (lambda step: 1 + level(step)) if success else 1.0
    return {REWARD: total, TASK.format(name): level, FORM: 1.0, FLAT: noisy(flat, 0.01, 4)}


@pytest.mark.parametrize("name", ["accuracy_reward", "rewards_task"], ids=["by name", "by course"])
@pytest.mark.parametrize(("success", "flat"), [(0.01, 0.92), (0.004, 0.97)])
def test_rare_success_beside_a_constant_format_reward_is_starvation(tmp_path, success, flat, name):
    diagnosis = diagnosed(tmp_path / "run", starved(success, flat, name), count=80)
    assert diagnosis.verdict.code == "GRP002"
    assert diagnosis.verdict.kind == "sick"
    cited = {each.metric for each in diagnosis.problems[0].cause.evidence}
    assert TASK.format(name) in cited


def test_a_component_that_is_never_earned_is_named_beside_a_constant_format_reward(tmp_path):
    diagnosis = diagnosed(tmp_path / "run", starved(0.0, 1.0), count=60)
    assert diagnosis.verdict.code == "GRP002"


def test_half_of_the_responses_correct_beside_a_format_reward_is_no_starvation(tmp_path):
    diagnosis = diagnosed(tmp_path / "run", starved(0.5, 0.3), count=80)
    assert diagnosis.verdict.code != "GRP002"


@pytest.mark.parametrize(("level", "kind"), [(0.4, "sick"), (0.75, "healthy")])
def test_entropy_that_is_gone_while_most_is_left_to_learn_ends_a_run_that_rose(
    tmp_path, level, kind
):
    curves = {
        "entropy/mean": ramp(0.5, 0.01, 30, begin=5),
        REWARD: noisy(ramp(0.2, level, 40), 0.015, 5),
        FLAT: noisy(ramp(0.25, 0.88, 40), 0.01, 6),
    }
    diagnosis = diagnosed(tmp_path / "run", curves, count=130)
    assert diagnosis.verdict.kind == kind
    assert ("ENT001" in heads(diagnosis)) is (kind == "sick")


def test_a_lasting_fall_below_the_best_level_is_noted_in_the_first_line(tmp_path):
    rise, fall = ramp(0.3, 0.6, 50), ramp(0.0, -0.18, 20, begin=60)
    curves = {REWARD: noisy(lambda step: rise(step) + fall(step), 0.015, 7)}
    verdict = diagnosed(tmp_path / "run", curves, count=120).verdict
    assert verdict.kind == "healthy"
    assert "but note REW002: Reward fell from 0.6" in verdict.sentence
    kept = diagnosed(tmp_path / "kept", {REWARD: noisy(rise, 0.015, 7)}, count=120).verdict
    assert "REW002" not in kept.sentence


def test_the_best_level_of_a_run_that_fell_at_once_is_that_of_its_first_readings(tmp_path):
    values = [0.5, 0.52, 0.48, 0.3, 0.15, 0.05, 0.02, *(0.01,) * 23]
    path = tmp_path / "run.jsonl"
    for count in (12, 30):
        rows = ({"step": step + 1, "reward": value} for step, value in enumerate(values[:count]))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert "fell from 0.5 at the start" in replay(path).report.diagnosis.verdict.sentence


def test_a_short_noisy_run_has_not_collapsed_within_ten_steps():
    for seed in range(40):
        draw = random.Random(seed)
        values = [sum(draw.random() < 0.4 for _ in range(16)) / 16 for _ in range(14)]
        curves = {**healthy(1), REWARD: lambda step, v=values: v[step], "accuracy/train": None}
        kept = {name: curve for name, curve in curves.items() if curve is not None}
        assert not Patient(steps(14, kept)).findings("REW002")


def test_a_held_out_fall_begins_after_its_best_evaluation(tmp_path: Path):
    levels = {4: 0.518, 9: 0.496, 14: 0.514, 19: 0.49, 24: 0.5, 29: 0.479, 34: 0.429, 39: 0.352,
              44: 0.333, 49: 0.278, 54: 0.239, 59: 0.208}  # fmt: skip
    curves = {REWARD: noisy(ramp(0.3, 0.7, 50), 0.02, 8), "accuracy/heldout": levels.get}
    (found,) = Patient(steps(60, {**healthy(1), **curves})).findings("REW003")
    best = int(found.summary.split("(step ")[1].split(")")[0])
    assert best < found.onset_step


@pytest.mark.parametrize("name", ["acc", "math_reward", "em"])
def test_a_component_for_the_task_is_known_by_a_whole_word_of_its_name(name):
    curves = {
        TASK.format(name): noisy(0.4, 0.01, 1),
        TASK.format("len_bonus"): noisy(ramp(2.6, 8.6, 80), 0.1, 2),
        REWARD: noisy(ramp(3.0, 9.0, 80), 0.1, 3),
    }
    found = Patient(steps(100, {**healthy(1), **curves})).findings("REW010")
    assert f"component {name} stayed at 0.4" in found[0].summary
