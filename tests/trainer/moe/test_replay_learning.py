"""Gradients of updates under routing replay."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.model.forward import gradient_checkpointing, response_logits
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.samples import Samples
from tests.trainer.families import build
from tests.trainer.moe.mixtures import MIXTURE, others, routers, sampled, tokens_of


def batch_of(mixture: Policy, samples: Samples, config: TrainConfig) -> LearnBatch:
    """The loop's batch of some samples, with advantages of both signs."""
    scores = score(mixture.model, samples, 1.0, routers=routers(mixture.model))
    assert scores.routes is not None
    mask_BT = samples.mask_BT
    signs_B = torch.tensor([1.0, -1.0, 0.5, -0.5]).repeat(len(samples) // 4)
    replay = config.engine.routing_replay
    return LearnBatch(
        samples=samples,
        group_ids_B=torch.arange(len(samples)) // 4,
        kept_B=torch.ones(len(samples), dtype=torch.bool),
        advantages_BT=signs_B[:, None].expand(mask_BT.shape),
        loss_mask_BT=mask_BT,
        old_logprobs_BT=scores.logprobs_BT,
        corrected=None,
        reference_logprobs_BT=None,
        replay_BLDK=samples.experts_BLDK if replay == "R3" else None,
        old_gates=scores.routes.gates if config.loss.needs_router_shift else None,
    )


def gradients_of(
    model: Any, batch: LearnBatch, rows: Sequence[int], config: TrainConfig
) -> list[Tensor]:
    """The gradient of one optimizer step that changes no weight."""
    learner = Learner(model, config.optimizer)
    learner.routers = routers(model)
    taken: list[Tensor] = []
    step = learner.optimizer.step

    def keep(*_: Any, **__: Any) -> None:
        taken.extend(parameter.grad.clone() for parameter in learner.parameters)

    learner.optimizer.step = keep  # type: ignore[method-assign]
    learner.update(batch, torch.tensor(rows), config, 0.0, torch.Generator())
    learner.optimizer.step = step  # type: ignore[method-assign]
    return taken


VARIANTS = {
    "R3": ["engine.routing_replay=R3"],
    "RSPO": ["loss.kind=rspo"],
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "change",
    [["optimizer.micro_batch=5"], ["model.gradient_checkpointing=true", "optimizer.micro_batch=7"]],
    ids=["micro-batches", "recomputed"],
)
def test_micro_batches_and_recomputation_do_not_change_the_gradient(
    mixture: Policy, variant: str, change: list[str]
) -> None:
    """The experts of another engine are replayed on a model that has changed since."""
    whole = load_config(assignments=[*MIXTURE, *VARIANTS[variant], "optimizer.max_grad_norm=1e9"])
    samples = sampled(mixture, "int4", count=6)
    batch = batch_of(mixture, samples, whole)
    model = moved(mixture.model)
    wanted = gradients_of(model, batch, range(len(samples)), whole)
    given = load_config(whole.model_dump(), assignments=change)
    got = gradients_of(model, batch, range(len(samples)), given)
    for one, other in zip(wanted, got, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6 * float(one.abs().max() + 1))
    free = gradients_of(
        model,
        batch_of(mixture, samples, plain := load_config(assignments=MIXTURE)),
        range(len(samples)),
        plain,
    )
    assert any((one - other).abs().max() > 1e-3 for one, other in zip(wanted, free, strict=True))


def moved(model: Any) -> Any:
    """The model some optimizer steps later: other routers, other experts."""
    copied = copy.deepcopy(model)
    noise = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    return copied


def test_recomputed_layers_use_the_same_replay() -> None:
    """Without the replay the recomputation would choose other experts, which torch reports."""
    model = build("qwen3_moe")
    attention = torch.ones(3, 8, dtype=torch.bool)
    tokens = tokens_of(model, 3, 8)
    with torch.no_grad(), routers(model).recording() as tape:
        response_logits(model, tokens, attention, 2)
    forced = others(tape.experts(3), 4)

    def gradients(*, enabled: bool) -> list[Tensor]:
        model.zero_grad()
        with routers(model).recording(forced):
            with gradient_checkpointing(model, enabled=enabled):
                logits = response_logits(model, tokens, attention, 2)
            logits.square().mean().backward()
        return [layer.mlp.experts.down_proj.grad.clone() for layer in model.model.layers]

    for one, other in zip(gradients(enabled=False), gradients(enabled=True), strict=True):
        assert torch.equal(one, other)
