"""Settings and responses that the tests of the critic share."""

from __future__ import annotations

import torch

from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.samples import Samples

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=5", "evaluation.prompts=8"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "evaluation.every=0"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)


def small(*assignments: str, preset: str | None = "ppo") -> TrainConfig:
    layers = [preset_of(preset).settings] if preset else []
    return load_config(*layers, assignments=[*SMALL, *assignments])


def drawn(count: int = 8, vocabulary: int = 20) -> Samples:
    """Responses of random tokens and random lengths to prompts of random lengths."""
    generator = torch.Generator().manual_seed(7)
    width, longest = 5, 6
    ids_BL = torch.randint(4, vocabulary, (count, width + longest), generator=generator)
    before_B = torch.randint(0, width - 1, (count,), generator=generator)
    length_B = torch.randint(1, longest + 1, (count,), generator=generator)
    column_L = torch.arange(width + longest)
    attention_BL = (column_L >= before_B[:, None]) & (column_L < width + length_B[:, None])
    return Samples(
        tokens_BL=torch.where(attention_BL, ids_BL, 0),
        attention_BL=attention_BL,
        prompt_width=width,
        logprobs_BT=torch.zeros(count, longest),
        truncated_B=torch.zeros(count, dtype=torch.bool),
        pad_id=0,
    )
