"""Held-out evaluation: samples from the learner at its own temperature."""

from __future__ import annotations

from math import comb

import numpy as np
import torch

from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.rollout import reward_on_ranks
from grpodoctor.trainer.samples import Samples, sample_on_ranks
from grpodoctor.trainer.task import Task
from grpodoctor.vocabulary.values import Mean, Rate, Reading


def evaluate(
    config: TrainConfig,
    policy: Policy,
    task: Task,
    generator: torch.Generator,
    ranks: Ranks = SINGLE_PROCESS,
) -> dict[str, Reading]:
    """Reward, accuracy and pass@k (for k up to the samples per prompt) on the held-out prompts.

    Raises:
        DataError: if a prompt cannot be encoded or the user's reward function fails.
    """
    samples = config.evaluation.samples
    heldout = task.heldout(config.evaluation.prompts)
    problems = [problem for problem in heldout for _ in range(samples)]
    prompts = [policy.tokenizer.encode(problem.prompt) for problem in problems]

    def draw(rows: range) -> Samples:
        return sample(
            policy.model,
            prompts[rows.start : rows.stop],
            max_length=config.rollout.max_length,
            temperature=config.evaluation.temperature,
            tokenizer=policy.tokenizer,
            generator=generator,
            first=rows.start,
            total=len(prompts),
        )

    responses = sample_on_ranks(len(prompts), draw, policy.model.device, ranks)
    texts = [policy.tokenizer.decode(ids) for ids in responses.response_ids()]
    rewards = reward_on_ranks(task, problems, texts, ranks)
    readings: dict[str, Reading] = {"reward/heldout": Mean.of(rewards.total)}
    if rewards.correct is not None:
        readings["accuracy/heldout"] = Rate.of(rewards.correct)
        solved_P = np.reshape(rewards.correct, (len(heldout), samples)).sum(axis=1).tolist()
        for k in (2**power for power in range(1, samples.bit_length())):
            estimates = [pass_at_k(samples, solved, k) for solved in solved_P]
            readings[f"pass_at_k/{k}"] = Mean.of(estimates)
    return readings


def pass_at_k(samples: int, solved: int, k: int) -> float:
    """Unbiased estimate of the probability of solving a prompt within k tries of all samples.

    Source: Chen et al. 2021, arXiv 2107.03374, Eq. 1.
    """
    return 1 - comb(samples - solved, k) / comb(samples, k)
