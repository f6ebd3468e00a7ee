"""Losses, corrections and penalties against published values and gradients."""

from __future__ import annotations

import pytest
import torch

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
)
from grpodoctor.trainer.algorithms.sequence_mask import stale_responses
from grpodoctor.trainer.config.loss import loss_config
from tests.trainer.algorithms.loss_cases import (
    CASES,
    MASK_BT,
    TV,
    VECTORS,
    Case,
    aggregated,
    gradient_of,
    logprobs,
    penalty_of,
    tensor,
)


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_match_the_published_vectors(name: str) -> None:
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
def test_correction_weights_match_the_published_vectors(name: str) -> None:
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


def test_clip_flags_mark_tokens_without_gradient() -> None:
    terms = Case().terms(logprobs("new"))
    expected = VECTORS["losses"]["ppo_clip_token_mean"]
    assert terms.clipped_low_BT is not None
    assert terms.clipped_high_BT is not None
    assert terms.clipped_low_BT.sum() / MASK_BT.sum() == pytest.approx(expected["clipfrac_low"])
    assert terms.clipped_high_BT.sum() / MASK_BT.sum() == pytest.approx(expected["clipfrac_high"])
    assert terms.clipped_high_BT[0, 1]
    assert terms.clipped_low_BT[1, 0]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_penalties_match_the_published_vectors(estimator: str) -> None:
    expected = VECTORS["losses"][f"kl_loss_{estimator}_token_mean"]
    new_logprobs_BT = logprobs("new").requires_grad_()
    loss = penalty_of(estimator, new_logprobs_BT)[MASK_BT].mean()
    (gradient_BT,) = torch.autograd.grad(loss, new_logprobs_BT)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-6)
    torch.testing.assert_close(
        gradient_BT, tensor(expected["grad_wrt_new_logp"]), rtol=1e-6, atol=1e-9
    )


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
def test_flags_mark_the_tokens_that_the_loss_masks(name: str, key: str) -> None:
    terms, live = CASES[name].terms(logprobs("new")), tensor(VECTORS["losses"][name][key]).bool()
    assert terms.clipped_low_BT is not None
    assert terms.clipped_high_BT is not None
    stopped = terms.clipped_low_BT | terms.clipped_high_BT
    if live.dim() == 1:  # clipped a response at a time
        assert stopped.shape == (2, 1)
        assert torch.equal(stopped[:, 0], ~live)
    else:
        assert torch.equal(stopped[MASK_BT], ~live[MASK_BT])


def test_gates_report_the_fraction_of_the_gradient() -> None:
    sapo = CASES["sapo_taupos1_tauneg1.05"].terms(logprobs("new")).gate_BT
    wanted_BT = tensor(VECTORS["losses"]["sapo_taupos1_tauneg1.05"]["gate_gradient_weight"])
    assert sapo is not None
    torch.testing.assert_close(sapo[MASK_BT], wanted_BT[MASK_BT], rtol=1e-6, atol=1e-9)
    vespo = CASES["vespo_k2_l3_pos_k3_l2_neg"].terms(logprobs("new")).gate_BT
    assert vespo is not None
    wanted_B = tensor(VECTORS["losses"]["vespo_k2_l3_pos_k3_l2_neg"]["phi"])
    torch.testing.assert_close(vespo[:, 0], wanted_B, rtol=1e-6, atol=1e-9)


def test_the_off_policy_sequence_mask_matches_the_published_vector() -> None:
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
    """The value differs by design: ours is the value of the surrogate."""
    new_logprobs_BT = logprobs("new").requires_grad_()
    loss = Case({**TV, "ratio_cap": 2.0}).loss(new_logprobs_BT)
    wanted_BT = tensor(VECTORS["losses"]["dppo_binary_tv_verl_form_c2"]["grad_wrt_new_logp"])
    gradient_BT = gradient_of(loss, new_logprobs_BT)
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-9)
