"""Losses, corrections, penalties and denominators against published formulas."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.aggregation import AGGREGATIONS, StepTokens, token_weights
from grpodoctor.trainer.config import LossConfig
from grpodoctor.trainer.corrections.base import Corrected, CorrectionInputs
from grpodoctor.trainer.kl import kl_penalty
from grpodoctor.trainer.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.registry import correction_of, loss_of, names
from grpodoctor.vocabulary.knobs import KNOBS

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())
CORE = VECTORS["core"]
MASK_BT = torch.tensor(CORE["mask"]).bool()
GROUP_IDS_B = torch.tensor([0, 0])
BUDGET = 4


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logprobs(policy: str) -> Tensor:
    return tensor(CORE[f"p_{policy}"]).log()


@dataclass
class Case:
    settings: dict[str, Any] = field(default_factory=dict)
    aggregation: str = "token-mean"
    advantages: tuple[float, float] = (1.0, -0.5)
    correction: str = "none"
    cap: float = 2.0

    def terms(self, new_logprobs_BT: Tensor) -> LossTerms:
        advantages_BT = tensor(self.advantages)[:, None].expand(MASK_BT.shape)
        config = LossConfig(aggregation=self.aggregation, **self.settings)
        return loss_of(config.kind)(
            LossInputs(new_logprobs_BT, logprobs("old"), advantages_BT, MASK_BT, config)
        )

    def corrected(self) -> Corrected | None:
        inputs = CorrectionInputs(logprobs("old"), logprobs("mu"), MASK_BT, self.cap)
        return correction_of(self.correction)(inputs)

    def loss(self, new_logprobs_BT: Tensor) -> Tensor:
        loss_BT = self.terms(new_logprobs_BT).loss_BT
        if corrected := self.corrected():
            loss_BT = loss_BT * corrected.weights_BT
        if beta := self.settings.get("kl_coefficient"):
            loss_BT = loss_BT + beta * kl_penalty("k3", new_logprobs_BT, logprobs("ref"))
        weights_BT = token_weights(self.aggregation, StepTokens(MASK_BT, GROUP_IDS_B, BUDGET))
        return (torch.where(MASK_BT, loss_BT, 0.0) * weights_BT).sum()


CASES = {
    "ppo_clip_token_mean": Case(),
    "ppo_clip_flipped_advantage": Case(advantages=(-1.0, 0.5)),
    "ppo_dual_clip_c3": Case({"dual_clip": 3.0}),
    "grpo_seqmean_eps0.2_beta0.04_k3": Case({"kl_coefficient": 0.04}, "sequence-mean"),
    "grpo_seqmean_beta0": Case(aggregation="sequence-mean"),
    "dapo_clip_higher_token_level": Case({"clip_high": 0.28}),
    "dr_grpo_constant_denominator": Case(aggregation="constant"),
    "tis_token_C2": Case(correction="tis_token"),
    "tis_sequence_product_C3": Case(correction="tis_sequence", cap=3.0),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_the_published_ones(name: str) -> None:
    expected, case = VECTORS["losses"][name], CASES[name]
    new_logprobs_BT = logprobs("new").requires_grad_()
    loss = case.loss(new_logprobs_BT)
    (gradient_BT,) = torch.autograd.grad(loss, new_logprobs_BT)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-6, abs=1e-9)
    wanted_BT = tensor(expected["grad_wrt_new_logp"])
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-9)
    # A stopped gradient is exactly zero, not merely small.
    assert ((gradient_BT == 0) == (wanted_BT == 0)).all()


@pytest.mark.parametrize("name", ["tis_token_C2", "tis_sequence_product_C3"])
def test_correction_weights_are_the_published_ones(name: str) -> None:
    corrected, expected_BT = CASES[name].corrected(), tensor(VECTORS["losses"][name]["is_weight"])
    assert corrected is not None
    torch.testing.assert_close(
        corrected.weights_BT[MASK_BT], expected_BT[MASK_BT], rtol=1e-6, atol=1e-9
    )
    at_cap_BT = expected_BT == CASES[name].cap
    assert (corrected.capped_BT[MASK_BT] == at_cap_BT[MASK_BT]).all()
    assert not corrected.capped_BT[~MASK_BT].any()


def test_clip_flags_say_which_tokens_lost_their_gradient() -> None:
    terms = Case().terms(logprobs("new"))
    expected = VECTORS["losses"]["ppo_clip_token_mean"]
    assert terms.clipped_low_BT.sum() / MASK_BT.sum() == pytest.approx(expected["clipfrac_low"])
    assert terms.clipped_high_BT.sum() / MASK_BT.sum() == pytest.approx(expected["clipfrac_high"])
    assert terms.clipped_high_BT[0, 1]
    assert terms.clipped_low_BT[1, 0]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_penalties_are_the_published_ones(estimator: str) -> None:
    expected = VECTORS["losses"][f"kl_loss_{estimator}_token_mean"]
    new_logprobs_BT = logprobs("new").requires_grad_()
    penalty_BT = kl_penalty(estimator, new_logprobs_BT, logprobs("ref"))
    loss = penalty_BT[MASK_BT].mean()
    (gradient_BT,) = torch.autograd.grad(loss, new_logprobs_BT)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-6)
    torch.testing.assert_close(
        gradient_BT, tensor(expected["grad_wrt_new_logp"]), rtol=1e-6, atol=1e-9
    )


def _ragged(fixture: dict[str, Any]) -> tuple[Tensor, StepTokens]:
    width = max(fixture["lengths"])
    garbage = 1e30
    loss_BT = tensor([row + [garbage] * (width - len(row)) for row in fixture["per_token_loss"]])
    mask_BT = torch.arange(width) < torch.tensor(fixture["lengths"])[:, None]
    return loss_BT, StepTokens(mask_BT, torch.tensor(fixture["group"]), fixture["L_max"])


@pytest.mark.parametrize(
    ("number", "kind"),
    [(number, kind) for number in (0, 1) for kind in VECTORS["aggregation"][number]["expected"]],
)
def test_denominators_are_the_published_ones(number: int, kind: str) -> None:
    fixture = VECTORS["aggregation"][number]
    loss_BT, tokens = _ragged(fixture)
    aggregated = (token_weights(kind, tokens) * loss_BT).sum().item()
    assert aggregated == pytest.approx(fixture["expected"][kind], rel=1e-6)


def test_the_constant_denominator_does_not_depend_on_the_padding() -> None:
    _, tokens = _ragged(VECTORS["aggregation"][1])
    wider = StepTokens(
        torch.nn.functional.pad(tokens.mask_BT, (0, 9)), tokens.group_ids_B, tokens.length_limit
    )
    weights, wide = token_weights("constant", tokens), token_weights("constant", wider)
    assert weights.sum() == wide.sum()


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_a_step_without_loss_tokens_is_zero_and_not_nan(kind: str) -> None:
    nothing = StepTokens(torch.zeros(2, 3, dtype=torch.bool), GROUP_IDS_B, BUDGET)
    assert token_weights(kind, nothing).abs().sum() == 0


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_prompt_ids_need_not_be_consecutive(kind: str) -> None:
    _, tokens = _ragged(VECTORS["aggregation"][0])
    renamed = StepTokens(tokens.mask_BT, tokens.group_ids_B * 7 + 3, tokens.length_limit)
    assert torch.equal(token_weights(kind, tokens), token_weights(kind, renamed))


@pytest.mark.parametrize(
    ("knob", "family"),
    [("loss", "losses"), ("advantage", "advantages"), ("correction", "corrections")],
)
def test_every_choice_of_a_knob_is_a_registered_variant(knob: str, family: Any) -> None:
    assert set(KNOBS[knob].choices) <= set(names(family))


@pytest.mark.parametrize("name", names("losses"))
def test_on_policy_the_gradient_is_that_of_reinforce(name: str) -> None:
    advantages_BT = tensor([1.0, -0.5])[:, None].expand(MASK_BT.shape)
    new_logprobs_BT = logprobs("old").requires_grad_()
    terms = loss_of(name)(
        LossInputs(new_logprobs_BT, logprobs("old"), advantages_BT, MASK_BT, LossConfig(kind=name))
    )
    (gradient_BT,) = torch.autograd.grad(terms.loss_BT[MASK_BT].sum(), new_logprobs_BT)
    torch.testing.assert_close(gradient_BT[MASK_BT], -advantages_BT[MASK_BT])
