"""Environments of trials: what a tool adds to a response, and who gets to see it."""

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.learn_batch import LearnBatch
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.recording import TrainingStep
from grpodoctor.trials import environments, faults, running
from grpodoctor.trials.registry import all_trials, trial_of
from grpodoctor.trials.trial import CONTROL

SETTINGS = (
    "threads=1",
    "record.enabled=false",
    "rollout.prompts_per_batch=4",
    "rollout.group_size=8",
    "evaluation.every=0",
)
RESULT_TOKENS = 6
"""A result such as `<abcd>`."""


@dataclass
class Observed:
    """A trainer whose batches and records are kept."""

    trainer: Trainer
    batches: list[LearnBatch] = field(default_factory=list)
    """What each update learned from."""
    steps: list[TrainingStep] = field(default_factory=list)
    """What each record was made from."""


@pytest.fixture
def observe(tmp_path: Path) -> Callable[..., Observed]:
    """Makes a trainer in an environment and keeps what it learns from and records."""

    def observe(environment: str, *assignments: str, fault: str | None = None) -> Observed:
        run_dir = tmp_path / str(len(list(tmp_path.iterdir())))
        trainer: Any = Trainer(load_config(assignments=[*SETTINGS, *assignments]), run_dir)
        observed = Observed(trainer)
        record = trainer.recording.step

        def recorded(step: TrainingStep, *arguments: Any) -> None:
            observed.steps.append(step)
            record(step, *arguments)

        trainer.recording.step = recorded
        getattr(environments, environment)(trainer)
        if fault:
            getattr(faults, fault)(trainer)
        learn_batch = trainer._learn_batch

        def learned(*arguments: Any) -> LearnBatch:
            observed.batches.append(learn_batch(*arguments))
            return observed.batches[-1]

        trainer._learn_batch = learned
        return observed

    return observe


def test_the_result_of_a_tool_is_read_but_neither_learned_nor_recorded(observe):
    observed = observe("noisy_tool")
    observed.trainer.train_step()
    (batch,), (step,) = observed.batches, observed.steps
    rollouts = step.rollouts
    called = [text.startswith("<") for text in rollouts.texts]
    assert 0 < sum(called) < len(called)
    for row, text in enumerate(rollouts.texts):
        width = RESULT_TOKENS if called[row] else 0
        tokens = int(batch.samples.attention_BL[row, batch.samples.prompt_width :].sum())
        assert text[:width].strip("<>").isalpha() == called[row]
        assert tokens > width, "the policy answers after the tool"
        expected = [False] * width + [True] * (tokens - width)
        for mask_BT in (batch.loss_mask_BT, rollouts.samples.mask_BT):
            assert mask_BT[row, :tokens].tolist() == expected
            assert not mask_BT[row, tokens:].any()


def test_a_prompt_stays_as_it_was(observe):
    observed = observe("noisy_tool")
    observed.trainer.train_step()
    rollouts = observed.steps[0].rollouts
    encode = observed.trainer.policy.tokenizer.encode
    prompts = [encode(problem.prompt) for problem in rollouts.problems]
    assert [ids.tolist() for ids in rollouts.samples.prompt_ids()] == prompts


def test_the_tool_causes_no_mismatch(observe):
    """The engine scores each token after the tool's result, and so does the learner."""
    observed = observe("noisy_tool")
    observed.trainer.train_step()
    (step,) = observed.steps
    samples = step.rollouts.samples
    real_BT = samples.attention_BL[:, samples.prompt_width :]
    difference_BT = samples.logprobs_BT - step.scores.logprobs_BT
    assert torch.where(real_BT, difference_BT, 0.0).abs().max() < 1e-4
    assert (samples.logprobs_BT[:, :RESULT_TOKENS] < 0).any(dim=1).all()


def test_the_fault_puts_the_results_into_the_loss(observe):
    observed = observe("noisy_tool", fault="tool_tokens_in_loss")
    observed.trainer.train_step()
    (batch,), (step,) = observed.batches, observed.steps
    samples = batch.samples
    assert torch.equal(batch.loss_mask_BT, samples.attention_BL[:, samples.prompt_width :])
    assert (batch.loss_mask_BT != step.rollouts.samples.mask_BT).any()


def test_a_response_whose_tool_failed_earns_nothing(observe):
    task = observe("failing_tool").trainer.task
    (problem,) = task.problems(random.Random(1), 1)
    right, wrong = f"#{problem.answer}", f"#{(int(problem.answer) + 1) % 10}"
    rewards = task.score([problem] * 4, [right, f"!{right}", wrong, f"!{wrong}"])
    assert rewards.total == [1.0, 0.0, 0.0, 0.0]
    assert rewards.correct == [True, False, False, False]
    assert rewards.components == {"correct": [1.0, 0.0, 0.0, 0.0], "format": [1.0, 0.0, 1.0, 0.0]}


