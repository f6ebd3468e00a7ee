"""Samples a rollout batch: prompts, responses, rewards, and which responses are learned from."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import varied_groups
from grpodoctor.trainer.algorithms.filters.active_sampling import active_sampling
from grpodoctor.trainer.algorithms.filters.duplicates import duplicates
from grpodoctor.trainer.algorithms.filters.dynamic_sampling import dynamic_sampling
from grpodoctor.trainer.algorithms.filters.filter_groups import filter_groups
from grpodoctor.trainer.algorithms.filters.overlong_mask import overlong_mask
from grpodoctor.trainer.algorithms.shaping.repetition import repetition
from grpodoctor.trainer.algorithms.shaping.soft_overlong import soft_overlong
from grpodoctor.trainer.algorithms.shaping.stop_properly import stop_properly
from grpodoctor.trainer.config.sections import RolloutConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.engines.base import RolloutEngine
from grpodoctor.trainer.model.tokenizer import Tokenizer
from grpodoctor.trainer.samples import Samples, concatenate
from grpodoctor.trainer.task import Problem, Rewards, Task, correctness

_REFILLS: Mapping[str, Callable[[int, int], int]] = {
    "rounds": dynamic_sampling,
    "missing": active_sampling,
}
"""Prompts to draw in the next round, given the groups wanted and those with variance."""


@dataclass(frozen=True, slots=True)
class RolloutGroups:
    """Groups of responses with their rewards."""

    problems: list[Problem]
    """One per response."""
    samples: Samples
    texts: list[str]
    rewards: Rewards
    """Shaping terms are included in the total and are separate components."""
    group_ids_B: Tensor
    """0 .. number of groups - 1."""
    kept_B: Tensor
    """Responses that are learned from, bool; the others are only recorded."""
    generated_groups: int
    """Groups that were generated to obtain this batch."""
    limit_hit: bool | None = None
    """Whether resampling stopped before the batch was full; None without resampling."""

    def varied(self, quantity: Literal["reward", "correct"] = "reward") -> Tensor:
        """True for groups with variance, shape (groups,)."""
        return varied_groups(self.quantity(quantity), self.group_ids_B)

    def quantity(self, name: Literal["reward", "correct"]) -> Tensor:
        """The rewards, or 1 for correct and 0 for incorrect; shape (B,), float64.

        Raises:
            DataError: if the task cannot tell right from wrong and `name` is "correct".
        """
        if name == "reward":
            return self.totals()
        correct, device = correctness(self.rewards), self.group_ids_B.device
        return torch.tensor(correct, dtype=torch.float64, device=device)

    def kept_groups(self) -> int:
        """Number of groups that are learned from."""
        return len(torch.unique(self.group_ids_B[self.kept_B]))

    def prompt_ids(self) -> list[str]:
        """The prompt id of each group."""
        problems = dict(zip(self.group_ids_B.tolist(), self.problems, strict=True))
        return [problems[group].id for group in sorted(problems)]

    def totals(self) -> Tensor:
        """The rewards before any KL penalty, shape (B,), float64."""
        return torch.tensor(self.rewards.total, dtype=torch.float64, device=self.group_ids_B.device)

    def correct(self) -> Tensor | None:
        """Which responses are correct, shape (B,), bool; None if the task cannot tell."""
        correct, device = self.rewards.correct, self.samples.mask_BT.device
        return None if correct is None else torch.tensor(correct, device=device)

    def components(self) -> dict[str, Tensor]:
        """The reward components by name, shape (B,) each, float64."""
        parts, device = self.rewards.components, self.group_ids_B.device
        return {
            name: torch.tensor(part, dtype=torch.float64, device=device)
            for name, part in parts.items()
        }


def collect(
    config: TrainConfig,
    engine: RolloutEngine,
    task: Task,
    tokenizer: Tokenizer,
    rng: random.Random,
    generator: torch.Generator,
    ranks: Ranks = SINGLE_PROCESS,
) -> RolloutGroups:
    """Sample one rollout batch, with dynamic sampling or filtering if configured.

    Raises:
        DataError: if a prompt cannot be encoded or the user's reward function fails.
    """
    task.begin_step()
    settings, wanted = config.rollout, config.rollout.prompts_per_batch
    rounds = [_draw(config, engine, task, tokenizer, rng, generator, ranks, wanted)]
    if not settings.dynamic_sampling:
        return _filtered(rounds[0], settings) if settings.filter_groups else rounds[0]
    varied = int(rounds[0].varied(settings.variance_of).sum())
    while varied < wanted and len(rounds) < settings.resample_limit:
        count = _REFILLS[settings.refill](wanted, varied)
        rounds.append(_draw(config, engine, task, tokenizer, rng, generator, ranks, count))
        varied += int(rounds[-1].varied(settings.variance_of).sum())
    batch = rounds[0] if len(rounds) == 1 else _pick_varied(rounds, settings)
    return replace(batch, limit_hit=varied < wanted)


def _filtered(rollouts: RolloutGroups, settings: RolloutConfig) -> RolloutGroups:
    values_B = rollouts.quantity(settings.variance_of)
    return replace(rollouts, kept_B=filter_groups(values_B, rollouts.group_ids_B))


def _draw(
    config: TrainConfig,
    engine: RolloutEngine,
    task: Task,
    tokenizer: Tokenizer,
    rng: random.Random,
    generator: torch.Generator,
    ranks: Ranks,
    count: int,
) -> RolloutGroups:
    drawn = task.problems(rng, count)
    problems = [problem for problem in drawn for _ in range(config.rollout.group_size)]
    encoded = [tokenizer.encode(problem.prompt) for problem in drawn]
    prompts = [ids for ids in encoded for _ in range(config.rollout.group_size)]
    samples = engine.generate(prompts, generator, config.loss.sampler_top_tokens())
    texts = [tokenizer.decode(ids) for ids in samples.response_ids()]
    rewards = reward_on_ranks(task, problems, texts, ranks)
    task.observe(problems, rewards)
    rewards = _shaped(rewards, samples, config)
    groups_G = torch.arange(len(drawn), device=samples.tokens_BL.device)
    group_ids_B = groups_G.repeat_interleave(config.rollout.group_size)
    kept_B = torch.ones_like(group_ids_B, dtype=torch.bool)
    return RolloutGroups(problems, samples, texts, rewards, group_ids_B, kept_B, len(drawn))


def _shaped(rewards: Rewards, samples: Samples, config: TrainConfig) -> Rewards:
    """The task's rewards plus the configured shaping terms, each a separate component."""
    repetition_config = config.repetition
    rewards = _shaped_by_length(rewards, samples, config)
    if repetition_config.penalty > 0:
        ngram = repetition_config.ngram
        repetitions = [repetition(ids, ngram) for ids in samples.response_ids()]
        rewards = rewards.plus("repetition", repetitions, repetition_config.penalty)
    return rewards


