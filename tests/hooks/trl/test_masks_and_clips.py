"""Masks of tool results, clipping by loss, evaluations: against TRL's own log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import grpodoctor
from grpodoctor.vocabulary.values import NotApplicable, Rate, scalar
from tests.samples import sampled

pytestmark = pytest.mark.filterwarnings("ignore")

MakeTrainer = Callable[..., Any]
REUSED = {"num_iterations": 2, "learning_rate": 5e-2, "max_steps": 4}


def trained(trainer: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    attachment = grpodoctor.attach(trainer)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    records = grpodoctor.open_run(attachment.run_dir).records
    assert all(scalar(each.values["instruments/failed_parts"]) == 0 for each in records)
    return rows, records


@pytest.mark.slow
def test_tool_results_are_not_generated_tokens(make_trainer: MakeTrainer) -> None:
    calls = iter(range(1000))

    def rollouts(prompts: list[str], _trainer: Any) -> dict[str, Any]:
        answers = [[3, 4, 5, 6 + next(calls) % 4, 7, 1] for _ in prompts]
        return {
            "prompt_ids": [[2, 3] for _ in prompts],
            "completion_ids": answers,
            "logprobs": [[0.0] * 6 for _ in answers],
            "env_mask": [[1, 0, 0, 1, 1, 1] for _ in answers],
        }

    def varied(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [float(ids[3]) for ids in completion_ids]

    rows, records = trained(make_trainer(reward=varied, rollout_func=rollouts))
    for record, row in zip(records, rows, strict=True):
        assert scalar(record.values["length/mean"]) == 4
        assert scalar(record.values["optimizer/loss_tokens"]) == 16 * 4
        assert scalar(record.values["optimizer/untrained_token_rate"]) == 0
        assert scalar(record.values["entropy/mean"]) == pytest.approx(row["entropy"], rel=1e-4)
        assert scalar(record.values["optimizer/grad_norm"]) == pytest.approx(row["grad_norm"])


def test_generated_tokens_outside_the_loss_are_counted(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    generate = trainer._generate_and_score_completions

    def without_end(inputs: Any) -> Any:
        batch = generate(inputs)
        batch["completion_mask"][:8, -1] = 0
        return batch

    trainer._generate_and_score_completions = without_end
    _, records = trained(trainer)
    for record in records:
        rate = record.values["optimizer/untrained_token_rate"]
        assert isinstance(rate, Rate)
        tokens = 16 * scalar(record.values["length/mean"])
        assert (0 < rate.hits <= 8, rate.count) == (True, tokens)


def test_truncated_responses_outside_the_loss_are_no_untrained_tokens(
    make_trainer: MakeTrainer,
) -> None:
    _, records = trained(make_trainer(mask_truncated_completions=True))
    rates = [record.values["optimizer/untrained_token_rate"] for record in records]
    assert all(isinstance(each, NotApplicable) or scalar(each) == 0 for each in rates)


@pytest.mark.parametrize(
    "settings",
    sampled(
        [
            {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.01},
            {"loss_type": "dapo", "delta": 1.5, "epsilon": 0.05},
            {"loss_type": "cispo", "epsilon_high": 1.05},
        ],
        2,
    ),
)
def test_clip_rates_are_those_of_trl(make_trainer: MakeTrainer, settings: dict[str, Any]) -> None:
    rows, records = trained(make_trainer(**REUSED | settings))
    seen = 0.0
    for record, first, second in zip(records, rows[::2], rows[1::2], strict=True):
        pairs = {"clip_ratio/low_mean": "clip/low_rate", "clip_ratio/high_mean": "clip/high_rate"}
        if settings["loss_type"] == "cispo":
            pairs = {"cispo_clip_ratio": "clip/high_rate"}
        for key, metric in pairs.items():
            both = (first[key] + second[key]) / 2
            assert scalar(record.values[metric]) == pytest.approx(both, abs=2e-3)
            seen += both
    assert seen > 0


def test_truncated_responses_that_are_masked_keep_their_length(make_trainer: MakeTrainer) -> None:
    rows, records = trained(make_trainer(mask_truncated_completions=True))
    for record, row in zip(records, rows, strict=True):
        length = scalar(record.values["length/mean"])
        assert length == pytest.approx(row["completions/mean_length"])
        truncated = scalar(record.values["length/truncated_rate"])
        assert truncated == pytest.approx(row["completions/clipped_ratio"])
        assert scalar(record.values["optimizer/loss_tokens"]) < 16 * length


def test_evaluations_are_heldout_rewards(make_trainer: MakeTrainer) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 16}
    bare = make_trainer("bare", evaluates=True, **settings)
    bare.train()
    trainer = make_trainer("observed", evaluates=True, **settings)
    _, records = trained(trainer)
    assert [record.step for record in records] == [1, 2, 3, 4]
    (reward, *_) = [row["eval_reward"] for row in trainer.state.log_history if "eval_reward" in row]
    assert scalar(records[2].values["reward/heldout"]) == pytest.approx(reward)
    pairs = zip(bare.model.parameters(), trainer.model.parameters(), strict=True)
    assert all(np.array_equal(a.detach().numpy(), b.detach().numpy()) for a, b in pairs)


@pytest.mark.slow
def test_several_generations_per_optimizer_step_are_one_step(make_trainer: MakeTrainer) -> None:
    settings = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    rows, records = trained(make_trainer(steps_per_generation=1, **settings))
    assert [record.step for record in records] == [1, 2, 3, 4]
    for record, row in zip(records, rows, strict=True):
        assert scalar(record.values["reward/mean"]) == pytest.approx(row["reward"])
        assert scalar(record.values["optimizer/loss"]) == pytest.approx(row["loss"], abs=1e-4)
        assert scalar(record.values["optimizer/loss_tokens"]) == pytest.approx(
            16 * scalar(record.values["length/mean"])
        )
