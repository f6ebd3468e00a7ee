"""Drawing a rollout batch: prompts, responses, rewards, and dynamic sampling."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpodoctor.trainer.advantages.base import varied_groups
from grpodoctor.trainer.codec import Codec
from grpodoctor.trainer.config import TrainConfig
from grpodoctor.trainer.engines import Engine
from grpodoctor.trainer.sampler import Samples, concatenate
from grpodoctor.trainer.sections import OverlongConfig
from grpodoctor.trainer.tasks.base import Problem, Rewards, Task


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Responses with what they were worth."""

    problems: list[Problem]
    """Of each response."""
    samples: Samples
    texts: list[str]
    rewards: Rewards
    """With the punishment of overlong responses in the total and as a component of its own."""
    group_ids_B: Tensor
    """0 .. number of groups - 1."""
    generated_groups: int
    """Groups that had to be generated for these."""

    def varied(self) -> Tensor:
        """Which groups have variance in reward, shape (groups,)."""
        return varied_groups(self.totals(), self.group_ids_B)

    def totals(self) -> Tensor:
        """What the advantages are made of, shape (B,), float64."""
        return torch.tensor(self.rewards.total, dtype=torch.float64, device=self.group_ids_B.device)

    def components(self) -> dict[str, Tensor]:
        """The parts of the reward by name, shape (B,) each, float64."""
        parts, device = self.rewards.components, self.group_ids_B.device
        return {
            name: torch.tensor(part, dtype=torch.float64, device=device)
            for name, part in parts.items()
        }


def collect(
    config: TrainConfig,
    engine: Engine,
    task: Task,
    codec: Codec,
    rng: random.Random,
    generator: torch.Generator,
) -> Rollouts:
    """Draw one rollout batch, with dynamic sampling if the configuration asks for it.

    Raises:
        DataError: if a prompt cannot be encoded or the user's reward function fails.
    """
    wanted, rounds, varied = config.rollout.prompts_per_batch, [], 0
    for _ in range(config.rollout.resample_limit if config.rollout.dynamic_sampling else 1):
        rounds.append(_draw(config, engine, task, codec, rng, generator))
        varied += int(rounds[-1].varied().sum())
        if varied >= wanted:
            break
    return rounds[0] if len(rounds) == 1 else _pick_varied(rounds, wanted)


def _draw(
    config: TrainConfig,
    engine: Engine,
    task: Task,
    codec: Codec,
    rng: random.Random,
    generator: torch.Generator,
) -> Rollouts:
    drawn = task.problems(rng, config.rollout.prompts_per_batch)
    problems = [problem for problem in drawn for _ in range(config.rollout.group_size)]
    encoded = [codec.encode(problem.prompt) for problem in drawn]
    prompts = [ids for ids in encoded for _ in range(config.rollout.group_size)]
    samples = engine.generate(prompts, generator)
    texts = [codec.decode(ids) for ids in samples.response_ids()]
    rewards = task.score(problems, texts)
    if config.overlong.kind == "soft-punishment":
        lengths = samples.mask_BT.sum(dim=1).tolist()
        rewards = _punish(rewards, lengths, config.overlong, config.rollout.max_length)
    groups_G = torch.arange(len(drawn), device=samples.tokens_BL.device)
    group_ids_B = groups_G.repeat_interleave(config.rollout.group_size)
    return Rollouts(problems, samples, texts, rewards, group_ids_B, len(drawn))


def soft_punishment(length: int, limit: int, buffer: int) -> float:
    """0 up to `limit - buffer` tokens, then falling linearly to -1 at the limit and beyond.

    Source: DAPO, arXiv 2503.14476, Eq. 13.
    """
    return max(-1.0, min(0.0, (limit - buffer - length) / buffer))


def _punish(
    rewards: Rewards, lengths: Sequence[int], overlong: OverlongConfig, limit: int
) -> Rewards:
    punishment = [soft_punishment(length, limit, overlong.buffer) for length in lengths]
    total = [reward + each for reward, each in zip(rewards.total, punishment, strict=True)]
    return Rewards(total, {**rewards.components, "overlong": punishment}, rewards.correct)


def _pick_varied(rounds: Sequence[Rollouts], wanted: int) -> Rollouts:
    """The first `wanted` groups with variance; where there are too few, others fill the batch."""
    every = _join(rounds)
    varied_G = every.varied()
    order_G = torch.cat([varied_G.nonzero(), (~varied_G).nonzero()]).flatten()[:wanted]
    rows = torch.cat([(every.group_ids_B == group).nonzero().flatten() for group in order_G])
    picked = rows.tolist()
    rewards = every.rewards
    _, group_ids_B = torch.unique_consecutive(every.group_ids_B[rows], return_inverse=True)
    return Rollouts(
        problems=[every.problems[i] for i in picked],
        samples=every.samples.rows(rows),
        texts=[every.texts[i] for i in picked],
        rewards=Rewards(
            [rewards.total[i] for i in picked],
            {name: [values[i] for i in picked] for name, values in rewards.components.items()},
            None if rewards.correct is None else [rewards.correct[i] for i in picked],
        ),
        group_ids_B=group_ids_B,
        generated_groups=every.generated_groups,
    )


def _component(rollouts: Rollouts, name: str) -> Sequence[float]:
    """A component's values; zeros where a user's function left it out, as in the total."""
    return rollouts.rewards.components.get(name) or [0.0] * len(rollouts.texts)


def _join(rounds: Sequence[Rollouts]) -> Rollouts:
    generated = [each.generated_groups for each in rounds]
    offsets = [sum(generated[:index]) for index in range(len(generated))]
    names = dict.fromkeys(name for each in rounds for name in each.rewards.components)
    judged = [each.rewards.correct for each in rounds]
    correct = [flags for flags in judged if flags is not None]
    return Rollouts(
        problems=[problem for each in rounds for problem in each.problems],
        samples=concatenate([each.samples for each in rounds]),
        texts=[text for each in rounds for text in each.texts],
        rewards=Rewards(
            [reward for each in rounds for reward in each.rewards.total],
            {name: [v for each in rounds for v in _component(each, name)] for name in names},
            [flag for flags in correct for flag in flags] if len(correct) == len(rounds) else None,
        ),
        group_ids_B=torch.cat(
            [each.group_ids_B + offset for each, offset in zip(rounds, offsets, strict=True)]
        ),
        generated_groups=sum(generated),
    )