def _shaped_by_length(rewards: Rewards, samples: Samples, config: TrainConfig) -> Rewards:
    """The rewards plus the configured penalty of long or truncated responses."""
    overlong, limit = config.overlong, config.rollout.max_length
    if overlong.kind == "stop-properly":
        pairs = zip(rewards.total, samples.truncated_B.tolist(), strict=True)
        changes = [stop_properly(*pair, overlong.truncated_factor) for pair in pairs]
        return rewards.plus("overlong", changes)
    if not overlong.punishes:
        return rewards
    lengths = samples.mask_BT.sum(dim=1).tolist()
    penalties = [soft_overlong(length, limit, overlong.buffer) for length in lengths]
    if overlong.only_correct:
        correct = correctness(rewards)
        penalties = [value * flag for value, flag in zip(penalties, correct, strict=True)]
    return rewards.plus("overlong", penalties, overlong.weight)


def loss_mask(rollouts: RolloutGroups, config: TrainConfig) -> Tensor:
    """Tokens that contribute to the loss, bool, (B, T): kept responses minus masked tokens."""
    samples = rollouts.samples
    mask_BT = samples.mask_BT & rollouts.kept_B[:, None]
    if config.overlong.masks:
        mask_BT = overlong_mask(mask_BT, samples.truncated_B)
    if config.rollout.drop_duplicates:
        repeated_B = duplicates(samples.response_BT, samples.mask_BT, rollouts.group_ids_B)
        mask_BT = mask_BT & ~repeated_B[:, None]
    return mask_BT


