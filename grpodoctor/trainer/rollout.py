"""Drawing a rollout batch: prompts, responses, rewards, and what of it is learnt from."""

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
from grpodoctor.trainer.config.sections import RolloutConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.data.tasks.base import Problem, Rewards, Task, verdicts
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.engines.rollout_engine import RolloutEngine
from grpodoctor.trainer.model.tokenizer import Tokenizer
from grpodoctor.trainer.samples import Samples, concatenate

_REFILLS: Mapping[str, Callable[[int, int], int]] = {
    "rounds": dynamic_sampling,
    "missing": active_sampling,
}
"""How many prompts the next round draws, of the groups wanted and those with variance."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Responses with what they were worth."""

    problems: list[Problem]
    """Of each response."""
    samples: Samples
    texts: list[str]
    rewards: Rewards
    """What the configuration adds to the task's is in the total and a component of its own."""
    group_ids_B: Tensor
    """0 .. number of groups - 1."""
    kept_B: Tensor
    """Which of them are learnt from, bool; the others are recorded alone."""
    generated_groups: int
    """Groups that had to be generated for these."""
    limit_hit: bool | None = None
    """Whether resampling gave up before the batch was full; None where nothing is resampled."""

    def varied(self, of: Literal["reward", "correct"] = "reward") -> Tensor:
        """Which groups have variance, shape (groups,)."""
        return varied_groups(self.judged(of), self.group_ids_B)

    def judged(self, of: Literal["reward", "correct"]) -> Tensor:
        """The rewards or the verdicts, shape (B,), float64.

        Raises:
            DataError: if verdicts are wanted and nobody can tell.
        """
        if of == "reward":
            return self.totals()
        right, device = verdicts(self.rewards), self.group_ids_B.device
        return torch.tensor(right, dtype=torch.float64, device=device)

    def kept_groups(self) -> int:
        """Groups that are learnt from."""
        return len(torch.unique(self.group_ids_B[self.kept_B]))

    def prompt_ids(self) -> list[str]:
        """Of each group."""
        first = dict(zip(self.group_ids_B.tolist()[::-1], self.problems[::-1], strict=True))
        return [first[group].id for group in sorted(first)]

    def totals(self) -> Tensor:
        """The rewards before a KL penalty, shape (B,), float64."""
        return torch.tensor(self.rewards.total, dtype=torch.float64, device=self.group_ids_B.device)

    def correct(self) -> Tensor | None:
        """Which responses are right, shape (B,), bool; None if nobody can tell."""
        verdicts, device = self.rewards.correct, self.samples.mask_BT.device
        return None if verdicts is None else torch.tensor(verdicts, device=device)

    def components(self) -> dict[str, Tensor]:
        """The parts of the reward by name, shape (B,) each, float64."""
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
) -> Rollouts:
    """Draw one rollout batch, resampled or filtered if the configuration asks for it.

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


def _filtered(rollouts: Rollouts, settings: RolloutConfig) -> Rollouts:
    judged_B = rollouts.judged(settings.variance_of)
    return replace(rollouts, kept_B=filter_groups(judged_B, rollouts.group_ids_B))


def _draw(
    config: TrainConfig,
    engine: RolloutEngine,
    task: Task,
    tokenizer: Tokenizer,
    rng: random.Random,
    generator: torch.Generator,
    ranks: Ranks,
    count: int,
) -> Rollouts:
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
    return Rollouts(problems, samples, texts, rewards, group_ids_B, kept_B, len(drawn))


def _shaped(rewards: Rewards, samples: Samples, config: TrainConfig) -> Rewards:
    """The task's rewards with what the configuration adds to them, each a component of its own."""
    overlong, repeating = config.overlong, config.repetition
    if overlong.kind == "soft-punishment":
        limit = config.rollout.max_length
        lengths = samples.mask_BT.sum(dim=1).tolist()
        ramp = [soft_overlong(length, limit, overlong.buffer) for length in lengths]
        if overlong.only_correct:
            ramp = [each * right for each, right in zip(ramp, verdicts(rewards), strict=True)]
        rewards = rewards.plus("overlong", ramp)
    if repeating.penalty > 0:
        repeated = [repetition(ids, repeating.ngram) for ids in samples.response_ids()]
        rewards = rewards.plus("repetition", repeated, repeating.penalty)
    return rewards


def loss_mask(rollouts: Rollouts, config: TrainConfig) -> Tensor:
    """The tokens that bear loss, bool, shape (B, T): of kept responses, less what is masked."""
    samples = rollouts.samples
    mask_BT = samples.mask_BT & rollouts.kept_B[:, None]
    if config.overlong.kind == "mask":
        mask_BT = overlong_mask(mask_BT, samples.truncated_B)
    if config.rollout.drop_duplicates:
        repeated_B = duplicates(samples.response_BT, samples.mask_BT, rollouts.group_ids_B)
        mask_BT = mask_BT & ~repeated_B[:, None]
    return mask_BT


def _pick_varied(rounds: Sequence[Rollouts], settings: RolloutConfig) -> Rollouts:
    """The first groups with variance; where there are too few, others fill the batch."""
    every = _join(rounds)
    varied_G, wanted = every.varied(settings.variance_of), settings.prompts_per_batch
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
        kept_B=every.kept_B[rows],
        generated_groups=every.generated_groups,
    )


def _join(rounds: Sequence[Rollouts]) -> Rollouts:
    generated = [each.generated_groups for each in rounds]
    offsets = [sum(generated[:index]) for index in range(len(generated))]
    return Rollouts(
        problems=[problem for each in rounds for problem in each.problems],
        samples=concatenate([each.samples for each in rounds]),
        texts=[text for each in rounds for text in each.texts],
        rewards=join_rewards([each.rewards for each in rounds]),
        group_ids_B=torch.cat(
            [each.group_ids_B + offset for each, offset in zip(rounds, offsets, strict=True)]
        ),
        kept_B=torch.cat([each.kept_B for each in rounds]),
        generated_groups=sum(generated),
    )


def reward_on_ranks(
    task: Task, problems: Sequence[Problem], texts: Sequence[str], ranks: Ranks = SINGLE_PROCESS
) -> Rewards:
    """The rewards of all texts, each rank having asked about its own: each text is judged once.

    Raises:
        DataError: if a reward function of the user's own fails, on whichever rank.
    """
    rows = ranks.rows(len(texts))
    own = slice(rows.start, rows.stop)
    parts = ranks.gather(lambda: task.score(problems[own], texts[own]) if rows else None)
    return join_rewards([part for part in parts if part is not None])


def join_rewards(parts: Sequence[Rewards]) -> Rewards:
    """The rewards of several lots of responses, at least one, as those of one lot."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.components)
    judged = [part.correct for part in parts if part.correct is not None]
    return Rewards(
        [reward for part in parts for reward in part.total],
        {name: [value for part in parts for value in _component(part, name)] for name in names},
        [flag for flags in judged for flag in flags] if len(judged) == len(parts) else None,
    )


def _component(rewards: Rewards, name: str) -> Sequence[float]:
    """A component's values; zeros where a user's function left it out, as in the total."""
    return rewards.components.get(name) or [0.0] * len(rewards.total)
