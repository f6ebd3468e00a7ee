"""Losses, corrections, penalties and denominators against published formulas."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.aggregation import AGGREGATIONS, StepTokens, token_weights
from grpodoctor.trainer.corrections.base import Corrected, CorrectionInputs
from grpodoctor.trainer.kl.base import KlInputs
from grpodoctor.trainer.loss_settings import SETTINGS, loss_config
from grpodoctor.trainer.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.registry import Family, correction_of, kl_of, loss_of, names
from grpodoctor.trainer.sections import CorrectionConfig
from grpodoctor.trainer.sequence_mask import stale_responses
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


def penalty_of(estimator: str, new_logprobs_BT: Tensor) -> Tensor:
    return kl_of(estimator)(KlInputs(new_logprobs_BT, logprobs("ref"), logprobs("old")))


def terms_of(
    new_logprobs_BT: Tensor,
    *,
    advantages: Any = ((1.0,), (-0.5,)),
    old_logprobs_BT: Tensor | None = None,
    sampler_logprobs_BT: Tensor | None = None,
    mask_BT: Tensor = MASK_BT,
    **settings: Any,
) -> LossTerms:
    """A loss on the core fixture; the sampler is the old policy unless it is given."""
    config = loss_config(settings)
    old_BT = logprobs("old") if old_logprobs_BT is None else old_logprobs_BT
    inputs = LossInputs(
        new_logprobs_BT,
        old_BT,
        old_BT if sampler_logprobs_BT is None else sampler_logprobs_BT,
        tensor(advantages).expand(new_logprobs_BT.shape),
        mask_BT,
        config,
    )
    return loss_of(config.kind)(inputs)


@dataclass
class Case:
    settings: dict[str, Any] = field(default_factory=dict)
    aggregation: str = "token-mean"
    advantages: Any = ((1.0,), (-0.5,))
    sampler: str = "mu"
    correction: str = "none"
    cap: float = 2.0
    floor: float = 0.0

    def terms(self, new_logprobs_BT: Tensor) -> LossTerms:
        return terms_of(
            new_logprobs_BT,
            advantages=self.advantages,
            sampler_logprobs_BT=logprobs(self.sampler),
            aggregation=self.aggregation,
            **self.settings,
        )

    def corrected(self) -> Corrected | None:
        settings = CorrectionConfig(kind=self.correction, cap=self.cap, floor=self.floor)
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
    terms, kind = terms_of(new_logprobs_BT, kind=name), loss_config({"kind": name}).aggregation
    gradient_BT = gradient_of(aggregated(terms.loss_BT, MASK_BT, kind), new_logprobs_BT)
    plain_BT = -tensor([[1.0], [-0.5]]) * new_logprobs_BT
    wanted_BT = gradient_of(aggregated(plain_BT, MASK_BT, kind), new_logprobs_BT)
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", names("losses"))
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -1e30])
def test_what_stands_in_the_padding_reaches_neither_value_nor_gradient(
    name: str, garbage: float
) -> None:
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
    for row, advantage in enumerate((1.0, -0.5)):
        part = slice(row, row + 1)
        alone = terms_of(
            logprobs("new")[part],
            advantages=((advantage,),),
            old_logprobs_BT=logprobs("old")[part],
            sampler_logprobs_BT=logprobs("mu")[part],
            mask_BT=MASK_BT[part],
            kind=name,
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


def test_every_loss_has_settings_of_its_own_and_every_settings_a_loss() -> None:
    assert set(SETTINGS) == set(names("losses"))


FAMILIES: tuple[Family, ...] = ("losses", "advantages", "corrections")


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family in FAMILIES for name in names(family)]
)
def test_the_page_of_a_variant_says_what_one_must_know(family: Family, name: str) -> None:
    page = importlib.import_module(f"grpodoctor.trainer.{family}.{name}").__doc__ or ""
    titles = re.findall(r"^(\w[\w ]*)$", page, re.MULTILINE)
    wanted = ["Formula", "Settings", "Moves", "Elsewhere", "Not with", "Source"]
    if family == "losses":
        wanted.insert(1, "Denominator")
    if family == "advantages":
        wanted.remove("Not with")
    assert titles == wanted
