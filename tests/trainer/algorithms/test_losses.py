"""Losses, corrections, penalties and denominators against published formulas."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.aggregation import AGGREGATIONS, StepTokens, token_weights
from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs
from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.kl.base import KlInputs
from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    TopTokens,
    coarsened,
    covariances,
)
from grpodoctor.trainer.algorithms.names import Family, names
from grpodoctor.trainer.algorithms.registry import choice_of, correction_of, kl_of, loss_of
from grpodoctor.trainer.algorithms.sequence_mask import stale_responses
from grpodoctor.trainer.config.loss import loss_config, loss_settings
from grpodoctor.trainer.recipes import page_of
from grpodoctor.vocabulary.knobs import KNOBS
from grpodoctor.vocabulary.losses import LOSSES

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

    Its likeliest tokens, where a loss wants them, are the sampled one and half of the rest.
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
    choose = choice_of(inputs.settings.kind)
    return None if choose is None else choose(inputs, torch.Generator().manual_seed(0))


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


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.corrected()])
def test_correction_weights_are_the_published_ones(name: str) -> None:
    corrected = CASES[name].corrected()
    expected_BT = tensor(
        VECTORS["losses"]["tis_token_C2" if name == "olmo3_grpo" else name]["is_weight"]
    )
    assert corrected is not None
    torch.testing.assert_close(
        corrected.weights_BT[MASK_BT], expected_BT[MASK_BT], rtol=1e-6, atol=1e-9
    )
    bound = CASES[name].cap if CASES[name].correction.startswith("tis") else 0.0
    at_bound_BT = expected_BT == bound
    assert (corrected.capped_BT[MASK_BT] == at_bound_BT[MASK_BT]).all()
    assert not corrected.capped_BT[~MASK_BT].any()


def test_clip_flags_say_which_tokens_lost_their_gradient() -> None:
    terms = Case().terms(logprobs("new"))
    expected = VECTORS["losses"]["ppo_clip_token_mean"]
    assert terms.clipped_low_BT is not None
    assert terms.clipped_high_BT is not None
    assert terms.clipped_low_BT.sum() / MASK_BT.sum() == pytest.approx(expected["clipfrac_low"])
    assert terms.clipped_high_BT.sum() / MASK_BT.sum() == pytest.approx(expected["clipfrac_high"])
    assert terms.clipped_high_BT[0, 1]
    assert terms.clipped_low_BT[1, 0]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_penalties_are_the_published_ones(estimator: str) -> None:
    expected = VECTORS["losses"][f"kl_loss_{estimator}_token_mean"]
    new_logprobs_BT = logprobs("new").requires_grad_()
    loss = penalty_of(estimator, new_logprobs_BT)[MASK_BT].mean()
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
    assert set(KNOBS[knob].choices) == set(names(family))


def gradient_of(loss: Tensor, new_logprobs_BT: Tensor) -> Tensor:
    (gradient_BT,) = torch.autograd.grad(loss, new_logprobs_BT)
    return gradient_BT


def aggregated(loss_BT: Tensor, mask_BT: Tensor, kind: str) -> Tensor:
    weights_BT = token_weights(kind, StepTokens(mask_BT, torch.zeros(len(mask_BT)).long(), 16))
    return (torch.where(mask_BT, loss_BT, 0.0) * weights_BT).sum()


@pytest.mark.parametrize("name", names("losses"))
def test_on_policy_the_gradient_is_that_of_reinforce(name: str) -> None:
    new_logprobs_BT = logprobs("old").requires_grad_()
    # By design Clip-Cov leaves tokens out, and the product of ratios sums up a response's tokens.
    none_chosen = {"share": 0, "fewest": 0} if name == "clip_cov" else {}
    terms, kind = (
        terms_of(new_logprobs_BT, kind=name, **none_chosen),
        loss_config({"kind": name}).aggregation,
    )
    gradient_BT = gradient_of(aggregated(terms.loss_BT, MASK_BT, kind), new_logprobs_BT)
    kind = TOKEN_SUM if name == "sequence_clip" else kind
    plain_BT = -tensor([[1.0], [-0.5]]) * new_logprobs_BT
    wanted_BT = gradient_of(aggregated(plain_BT, MASK_BT, kind), new_logprobs_BT)
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", names("losses"))
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -1e30])
def test_padding_reaches_neither_value_nor_gradient(name: str, garbage: float) -> None:
    def outcome(filling: float) -> tuple[Tensor, Tensor]:
        padded = {
            policy: torch.where(MASK_BT, logprobs(policy), filling) for policy in ("old", "mu")
        }
        new_BT = torch.where(MASK_BT, logprobs("new"), filling).requires_grad_()
        terms = terms_of(
            new_BT, old_logprobs_BT=padded["old"], sampler_logprobs_BT=padded["mu"], kind=name
        )
        loss = aggregated(terms.loss_BT, MASK_BT, "sequence-mean")
        return loss.detach(), gradient_of(loss, new_BT)

    loss, gradient_BT = outcome(garbage)
    clean, clean_gradient_BT = outcome(0.0)
    assert torch.equal(loss, clean)
    assert torch.equal(gradient_BT, clean_gradient_BT)
    assert (gradient_BT[~MASK_BT] == 0).all()


@pytest.mark.parametrize("name", names("losses"))
def test_a_response_is_weighed_alone_or_in_company_alike(name: str) -> None:
    whole = terms_of(logprobs("new"), sampler_logprobs_BT=logprobs("mu"), kind=name)
    inputs = inputs_of(logprobs("new"), sampler_logprobs_BT=logprobs("mu"), kind=name)
    chosen_BT = chosen_by(inputs)  # among the tokens of both
    for row in (0, 1):
        part = slice(row, row + 1)
        alone = loss_of(name)(
            LossInputs(
                *(logprobs(policy)[part] for policy in ("new", "old", "mu")),
                advantages_BT=inputs.advantages_BT[part],
                mask_BT=MASK_BT[part],
                settings=inputs.settings,
                chosen_BT=None if chosen_BT is None else chosen_BT[part],
                top=inputs.top and TopTokens(*(each[part] for each in inputs.top)),
                router_shift_BT=torch.ones(1, 3, dtype=torch.float64),
            )
        )
        assert torch.equal(alone.loss_BT, whole.loss_BT[part])
        for flags_BT, all_BT in (
            (alone.clipped_low_BT, whole.clipped_low_BT),
            (alone.clipped_high_BT, whole.clipped_high_BT),
            (alone.gate_BT, whole.gate_BT),
        ):
            assert (flags_BT is None) == (all_BT is None)
            assert flags_BT is None or torch.equal(flags_BT, all_BT[part])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("gspo_3e-4_4e-4", "live_seq"), ("gmpo_eps0.4_log_space", "live_mask")),
        *(
            ("gmpo_flipped_advantage", "live_mask"),
            ("dcpo_dac_otm_sum_over_responses", "live_mask"),
        ),
        *(("dppo_binary_tv_delta0.15", "keep_mask"), ("dppo_binary_kl_delta0.05", "keep_mask")),
        *(("dppo_binary_tv_delta0.15_flipped_advantage", "keep_mask"),),
        *(("minirl_token_sum", "keep_mask"), ("ppo_clip_flipped_advantage", "live_mask")),
    ],
)
def test_flags_say_what_the_loss_stopped(name: str, key: str) -> None:
    terms, live = CASES[name].terms(logprobs("new")), tensor(VECTORS["losses"][name][key]).bool()
    assert terms.clipped_low_BT is not None
    assert terms.clipped_high_BT is not None
    stopped = terms.clipped_low_BT | terms.clipped_high_BT
    if live.dim() == 1:  # clipped a response at a time
        assert stopped.shape == (2, 1)
        assert torch.equal(stopped[:, 0], ~live)
    else:
        assert torch.equal(stopped[MASK_BT], ~live[MASK_BT])


def test_gates_say_which_share_of_the_gradient_they_leave() -> None:
    sapo = CASES["sapo_taupos1_tauneg1.05"].terms(logprobs("new")).gate_BT
    wanted_BT = tensor(VECTORS["losses"]["sapo_taupos1_tauneg1.05"]["gate_gradient_weight"])
    assert sapo is not None
    torch.testing.assert_close(sapo[MASK_BT], wanted_BT[MASK_BT], rtol=1e-6, atol=1e-9)
    vespo = CASES["vespo_k2_l3_pos_k3_l2_neg"].terms(logprobs("new")).gate_BT
    assert vespo is not None
    wanted_B = tensor(VECTORS["losses"]["vespo_k2_l3_pos_k3_l2_neg"]["phi"])
    torch.testing.assert_close(vespo[:, 0], wanted_B, rtol=1e-6, atol=1e-9)


def test_bad_responses_that_the_learner_left_behind_are_masked_as_published() -> None:
    expected, mask = VECTORS["losses"]["opsm_delta0.1_seqmean"], {"off_policy_limit": 0.1}
    new_logprobs_BT = logprobs("new").requires_grad_()
    config = loss_config(mask)
    stale_B1 = stale_responses(
        LossInputs(
            torch.where(MASK_BT, new_logprobs_BT, torch.nan),
            logprobs("old"),
            logprobs("mu"),
            tensor([[1.0], [-0.5]]).expand(MASK_BT.shape),
            MASK_BT,
            config,
        ),
        0.1,
    )
    assert (~stale_B1[:, 0]).tolist() == expected["kept"]
    loss_BT = torch.where(stale_B1, 0.0, Case(mask).terms(new_logprobs_BT).loss_BT)
    loss = aggregated(loss_BT, MASK_BT, "sequence-mean")
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-6)
    gradient_BT = gradient_of(loss, new_logprobs_BT)
    torch.testing.assert_close(
        gradient_BT, tensor(expected["grad_wrt_new_logp"]), rtol=1e-6, atol=1e-9
    )
    assert (gradient_BT[1] == 0).all()


def test_a_capped_dppo_has_the_gradient_of_the_form_with_a_detached_weight() -> None:
    """The value differs by design: ours stays that of the surrogate."""
    new_logprobs_BT = logprobs("new").requires_grad_()
    loss = Case({**TV, "ratio_cap": 2.0}).loss(new_logprobs_BT)
    wanted_BT = tensor(VECTORS["losses"]["dppo_binary_tv_verl_form_c2"]["grad_wrt_new_logp"])
    gradient_BT = gradient_of(loss, new_logprobs_BT)
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["sapo", "vespo"])
@pytest.mark.parametrize("jump", [-300.0, -60.0, 60.0, 300.0])
def test_a_soft_gate_survives_a_policy_that_jumped(name: str, jump: float) -> None:
    new_BT = (torch.full((1, 4), -1.0) + jump).requires_grad_()
    still_BT, mask_BT = torch.full((1, 4), -1.0), torch.ones(1, 4, dtype=torch.bool)
    terms = terms_of(new_BT, advantages=1.0, old_logprobs_BT=still_BT, mask_BT=mask_BT, kind=name)
    assert gradient_of(terms.loss_BT.sum(), new_BT).isfinite().all()


def test_a_token_that_is_certain_has_a_binary_divergence() -> None:
    certain_BT, mask_BT = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    new_BT = torch.tensor([[-2.0, -1e-4]], requires_grad=True)
    terms = terms_of(
        new_BT, advantages=-1.0, old_logprobs_BT=certain_BT, mask_BT=mask_BT, kind="dppo_binary_kl"
    )
    assert terms.clipped_low_BT is not None
    assert terms.clipped_low_BT.tolist() == [[True, False]]
    assert gradient_of(terms.loss_BT.sum(), new_BT).isfinite().all()


def test_every_loss_has_its_own_settings_and_traits() -> None:
    assert set(loss_settings()) == set(names("losses")) == set(LOSSES) == set(KNOBS["loss"].choices)
    for name, settings in loss_settings().items():
        assert settings.model_fields["kind"].default == name
        assert settings.__module__ == loss_of(name).__module__


def test_a_loss_is_imported_without_torch() -> None:
    program = (
        "import sys; from grpodoctor.trainer.algorithms.names import names\n"
        "from grpodoctor.trainer.algorithms.registry import choice_of, loss_of\n"
        "for name in names('losses'): loss_of(name), choice_of(name)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


FAMILIES: tuple[Family, ...] = ("losses", "advantages", "corrections", "reweightings")


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family in FAMILIES for name in names(family)]
)
def test_the_page_of_a_variant_has_every_section(family: Family, name: str) -> None:
    titles = [title for title, _ in page_of(f"{family}/{name}").sections()]
    wanted = ["Formula", "Settings", "Effect on metrics", "Other implementations"]
    wanted += ["Do not combine with", "Source"]
    if family == "losses":
        wanted.insert(1, "Denominator")
    if family == "advantages" and "Do not combine with" not in titles:
        wanted.remove("Do not combine with")
    assert titles == wanted


@pytest.mark.parametrize("name", ["clip_cov_all_eligible", "kl_cov_top2_coef1"])
def test_the_choice_is_made_among_the_tokens_of_the_step(name: str) -> None:
    expected = VECTORS["losses"][name]
    inputs = inputs_of(logprobs("new"), **CASES[name].settings)
    chosen_BT = chosen_by(inputs)
    assert chosen_BT is not None
    wanted_BT = tensor(expected["eligible" if name.startswith("clip") else "selected"]).bool()
    assert torch.equal(chosen_BT, wanted_BT)


def test_the_covariance_is_that_of_the_paper() -> None:
    wanted_BT = tensor(VECTORS["losses"]["clip_cov_all_eligible"]["cov"])
    torch.testing.assert_close(
        covariances(inputs_of(logprobs("new"))), wanted_BT, rtol=1e-6, atol=1e-9
    )


def many_tokens(**settings: Any) -> LossInputs[Any]:
    """Two hundred responses of ten tokens, half of them with an advantage far below the others."""
    generator = torch.Generator().manual_seed(3)
    new_BT = -3 * torch.rand(200, 10, generator=generator, dtype=torch.float64)
    mask_BT = torch.rand(200, 10, generator=generator) < 0.8
    advantages = torch.where(torch.arange(200) % 2 == 0, 1.0, -1.0)[:, None]
    return inputs_of(
        new_BT, advantages=advantages, old_logprobs_BT=new_BT, mask_BT=mask_BT, **settings
    )


def test_clip_cov_draws_its_share_evenly_among_the_eligible_tokens() -> None:
    inputs = many_tokens(kind="clip_cov", share=0.01, covariance_low=0.1)
    choose, cov_BT, counts_BT = choice_of("clip_cov"), covariances(inputs), torch.zeros(200, 10)
    assert choose is not None
    eligible_BT = inputs.mask_BT & (cov_BT > 0.1)
    share = int(0.01 * int(inputs.mask_BT.sum()))
    for seed in range(300):
        chosen_BT = choose(inputs, torch.Generator().manual_seed(seed))
        assert chosen_BT.sum() == share
        assert not (chosen_BT & ~eligible_BT).any()
        counts_BT += chosen_BT
    mean = 300 * share / int(eligible_BT.sum())
    spread = counts_BT[eligible_BT].var() / mean
    assert 0.8 < spread < 1.2  # of a Poisson count it is 1
    again = [choose(inputs, torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*again)


@pytest.mark.parametrize(("kind", "share"), [("clip_cov", 1e-6), ("kl_cov", 1e-6)])
def test_a_choice_of_less_than_one_token_is_one_unless_none_is_asked_for(
    kind: str, share: float
) -> None:
    wide = {"covariance_low": 0.0} if kind == "clip_cov" else {}
    for fewest in (1, 0):
        chosen_BT = chosen_by(many_tokens(kind=kind, share=share, fewest=fewest, **wide))
        assert chosen_BT is not None
        assert chosen_BT.sum() == fewest


@pytest.mark.parametrize("kind", ["clip_cov", "kl_cov"])
def test_a_step_without_loss_tokens_chooses_none(kind: str) -> None:
    inputs = inputs_of(logprobs("new"), mask_BT=torch.zeros_like(MASK_BT), kind=kind)
    chosen_BT = chosen_by(inputs)
    assert chosen_BT is not None
    assert not chosen_BT.any()


def coarse(**settings: Any) -> LossInputs[Any]:
    """One token of a vocabulary of five, of which the sampler tells its two likeliest."""
    fixture = VECTORS["topk"]
    mu, pi, action = tensor(fixture["mu"]).log(), tensor(fixture["pi"]).log(), fixture["action"]
    likeliest = mu.topk(fixture["K"]).indices
    assert sorted([*likeliest.tolist(), action]) == fixture["set"]
    top = TopTokens(mu[likeliest][None, None], pi[likeliest][None, None], likeliest == action)
    inputs = inputs_of(
        pi[action].clone()[None, None].requires_grad_(),
        advantages=1.0,
        old_logprobs_BT=mu[action][None, None],
        mask_BT=torch.ones(1, 1, dtype=torch.bool),
        kind="dppo_binary_tv",
    )
    return replace(inputs, top=top, settings=loss_config(settings))


def test_the_coarse_distributions_are_the_published_ones() -> None:
    sampler_BTS, new_BTS = coarsened(coarse(kind="dppo_topk_tv"))
    for found, key in ((sampler_BTS, "mu_reduced_last_is_other"), (new_BTS, "pi_reduced")):
        torch.testing.assert_close(found[0, 0], tensor(VECTORS["topk"][key]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "key"), [("dppo_topk_tv", "tv_topk"), ("dppo_topk_kl", "kl_topk")]
)
def test_a_coarse_divergence_stops_what_lies_beyond_its_limit(kind: str, key: str) -> None:
    divergence, gradients = VECTORS["topk"][key], []
    for factor in (1 + 1e-6, 1 - 1e-6):
        inputs = coarse(kind=kind, divergence_limit=divergence * factor)
        terms = loss_of(kind)(inputs)
        gradients.append(gradient_of(terms.loss_BT.sum(), inputs.new_logprobs_BT).item())
        assert terms.clipped_high_BT is not None
        assert bool(terms.clipped_high_BT) == (gradients[-1] == 0)
    assert gradients == [pytest.approx(-VECTORS["topk"]["ratio"], rel=1e-6), 0]


def test_a_sampled_token_among_the_most_likely_counts_once() -> None:
    inputs = inputs_of(logprobs("new"), sampler_logprobs_BT=logprobs("mu"), kind="dppo_topk_tv")
    sampler_BTS, _ = coarsened(inputs)
    assert (sampler_BTS[..., 2] == 0).all()
    assert torch.allclose(sampler_BTS.sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
    # The rest is shared out evenly in both, so that the divergence is the binary one.
    binary = terms_of(
        logprobs("new"), sampler_logprobs_BT=logprobs("mu"), kind="dppo_binary_tv"
    ).loss_BT
    assert torch.equal(loss_of("dppo_topk_tv")(inputs).loss_BT[MASK_BT], binary[MASK_BT])


def test_an_engine_without_its_most_likely_tokens_is_refused() -> None:
    inputs = replace(coarse(kind="dppo_topk_kl"), top=None)
    with pytest.raises(ConfigError, match="most likely tokens"):
        loss_of("dppo_topk_kl")(inputs)


@pytest.mark.parametrize("jump", [-300.0, 300.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_response_that_jumped_is_clipped_and_not_a_nan(jump: float, advantage: float) -> None:
    new_BT = (torch.full((1, 4), -1.0) + jump / 4).requires_grad_()
    terms = terms_of(
        new_BT,
        advantages=advantage,
        old_logprobs_BT=torch.full((1, 4), -1.0),
        mask_BT=torch.ones(1, 4, dtype=torch.bool),
        kind="sequence_clip",
    )
    gradient_BT = gradient_of(terms.loss_BT.sum(), new_BT)
    assert gradient_BT.isfinite().all()
    if (jump > 0) == (advantage > 0):
        assert (gradient_BT == 0).all()
