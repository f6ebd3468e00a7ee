"""Mixtures of experts and their responses, for the tests of routers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.rollout_engine import BuiltinEngine
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.moe.routers import (
    Routers,
    require_routers,
)
from grpodoctor.trainer.samples import Samples

MIXTURE = ("threads=1", "model.experts=8", "model.warm_start_steps=150")


QUICK = (
    *MIXTURE,
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "evaluation.every=0", "steps=3"),
    *("overlong.kind=soft-punishment", "overlong.buffer=28", "optimizer.updates_per_batch=2"),
    "record.experts_every=1",
)


def routers(model: Any) -> Routers:
    return require_routers(model, "the test")


def sampled(policy: Policy, precision: str = "learner", count: int = 16) -> Samples:
    """Responses to prompts of several lengths, with the experts of the engine."""
    config = load_config(assignments=[*MIXTURE, f"engine.precision={precision}"])
    task = build_task(config.task)
    prompts = [
        policy.tokenizer.encode(each.prompt) for each in task.heldout(count) for _ in range(4)
    ]
    assert len(set(map(len, prompts))) > 1
    engine = BuiltinEngine(config, policy)
    engine.sync(1)
    return engine.generate(prompts, torch.Generator().manual_seed(0))


def tokens_of(model: Any, rows: int = 3, length: int = 7) -> Tensor:
    return torch.randint(4, 20, (rows, length), generator=torch.Generator().manual_seed(1))


def others(experts: Tensor, count: int) -> Tensor:
    """Other experts than the given ones, for each token and slot."""
    return ((experts.long() + 1) % count).to(experts.dtype)
