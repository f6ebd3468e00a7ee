"""The negative log-likelihood of correct responses: value, gradient and denominator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import torch
from torch import Tensor

from grpodoctor.errors import DataError
from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.algorithms.losses.base import LossInputs
from grpodoctor.trainer.algorithms.positive_nll import positive_weights
from grpodoctor.trainer.algorithms.registry import loss_of
from grpodoctor.trainer.config.loss import loss_config
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.samples import Samples
from tests.trainer.model.critic_runs import drawn, small

VECTORS = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())


def plain_batch(samples: Samples, mask_BT: Tensor, correct_B: Tensor | None) -> LearnBatch:
    zeros_BT = torch.zeros(mask_BT.shape)
    groups_B = torch.zeros(len(mask_BT), dtype=torch.long)
    return LearnBatch(
        samples=samples,
        group_ids_B=groups_B,
        advantages_BT=zeros_BT,
        loss_mask_BT=mask_BT,
        old_logprobs_BT=zeros_BT,
        corrected=None,
        reference_logprobs_BT=None,
        correct_B=correct_B,
        kept_B=torch.ones(len(mask_BT), dtype=torch.bool),
    )


def test_ppo_with_positive_nll_matches_the_published_vector() -> None:
    core, wanted = VECTORS["core"], VECTORS["losses"]["vapo_ppo_plus_positive_nll"]
    mask_BT = torch.tensor(core["mask"]).bool()
    new_BT, old_BT = (torch.tensor(core[f"p_{name}"]).double().log() for name in ("new", "old"))
    new_BT = torch.where(mask_BT, new_BT, 0.0).requires_grad_()
    config = loss_config({"clip_high": 0.28, "aggregation": "token-mean", "positive_nll": 0.1})
    advantages_BT = torch.tensor(core["advantages"]).double()[:, None].expand(mask_BT.shape)
    inputs = LossInputs(new_BT, old_BT, old_BT, advantages_BT, mask_BT, config)
    loss_BT = torch.where(mask_BT, loss_of("ppo_clip")(inputs).loss_BT, 0.0)
    tokens = StepTokens(mask_BT, torch.tensor([0, 0]), 4)
    loss = (loss_BT * token_weights("token-mean", tokens)).sum()
    correct_B = torch.tensor(wanted["params"]["correct"]).bool()
    batch = plain_batch(drawn(2), mask_BT, correct_B)
    weights_BT = positive_weights(batch, torch.arange(2), config.positive_nll)
    assert weights_BT is not None
    loss = loss - (weights_BT * new_BT).sum()
    (gradient_BT,) = torch.autograd.grad(loss, new_BT)
    assert loss.item() == pytest.approx(wanted["loss"], rel=1e-6)
    torch.testing.assert_close(
        gradient_BT, torch.tensor(wanted["grad_wrt_new_logp"]).double(), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize(
    ("correct", "coefficient"), [(None, 0.1), ([True] * 8, 0.0), ([False] * 8, 0.1)]
)
def test_without_correct_responses_there_is_no_positive_nll(
    correct: list[bool] | None, coefficient: float
) -> None:
    samples = drawn()
    correct_B = None if correct is None else torch.tensor(correct)
    batch = plain_batch(samples, samples.mask_BT, correct_B)
    assert positive_weights(batch, torch.arange(8), coefficient) is None


def learner_step(trainer: Trainer, batch: LearnBatch, config: TrainConfig) -> tuple[float, Tensor]:
    """The likelihood that an update reports, and its gradient, read back from the moments."""
    fresh = Learner(trainer.policy.model, config.optimizer)
    rows = torch.arange(len(batch.samples))
    update = fresh.update(batch, rows, config, 0.0, torch.Generator())
    moments = fresh.optimizer.state_dict()["state"]
    gradient_N = torch.cat([moments[index]["exp_avg"].flatten() for index in sorted(moments)])
    assert update.positive_nll is not None
    return update.positive_nll, gradient_N


def test_positive_nll_has_its_own_denominator(tmp_path: Path) -> None:
    extra = ("loss.positive_nll=0.5", "optimizer.max_grad_norm=1e9")
    config = small(*extra, preset=None)
    trainer = Trainer(config, tmp_path / "run")
    rollouts = trainer._collect(1)
    scores = score(trainer.policy.model, rollouts.samples, 1.0)
    batch = trainer._learn_batch(rollouts, scores)
    correct_B = torch.arange(16) % 3 == 0
    batch = replace(
        batch, correct_B=correct_B, advantages_BT=torch.zeros_like(batch.old_logprobs_BT)
    )
    found, whole = learner_step(trainer, batch, config)
    lengths_B = rollouts.samples.mask_BT.sum(dim=1)
    wanted = -scores.logprobs_BT[correct_B].sum() / lengths_B[correct_B].sum()
    assert found == pytest.approx(float(wanted), rel=1e-5)
    assert whole.abs().max() > 0
    for size in (1, 5):
        split, gradient_N = learner_step(
            trainer, batch, small(*extra, f"optimizer.micro_batch={size}", preset=None)
        )
        assert split == pytest.approx(found, rel=1e-5)
        torch.testing.assert_close(gradient_N, whole, rtol=1e-4, atol=1e-7)
    # With zero advantages the gradient is only that of the likelihood.
    _, heavier = learner_step(
        trainer, batch, small("loss.positive_nll=1", "optimizer.max_grad_norm=1e9", preset=None)
    )
    torch.testing.assert_close(heavier, 2 * whole, rtol=1e-4, atol=1e-7)
    trainer.recording.close(finished=False)


def test_positive_nll_requires_a_reward_with_correctness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(40)]
    data.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unjudged.py").write_text(
        "def reward(prompts, completions, answers):\n    return [0.5] * len(prompts)\n"
    )
    extra = (f"task.data={data}", "task.reward=unjudged:reward")
    config = small(*extra, "loss.positive_nll=0.1", "model.warm_start_steps=0", preset=None)
    trainer = Trainer(config, tmp_path / "run")
    with pytest.raises(DataError, match=r"which responses are correct.*loss\.positive_nll=0"):
        trainer.run()
