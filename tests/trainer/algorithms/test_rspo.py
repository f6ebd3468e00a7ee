"""RSPO against the published formula and with real routers; cases in which it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, ModelError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.sequence_level.gmpo import Gmpo, gmpo
from grpodoctor.trainer.algorithms.losses.sequence_level.rspo import Rspo, rspo
from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.moe.routers import RoutingRecord, routers_of
from grpodoctor.trainer.moe.routes import Gates, router_shift
from grpodoctor.vocabulary.values import scalar
from tests.trainer.families import build, save

HERE = Path(__file__).parents[1]
VECTOR: dict[str, Any] = json.loads((HERE / "expert_vectors.json").read_text())["rspo"]
CORE: dict[str, Any] = json.loads((HERE / "vectors.json").read_text())["core"]
MASK_BT = torch.tensor(CORE["mask"]).bool()


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def inputs_of(new_logprobs_BT: Tensor, settings: Any, shift_BT: Tensor | None) -> LossInputs[Any]:
    old_BT = tensor(CORE["p_old"]).log()
    advantages_BT = tensor(CORE["advantages"])[:, None].expand(old_BT.shape)
    return LossInputs(
        new_logprobs_BT, old_BT, old_BT, advantages_BT, MASK_BT, settings, router_shift_BT=shift_BT
    )


def outcome(terms: LossTerms, new_logprobs_BT: Tensor) -> tuple[Tensor, Tensor]:
    weights_BT = token_weights("sequence-mean", StepTokens(MASK_BT, torch.tensor([0, 0]), 4))
    loss = (torch.where(MASK_BT, terms.loss_BT, 0.0) * weights_BT).sum()
    (gradient_BT,) = torch.autograd.grad(loss, new_logprobs_BT)
    return loss.detach(), gradient_BT


def test_value_and_gradient_match_the_published_vectors() -> None:
    new_BT = tensor(CORE["p_new"]).log().requires_grad_()
    settings = Rspo(log_clip=VECTOR["params"]["log_eps"], shift_floor=VECTOR["params"]["gamma_min"])
    raw_BT = torch.where(MASK_BT, tensor(VECTOR["gamma_raw"]), float("nan"))
    loss, gradient_BT = outcome(rspo(inputs_of(new_BT, settings, raw_BT)), new_BT)
    assert loss.item() == pytest.approx(VECTOR["loss"], rel=1e-6)
    wanted_BT = tensor(VECTOR["grad_wrt_new_logp"])
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-9)
    assert ((gradient_BT == 0) == (wanted_BT == 0)).all()


def test_the_shift_is_the_published_one() -> None:
    """Probabilities of the old policy's experts: two layers, two experts per token."""
    old_BTDK, new_BTDK = tensor(VECTOR["router_old"]), tensor(VECTOR["router_new"])
    experts_BTDK = torch.arange(2).expand(old_BTDK.shape).short()
    rest_BTD1 = (1 - new_BTDK.sum(dim=-1, keepdim=True)).clamp(min=1e-9)
    logits_NDE = torch.cat([new_BTDK, rest_BTD1], dim=-1).log().flatten(0, 1)
    tape = RoutingRecord(2, None)
    for layer in range(2):
        tape.store_logits(layer, logits_NDE[:, layer])
    shift_BT = router_shift(Gates(experts_BTDK, old_BTDK.log().float()), tape)
    wanted_BT = tensor(VECTOR["gamma_raw"]).float()
    torch.testing.assert_close(shift_BT[MASK_BT], wanted_BT[MASK_BT], rtol=1e-6, atol=1e-7)


def test_rspo_without_shift_equals_gmpo() -> None:
    new_BT = tensor(CORE["p_new"]).log().requires_grad_()
    ones_BT = torch.ones_like(new_BT)
    one = outcome(rspo(inputs_of(new_BT, Rspo(), ones_BT)), new_BT)
    other = outcome(gmpo(inputs_of(new_BT, Gmpo(), None)), new_BT)
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


def test_the_router_shift_covers_all_layers_and_has_no_gradient() -> None:
    """The router of one layer is moved by a known amount, which determines the shift."""
    model = build("mixtral")
    routers = routers_of(model)
    assert routers is not None
    tokens = torch.randint(2, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    with routers.recording() as tape, torch.no_grad():
        model(tokens)
    experts_BTDK = tape.experts(3)
    old_BTDK = tape.logits(3).log_softmax(-1).gather(3, experts_BTDK.long())
    old = Gates(experts_BTDK, old_BTDK)
    assert (router_shift(old, tape) == 1).all()
    with torch.no_grad():  # the last layer affects no other router
        model.model.layers[1].mlp.gate.weight.mul_(1.5)
    with routers.recording() as tape:
        model(tokens)
    shift_BT = router_shift(old, tape)
    logits_BTE = tape.logits(3)[:, :, 1]
    moved_BTK = logits_BTE.log_softmax(-1).gather(2, experts_BTDK[:, :, 1].long())
    wanted_BT = torch.exp(-(moved_BTK - old_BTDK[:, :, 1]).abs().mean(-1) / 2)
    torch.testing.assert_close(shift_BT, wanted_BT, rtol=1e-5, atol=1e-6)
    assert shift_BT.max() < 1
    assert not shift_BT.requires_grad


def test_the_preset_trains_the_built_in_mixture(tmp_path: Path) -> None:
    quick = [
        *("threads=1", "steps=2", "model.warm_start_steps=30", "evaluation.every=0"),
        "record.experts_every=1",
        *("rollout.prompts_per_batch=4", "rollout.group_size=4", "optimizer.learning_rate=1e-3"),
        *("overlong.kind=soft-punishment", "overlong.buffer=28"),
    ]
    trainer = Trainer(load_config(preset_of("rspo").settings, assignments=quick), tmp_path)
    assert trainer.policy.model.config.model_type == "qwen3_moe"
    before = [each.detach().clone() for each in trainer.learner.parameters]
    trainer.run()
    moved = [
        not torch.equal(old, new)
        for old, new in zip(before, trainer.learner.parameters, strict=True)
    ]
    assert sum(moved) > len(moved) / 2
    *_, last = (step.values for step in read_run(tmp_path).steps)
    assert 0 < scalar(last["experts/churn_update"]) < 0.5
    assert scalar(last["ratio/max"]) > 1


def test_a_dense_model_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the built-in model is dense and has no routers"):
        load_config(preset_of("rspo").settings, assignments=["model.experts=0"])
    own = save("qwen2", tmp_path / "model")
    config = load_config(preset_of("rspo").settings, assignments=[f"model.name={own}"])
    with pytest.raises(ModelError, match=r"loss\.kind=rspo needs a mixture of experts") as error:
        Trainer(config, tmp_path / "run")
    assert "\n" not in str(error.value)