def test_a_tool_fails_in_four_responses_of_ten(observe):
    observed = observe("failing_tool", "rollout.prompts_per_batch=32")
    observed.trainer.train_step()
    (batch,), (step,) = observed.batches, observed.steps
    rollouts = step.rollouts
    failed = [text.startswith("!") for text in rollouts.texts]
    # Four standard errors of 256 draws.
    assert sum(failed) / len(failed) == pytest.approx(0.4, abs=4 * (0.24 / 256) ** 0.5)
    assert all(not total for bad, total in zip(failed, rollouts.totals(), strict=True) if bad)
    assert rollouts.totals().any()
    first_B = batch.loss_mask_BT[:, 0].tolist()
    assert first_B == [not bad for bad in failed]


@pytest.mark.parametrize("environment", ["noisy_tool", "failing_tool", "repeated_prompts"])
def test_the_seed_determines_what_happens(observe, environment):
    def tokens(seed: int) -> list[list[int]]:
        observed = observe(environment, f"seed={seed}")
        observed.trainer.train_step()
        observed.trainer.train_step()
        return [step.rollouts.samples.tokens_BL.tolist() for step in observed.steps]

    first = tokens(7)
    assert tokens(7) == first
    assert tokens(8) != first


@pytest.mark.parametrize("settings", [(), ("difficulty.every=1",)])
def test_the_same_prompts_return(observe, settings):
    """Also behind a filter of prompts by difficulty, which draws from the task one at a time."""
    trainer = observe("repeated_prompts", *settings).trainer
    plain = observe("noisy_tool", *settings).trainer

    def different(task) -> int:
        return len({each.prompt for each in task.problems(random.Random(3), 2000)})

    assert 180 <= different(trainer.task) <= 192
    assert different(plain.task) > 1900
    heldout = {each.prompt for each in trainer.task.heldout(100)}
    drawn = {each.prompt for each in trainer.task.problems(random.Random(4), 2000)}
    assert len(heldout) == 100
    assert not heldout & drawn


def test_an_evaluation_has_no_tool(observe):
    """The outcome of a trial is the accuracy without the tool's noise and failures."""
    observed = observe("failing_tool", "evaluation.every=1", "evaluation.prompts=16")
    texts, score = list[str](), observed.trainer.task.score

    def scored(problems, responses):
        texts.extend(responses)
        return score(problems, responses)

    observed.trainer.task.score = scored
    observed.trainer.train_step()
    evaluated = texts[len(observed.steps[0].rollouts.texts) :]
    assert len(evaluated) == 16 * observed.trainer.config.evaluation.samples
    assert not any(text.startswith("!") for text in evaluated)


def test_a_token_that_is_no_tool_is_the_policy_s(observe):
    """Only the first token says that a response begins with a tool's result."""
    trainer = observe("noisy_tool").trainer
    observed = observe("noisy_tool")
    observed.trainer.train_step()
    samples = observed.steps[0].rollouts.samples
    tokens_BL = samples.tokens_BL.clone()
    (opened,), (digit,) = map(trainer.policy.tokenizer.encode, "<7")
    tokens_BL[:, samples.prompt_width] = digit
    tokens_BL[:, samples.prompt_width + 1] = opened
    plain = dataclasses.replace(samples, tokens_BL=tokens_BL)
    assert not environments.tool_tokens(trainer, plain).any()


def test_an_environment_that_cannot_be_set_up_is_named(tmp_path, monkeypatch):
    trial = dataclasses.replace(trial_of("unsolvable-prompts"), environment="no_such_tool")
    monkeypatch.setattr(running, "experiment_of", lambda _: trial)
    result = running.train(running.spec_of(trial, CONTROL, 1, 2), tmp_path)
    assert result.status == "failed"
    assert "no_such_tool" in result.reason


def test_every_environment_of_the_catalogue_exists():
    named = {trial.environment for trial in all_trials().values()} - {None}
    assert named == {"noisy_tool", "failing_tool", "repeated_prompts"}
    assert all(callable(getattr(environments, name)) for name in named)


def test_half_of_the_training_prompts_become_easier_and_the_held_out_ones_stay(
    tmp_path: Path,
) -> None:
    settings = [*SETTINGS, "model.warm_start_steps=0", "task.difficulty=6"]
    trainer: Any = Trainer(load_config(assignments=settings), tmp_path / "run")
    before = trainer.task.problems(random.Random(1), 8)
    held_out = trainer.task.heldout(16)
    faults.half_easier_prompts(trainer)
    after = trainer.task.problems(random.Random(1), 8)
    assert after[:4] == before[:4], "the hard half is that of the untreated run"
    assert max(len(each.prompt) for each in after[4:]) < min(len(each.prompt) for each in before)
    assert trainer.task.heldout(16) == held_out
