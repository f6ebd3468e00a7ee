"""Which key holds the outcome: centred rewards, accuracies of evaluations, error rates."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.reading.key_words import reward_key_among
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar


def opened(
    path: Path, row: Callable[[int], dict[str, float | None]], mapping: dict[str, str] | None = None
) -> tuple[list[StepRecord], FrameworkRun]:
    rows = [{"step": step, "loss": 0.01 * (step % 3), **row(step)} for step in range(30)]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    run = open_run(path, ReadOptions(mapping=mapping or {}))
    assert isinstance(run, FrameworkRun)
    return list(run.steps), run


def centred(step: int) -> dict[str, float | None]:
    return {"rewards/total_mean": 2e-7 * math.sin(step), "rewards/total_std": 0.6}


def test_the_raw_reward_is_read_instead_of_a_centred_one(tmp_path: Path) -> None:
    steps, run = opened(
        tmp_path / "log.jsonl",
        lambda step: {**centred(step), "rewards/raw_task_mean": step / 40, "rewards/raw_wer": -0.2},
    )
    assert scalar(steps[20].values["reward/mean"]) == 0.5
    (note,) = (note for note in run.notes if "0 by construction" in note)
    assert note.startswith("rewards/total_mean: ")
    assert note.endswith("rewards/raw_task_mean is read as reward/mean")


def test_without_a_raw_reward_the_note_says_that_it_is_centred(tmp_path: Path) -> None:
    steps, run = opened(tmp_path / "log.jsonl", centred)
    assert not any("reward/mean" in step.values for step in steps)
    assert any("log the mean of the raw rewards" in note for note in run.notes)


def test_a_known_name_may_hold_a_centred_reward(tmp_path: Path) -> None:
    steps, _ = opened(
        tmp_path / "log.jsonl",
        lambda step: {"reward_mean": 1e-8, "reward_std": 0.9, "raw_reward": step / 40},
    )
    assert scalar(steps[20].values["reward/mean"]) == 0.5


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.0), (0.004, 0.9), (-0.1, 0.9)])
def test_a_reward_near_zero_is_not_centred(mean: float, std: float, tmp_path: Path) -> None:
    """A dead reward has no spread; the mean of a batch around zero is rarely so small."""
    steps, run = opened(
        tmp_path / "log.jsonl", lambda _: {"reward_mean": mean, "reward_std": std, "raw_reward": 1}
    )
    assert scalar(steps[20].values["reward/mean"]) == mean
    assert not any("construction" in note for note in run.notes)


def test_the_users_mapping_may_name_a_centred_reward(tmp_path: Path) -> None:
    steps, _ = opened(tmp_path / "log.jsonl", centred, {"rewards/total_mean": "reward/mean"})
    assert "reward/mean" in steps[0].values


@pytest.mark.parametrize("key", ["exact", "exact_match", "em"])
def test_an_accuracy_measured_before_the_training_is_held_out(key: str, tmp_path: Path) -> None:
    steps, run = opened(
        tmp_path / "log.jsonl",
        lambda step: {key: step / 60, "cer": 0.6 - step / 90, "reward": 0.4 if step else None},
    )
    assert scalar(steps[15].values["accuracy/heldout"]) == 0.25
    assert "accuracy/train" not in steps[15].values
    assert not any("cer" in name for step in steps for name in step.values)
    assert any(f"{key} is read as accuracy/heldout" in note for note in run.notes)


def test_an_accuracy_of_the_training_batch_stays_one(tmp_path: Path) -> None:
    """It is missing in some rows, and so is the reward in others, but not before the first."""
    steps, _ = opened(
        tmp_path / "log.jsonl",
        lambda step: {"exact_match": step / 60, "reward": None if step % 4 == 3 else 0.4},
    )
    assert scalar(steps[15].values["accuracy/train"]) == 0.25
    assert "accuracy/heldout" not in steps[15].values


@pytest.mark.parametrize("name", ["cer", "wer", "error_rate", "perplexity", "ppl"])
def test_error_rates_are_neither_accuracies_nor_rewards(name: str) -> None:
    translator = Translator(generic_framework())
    keys = [name, f"eval_{name}", f"eval/{name}", f"val/{name}", f"eval/set/{name}"]
    assert not any(
        metric.startswith(("accuracy", "reward")) for metric in translator.readings(
            dict.fromkeys(keys, 0.3)
        )
    )  # fmt: skip
    assert reward_key_among({f"{name}_score": 30}) == ""


def test_exact_answers_of_an_evaluation_are_an_accuracy() -> None:
    readings = Translator(generic_framework()).readings({"eval_exact": 0.3, "loss": 1.0})
    assert scalar(readings["accuracy/heldout"]) == 0.3
