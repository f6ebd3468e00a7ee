"""Drawing a rollout batch: prompts, responses, rewards, and what of it is learnt from."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grpodoctor.trainer.advantages.base import varied_groups
from grpodoctor.trainer.codec import Codec
from grpodoctor.trainer.config import TrainConfig
from grpodoctor.trainer.engines import Engine
from grpodoctor.trainer.sampler import Samples, concatenate
from grpodoctor.trainer.sampling.active_sampling import active_sampling
from grpodoctor.trainer.sampling.dynamic_sampling import dynamic_sampling
from grpodoctor.trainer.sampling.filter_groups import filter_groups
from grpodoctor.trainer.shaping.repetition import repetition
from grpodoctor.trainer.shaping.soft_overlong import soft_overlong
from grpodoctor.trainer.tasks.base import Problem, Rewards, Task, verdicts

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
    """With the punishment of overlong responses in the total and as a component of its own."""
    group_ids_B: Tensor
    """0 .. number of groups - 1."""
    kept_B: Tensor
    """Which of them are learnt from, bool; the others are recorded alone."""
    generated_groups: int
    """Groups that had to be generated for these."""
    limit_hit: bool | None = None
    """Whether resampling gave up before the batch was full; None where nothing is resampled."""

    def varied(self) -> Tensor:
        """Which groups have variance in reward, shape (groups,)."""
        return varied_groups(self.totals(), self.group_ids_B)

    def kept_groups(self) -> int:
        """Groups that are learnt from."""
        return len(self.group_ids_B[self.kept_B].unique())

    def totals(self) -> Tensor:
        """The rewards before a KL penalty, shape (B,), float64."""
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
    """Draw one rollout batch, resampled or filtered if the configuration asks for it.

    Raises:
        DataError: if a prompt cannot be encoded or the user's reward function fails.
    """
    task.begin_step()
    settings, wanted = config.rollout, config.rollout.prompts_per_batch
    rounds = [_draw(config, engine, task, codec, rng, generator, wanted)]
    if not settings.dynamic_sampling:
        return _filtered(rounds[0]) if settings.filter_groups else rounds[0]
    varied = int(rounds[0].varied().sum())
    while varied < wanted and len(rounds) < settings.resample_limit:
        count = _REFILLS[settings.refill](wanted, varied)
        rounds.append(_draw(config, engine, task, codec, rng, generator, count))
        varied += int(rounds[-1].varied().sum())
    batch = rounds[0] if len(rounds) == 1 else _pick_varied(rounds, wanted)
    return replace(batch, limit_hit=varied < wanted)


def _filtered(rollouts: Rollouts) -> Rollouts:
    return replace(rollouts, kept_B=filter_groups(rollouts.totals(), rollouts.group_ids_B))


def _draw(
    config: TrainConfig,
    engine: Engine,
    task: Task,
    codec: Codec,
    rng: random.Random,
    generator: torch.Generator,
    count: int,
) -> Rollouts:
    drawn = task.problems(rng, count)
    problems = [problem for problem in drawn for _ in range(config.rollout.group_size)]
    encoded = [codec.encode(problem.prompt) for problem in drawn]
    prompts = [ids for ids in encoded for _ in range(config.rollout.group_size)]
    samples = engine.generate(prompts, generator, config.loss.sampler_top_tokens())
    texts = [codec.decode(ids) for ids in samples.response_ids()]
    rewards = task.score(problems, texts)
    task.observe(problems, rewards)
    rewards = _shaped(rewards, samples, config)
    group_ids_B = torch.arange(len(drawn)).repeat_interleave(config.rollout.group_size)
    kept_B = torch.ones(len(problems), dtype=torch.bool)
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
        kept_B=every.kept_B[rows],
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
        kept_B=torch.cat([each.kept_B for each in rounds]),
        generated_groups=sum(generated),
    )