def _pick_varied(rounds: Sequence[RolloutGroups], settings: RolloutConfig) -> RolloutGroups:
    """The first groups with variance; if there are too few, other groups fill the batch."""
    candidates = _join(rounds)
    varied_G, wanted = candidates.varied(settings.variance_of), settings.prompts_per_batch
    order_G = torch.cat([varied_G.nonzero(), (~varied_G).nonzero()]).flatten()[:wanted]
    rows = torch.cat([(candidates.group_ids_B == group).nonzero().flatten() for group in order_G])
    picked = rows.tolist()
    rewards = candidates.rewards
    _, group_ids_B = torch.unique_consecutive(candidates.group_ids_B[rows], return_inverse=True)
    return RolloutGroups(
        problems=[candidates.problems[i] for i in picked],
        samples=candidates.samples.rows(rows),
        texts=[candidates.texts[i] for i in picked],
        rewards=Rewards(
            [rewards.total[i] for i in picked],
            {name: [values[i] for i in picked] for name, values in rewards.components.items()},
            None if rewards.correct is None else [rewards.correct[i] for i in picked],
        ),
        group_ids_B=group_ids_B,
        kept_B=candidates.kept_B[rows],
        generated_groups=candidates.generated_groups,
    )


def _join(rounds: Sequence[RolloutGroups]) -> RolloutGroups:
    generated = [part.generated_groups for part in rounds]
    offsets = [sum(generated[:index]) for index in range(len(generated))]
    return RolloutGroups(
        problems=[problem for part in rounds for problem in part.problems],
        samples=concatenate([part.samples for part in rounds]),
        texts=[text for part in rounds for text in part.texts],
        rewards=join_rewards([part.rewards for part in rounds]),
        group_ids_B=torch.cat(
            [part.group_ids_B + offset for part, offset in zip(rounds, offsets, strict=True)]
        ),
        kept_B=torch.cat([part.kept_B for part in rounds]),
        generated_groups=sum(generated),
    )


def reward_on_ranks(
    task: Task, problems: Sequence[Problem], texts: Sequence[str], ranks: Ranks = SINGLE_PROCESS
) -> Rewards:
    """The rewards of all texts. Each rank scores its own share, so each text is scored once.

    Raises:
        DataError: if the user's reward function fails on any rank.
    """
    rows = ranks.rows(len(texts))
    own = slice(rows.start, rows.stop)
    parts = ranks.gather(lambda: task.score(problems[own], texts[own]) if rows else None)
    return join_rewards([part for part in parts if part is not None])


def join_rewards(parts: Sequence[Rewards]) -> Rewards:
    """Concatenate rewards; `parts` must not be empty."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.components)
    correct = [part.correct for part in parts if part.correct is not None]
    return Rewards(
        [reward for part in parts for reward in part.total],
        {name: [value for part in parts for value in _component(part, name)] for name in names},
        [flag for flags in correct for flag in flags] if len(correct) == len(parts) else None,
    )


def _component(rewards: Rewards, name: str) -> Sequence[float]:
    """A component's values; zeros if the user's function did not return it, as in the total."""
    return rewards.components.get(name) or [0.0] * len(rewards.total)
