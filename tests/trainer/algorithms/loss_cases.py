"""Inputs, settings and published results that the tests of losses share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs
from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.kl.base import KlInputs
from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    TopTokens,
)
from grpodoctor.trainer.algorithms.registry import correction_of, kl_of, loss_of, token_selector_of
from grpodoctor.trainer.config.loss import loss_config

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())


CORE = VECTORS["core"]


MASK_BT = torch.tensor(CORE["mask"]).bool()


GROUP_IDS_B = torch.tensor([0, 0])


BUDGET = 4


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logprobs(policy: str) -> Tensor:
    return tensor(CORE[f"p_{policy}"]).log()


def penalty_of(estimator: str, new_logprobs_BT: Tensor) -> Tensor:
    return kl_of(estimator)(KlInputs(new_logprobs_BT, logprobs("ref"), logprobs("old")))


def inputs_of(
    new_logprobs_BT: Tensor,
    *,
    advantages: Any = ((1.0,), (-0.5,)),
    old_logprobs_BT: Tensor | None = None,
    sampler_logprobs_BT: Tensor | None = None,
    mask_BT: Tensor = MASK_BT,
    **settings: Any,
) -> LossInputs[Any]:
    """The core fixture; the sampler is the old policy unless it is given.

    The most likely tokens, if needed, are the sampled token and one with half of the rest.
    """
    config = loss_config(settings)
    old_BT = logprobs("old") if old_logprobs_BT is None else old_logprobs_BT
    sampler_BT = old_BT if sampler_logprobs_BT is None else sampler_logprobs_BT
    inputs = LossInputs(
        new_logprobs_BT,
        old_BT,
        sampler_BT,
        torch.as_tensor(advantages, dtype=torch.float64).expand(new_logprobs_BT.shape),
        mask_BT,
        config,
        router_shift_BT=torch.ones_like(new_logprobs_BT),
    )
    if not config.sampler_top_tokens():
        return inputs
    pairs = [
        torch.stack([each_BT, torch.log(-torch.expm1(each_BT) / 2)], dim=-1)
        for each_BT in (sampler_BT, new_logprobs_BT.detach())
    ]
    return replace(inputs, top=TopTokens(*pairs, torch.tensor([True, False]).expand(2, 3, 2)))


def chosen_by(inputs: LossInputs[Any]) -> Tensor | None:
    select_tokens = token_selector_of(inputs.settings.kind)
    return (
        None if select_tokens is None else select_tokens(inputs, torch.Generator().manual_seed(0))
    )


def terms_of(new_logprobs_BT: Tensor, **given: Any) -> LossTerms:
    """A loss on the core fixture."""
    inputs = inputs_of(new_logprobs_BT, **given)
    return loss_of(inputs.settings.kind)(replace(inputs, chosen_BT=chosen_by(inputs)))


@dataclass
class Case:
    settings: dict[str, Any] = field(default_factory=dict)
    aggregation: str = "token-mean"
    advantages: Any = ((1.0,), (-0.5,))
    sampler: str = "mu"
    correction: str = "none"
    cap: float = 2.0
    floor: float = 0.0
    of_response: str = "product"

    def terms(self, new_logprobs_BT: Tensor) -> LossTerms:
        return terms_of(
            new_logprobs_BT,
            advantages=self.advantages,
            sampler_logprobs_BT=logprobs(self.sampler),
            aggregation=self.aggregation,
            **self.settings,
        )

    def corrected(self) -> Corrected | None:
        settings = CorrectionConfig(
            kind=self.correction, cap=self.cap, floor=self.floor, of_response=self.of_response
        )
        inputs = CorrectionInputs(logprobs("old"), logprobs("mu"), MASK_BT, settings)
        return correction_of(self.correction)(inputs)

    def loss(self, new_logprobs_BT: Tensor) -> Tensor:
        loss_BT = self.terms(new_logprobs_BT).loss_BT
        if corrected := self.corrected():
            loss_BT = loss_BT * corrected.weights_BT
        if beta := self.settings.get("kl_coefficient"):
            loss_BT = loss_BT + beta * penalty_of("k3", new_logprobs_BT)
        weights_BT = token_weights(self.aggregation, StepTokens(MASK_BT, GROUP_IDS_B, BUDGET))
        return (torch.where(MASK_BT, loss_BT, 0.0) * weights_BT).sum()


FLIPPED = ((-1.0,), (0.5,))


CLIP_COV = {"kind": "clip_cov", "clip_low": 0.2, "clip_high": 0.2}


GSPO_WIDE = {"clip_low": 0.2, "clip_high": 0.2}


TV, TOKEN_SUM = {"kind": "dppo_binary_tv"}, "sequence-mean-token-sum"


CASES = {
    "ppo_clip_token_mean": Case(),
    "ppo_clip_flipped_advantage": Case(advantages=FLIPPED),
    "ppo_dual_clip_c3": Case({"dual_clip": 3.0}),
    "grpo_seqmean_eps0.2_beta0.04_k3": Case({"kl_coefficient": 0.04}, "sequence-mean"),
    "grpo_seqmean_beta0": Case(aggregation="sequence-mean"),
    "dapo_clip_higher_token_level": Case({"clip_high": 0.28}),
    "dr_grpo_constant_denominator": Case(aggregation="constant"),
    "reinforce_seq_sum": Case({"kind": "reinforce"}, TOKEN_SUM, ((1.0,), (0.0,))),
    "reinforce_token_mean_adv": Case({"kind": "reinforce"}),
    "rloo_seq_sum": Case({"kind": "reinforce"}, TOKEN_SUM, ((1.0,), (-1.0,))),
    "gspo_3e-4_4e-4": Case({"kind": "gspo"}, "sequence-mean"),
    "gspo_0.2_0.2": Case({"kind": "gspo", **GSPO_WIDE}, "sequence-mean"),
    "gspo_token_0.2_0.2": Case({"kind": "gspo_token", **GSPO_WIDE}, "sequence-mean"),
    "gspo_token_varying_advantage": Case(
        {"kind": "gspo_token", **GSPO_WIDE},
        "sequence-mean",
        advantages=((1.0, -1.0, 0.5), (-0.5, 0.25, 0.0)),
    ),
    "gmpo_eps0.4_log_space": Case({"kind": "gmpo"}, "sequence-mean"),
    "gmpo_flipped_advantage": Case({"kind": "gmpo"}, "sequence-mean", FLIPPED),
    "cispo_cap3_no_lower": Case({"kind": "cispo", "clip_high": 2.0}),
    "scalerl_cispo_new_over_rollout_cap3": Case(
        {"kind": "scalerl", "ratio_cap": 3.0}, "prompt-mean"
    ),
    "sapo_taupos1_tauneg1.05": Case({"kind": "sapo"}, "sequence-mean"),
    "vespo_k2_l3_pos_k3_l2_neg": Case({"kind": "vespo"}, sampler="old"),
    "dppo_binary_tv_delta0.15": Case(TV),
    "dppo_binary_tv_delta0.15_flipped_advantage": Case(TV, advantages=FLIPPED),
    "dppo_binary_kl_delta0.05": Case({"kind": "dppo_binary_kl"}),
    "dcpo_dac_otm_sum_over_responses": Case({"kind": "dcpo"}, "sequence-sum-token-mean"),
    "minirl_token_sum": Case({"kind": "minirl"}, TOKEN_SUM),
    "olmo3_grpo": Case({"clip_high": 0.272}, advantages=((0.5,), (-0.5,)), correction="tis_token"),
    "two_sided_clip_delta4": Case({"dual_clip": 4.0}),
    "rloo_trl_sequence_ratio_clip": Case(
        {"kind": "sequence_clip"}, "sequence-mean", ((1.0,), (-1.0,))
    ),
    "clip_cov_all_eligible": Case({**CLIP_COV, "share": 1.0, "covariance_low": 0.35}),
    "kl_cov_top2_coef1": Case({"kind": "kl_cov", "share": 0.4}),
    "tis_sequence_geomean_C1.5_msswift_style": Case(
        correction="tis_sequence", cap=1.5, of_response="geometric-mean"
    ),
    "tis_token_C2": Case(correction="tis_token"),
    "tis_sequence_product_C3": Case(correction="tis_sequence", cap=3.0),
    "mis_token_C2": Case(correction="mis_token"),
    "mis_sequence_product_C3": Case(correction="mis_sequence", cap=3.0),
    "icepop_0.5_5_seqmean": Case({}, "sequence-mean", correction="icepop", cap=5.0, floor=0.5),
    "icepop_0.5_5_tokenmean": Case(correction="icepop", cap=5.0, floor=0.5),
    "geo_seq_mask_keep_raw_token_w_[0.99,2.0]": Case(correction="geo_mask", cap=2.0, floor=0.99),
}


def gradient_of(loss: Tensor, new_logprobs_BT: Tensor) -> Tensor:
    (gradient_BT,) = torch.autograd.grad(loss, new_logprobs_BT)
    return gradient_BT


def aggregated(loss_BT: Tensor, mask_BT: Tensor, kind: str) -> Tensor:
    weights_BT = token_weights(kind, StepTokens(mask_BT, torch.zeros(len(mask_BT)).long(), 16))
    return (torch.where(mask_BT, loss_BT, 0.0) * weights_BT).sum()
