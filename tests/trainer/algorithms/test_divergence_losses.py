"""Losses that bound the drift from the sampler, and LUSPO, against independent computations.

The references are written in numpy, token by token, from the formulas. Gradients are compared with
central differences of these references.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs
from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.log_ratios import MAX_LOG_RATIO
from grpodoctor.trainer.algorithms.losses.base import LossTerms
from grpodoctor.trainer.algorithms.names import names
from grpodoctor.trainer.algorithms.registry import correction_of, token_selector_of
from grpodoctor.trainer.config.loss import loss_config
from tests.trainer.algorithms.loss_cases import (
    BUDGET,
    CORE,
    GROUP_IDS_B,
    MASK_BT,
    gradient_of,
    inputs_of,
    logprobs,
    terms_of,
)

ADVANTAGES = (1.0, -0.5)
TOKENS = [(row, column) for row, length in ((0, 3), (1, 2)) for column in range(length)]
Reference = Callable[[np.ndarray], float]


def ours(settings: dict[str, Any]) -> tuple[float, Tensor, LossTerms]:
    """Loss, gradient and terms on the core fixture."""
    new_BT = logprobs("new").requires_grad_()
    terms = terms_of(new_BT, sampler_logprobs_BT=logprobs("mu"), **settings)
    kind = loss_config(settings).aggregation
    weights_BT = token_weights(kind, StepTokens(MASK_BT, GROUP_IDS_B, BUDGET))
    loss = (torch.where(MASK_BT, terms.loss_BT, 0.0) * weights_BT).sum()
    return loss.item(), gradient_of(loss, new_BT), terms


def differences(reference: Reference) -> np.ndarray:
    """Central differences of a reference with respect to the new log-probabilities."""
    new, step = np.log(np.array(CORE["p_new"])), 1e-6
    gradient = np.zeros_like(new)
    for place in TOKENS:
        up, down = new.copy(), new.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (reference(up) - reference(down)) / (2 * step)
    return gradient


def drift_bounded(limit: float, penalty: float, *, symmetric: bool) -> Reference:
    """prime-rl's losses: -r A without tokens beyond the limit, plus a squared log-ratio."""

    def loss(new: np.ndarray) -> float:
        total = 0.0
        for row, column in TOKENS:
            sampler, advantage = CORE["p_mu"][row][column], ADVANTAGES[row]
            moved = math.exp(new[row, column]) - sampler
            away = moved > limit if advantage > 0 else moved < -limit
            masked = abs(moved) > limit if symmetric else away
            log_ratio = new[row, column] - math.log(sampler)
            total += penalty * log_ratio**2 - (0 if masked else math.exp(log_ratio) * advantage)
        return total / len(TOKENS)

    return loss


def second_moment_bounded(limit: float) -> Reference:
    """M2PO: removes the largest squares one by one until the mean of the rest is small enough."""

    def loss(new: np.ndarray) -> float:
        squares: dict[tuple[int, int], float] = {}
        total = 0.0
        for row, column in TOKENS:
            log_ratio = new[row, column] - math.log(CORE["p_mu"][row][column])
            total -= math.exp(log_ratio) * ADVANTAGES[row]
            if log_ratio * ADVANTAGES[row] > 0:
                squares[row, column] = log_ratio**2
        while squares and np.mean(list(squares.values())) > limit:
            worst = max(squares, key=lambda place: squares[place])
            total += new_ratio(new, worst) * ADVANTAGES[worst[0]]
            del squares[worst]
        return total / len(TOKENS)

    return loss


def new_ratio(new: np.ndarray, place: tuple[int, int]) -> float:
    return math.exp(new[place] - math.log(CORE["p_mu"][place[0]][place[1]]))


def luspo(low: float, high: float) -> Reference:
    """GSPO's term of each response times its length, averaged over the responses."""

    def loss(new: np.ndarray) -> float:
        terms = []
        for row, length in ((0, 3), (1, 2)):
            old = np.log(CORE["p_old"][row][:length])
            ratio = math.exp(float(np.mean(new[row, :length] - old)))
            bounded = min(max(ratio, 1 - low), 1 + high)
            advantage = ADVANTAGES[row]
            terms.append(length * max(-ratio * advantage, -bounded * advantage))
        return float(np.mean(terms))

    return loss


PRIME_RL = {"kind": "dppo_binary_tv", "divergence_limit": 0.2, "drift_penalty": 1e-3}
CASES: dict[str, tuple[dict[str, Any], Reference, float]] = {
    # By hand: tokens 3 and 4 are masked, (-1.1 - 2.75 + 0.5 * 1.25 + 0.001 * 3.84363) / 5.
    "prime_rl": (PRIME_RL, drift_bounded(0.2, 1e-3, symmetric=False), -0.644231274),
    # Tokens 2, 3 and 4 are masked: (-1.1 + 0.5 * 1.25 + 0.001 * 3.84363) / 5.
    "ipo": ({"kind": "ipo"}, drift_bounded(0.1, 1e-3, symmetric=True), -0.094231274),
    # Squares of the tokens that move away: 0.009, 1.023, 1.922 and 0.840. Only the first stays.
    "m2po": ({"kind": "m2po"}, second_moment_bounded(0.04), -0.095),
    # Means of the smallest one, two, three and four squares: 0.009, 0.424, 0.624, 0.948.
    "m2po_wider": (
        {"kind": "m2po", "second_moment_limit": 0.7},
        second_moment_bounded(0.7),
        -0.605,
    ),
    # The first response is clipped: (-3 * 1.0025 + 2 * 0.5 * 1.5) / 2.
    "luspo": ({"kind": "luspo"}, luspo(2e-3, 2.5e-3), -0.75375),
    # (-3 s + 2 * 0.5 * 1.5) / 2 with s = (1.1 * 2.2 * 2 / 3) ** (1 / 3).
    "luspo_unclipped": (
        {"kind": "luspo", "clip_low": 0.5, "clip_high": 0.5},
        luspo(0.5, 0.5),
        -1.009270531,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_match_an_independent_computation(name: str) -> None:
    settings, reference, by_hand = CASES[name]
    loss, gradient_BT, _ = ours(settings)
    assert loss == pytest.approx(by_hand, rel=1e-6)
    assert loss == pytest.approx(reference(np.log(np.array(CORE["p_new"]))), rel=1e-12)
    expected = differences(reference)
    np.testing.assert_allclose(gradient_BT.numpy(), expected, rtol=1e-6, atol=1e-9)
    # A masked token without a penalty has a gradient of exactly zero.
    assert (gradient_BT.numpy()[np.abs(expected) < 1e-12] == 0).all()


def test_flags_report_what_each_loss_masks() -> None:
    rows = {"prime_rl": ([2], [0]), "ipo": ([1, 2], [0]), "m2po": ([1, 2], [0])}
    for name, (first, second) in rows.items():
        _, _, terms = ours(CASES[name][0])
        assert terms.clipped_low_BT is not None
        assert terms.clipped_high_BT is not None
        assert terms.clipped_high_BT[0].nonzero().flatten().tolist() == first
        assert terms.clipped_low_BT[1].nonzero().flatten().tolist() == second


def test_ipo_masks_a_token_that_moves_back_and_dppo_does_not() -> None:
    sampler_BT = torch.tensor([[0.5]]).double().log()
    mask_BT = torch.ones(1, 1, dtype=torch.bool)
    for kind, masked in (("ipo", True), ("dppo_binary_tv", False)):
        new_BT = torch.tensor([[0.3]]).double().log().requires_grad_()
        terms = terms_of(
            new_BT, advantages=1.0, old_logprobs_BT=sampler_BT, mask_BT=mask_BT, kind=kind
        )
        gradient_BT = gradient_of(terms.loss_BT.sum(), new_BT)
        penalty = 2 * 1e-3 * math.log(0.6)
        assert gradient_BT.item() == pytest.approx(penalty if masked else -0.6)


def test_m2po_masks_no_token_below_its_limit_and_the_fewest_above_it() -> None:
    generator = torch.Generator().manual_seed(0)
    sampler_BT = -3 * torch.rand(40, 10, generator=generator, dtype=torch.float64)
    new_BT = sampler_BT + 0.4 * torch.randn(40, 10, generator=generator, dtype=torch.float64)
    advantages = torch.where(torch.arange(40) % 2 == 0, 1.0, -1.0)[:, None]
    mask_BT = torch.rand(40, 10, generator=generator) < 0.8
    shared = {"advantages": advantages, "old_logprobs_BT": sampler_BT, "mask_BT": mask_BT}
    log_ratio_BT = new_BT - sampler_BT
    away_BT = (log_ratio_BT * advantages > 0) & mask_BT
    select_tokens = token_selector_of("m2po")
    assert select_tokens is not None
    for limit in (0.02, 0.1, 10.0):
        inputs = inputs_of(new_BT, kind="m2po", second_moment_limit=limit, **shared)
        chosen_BT = select_tokens(inputs, torch.Generator())
        assert not (chosen_BT & ~away_BT).any()
        kept_N = log_ratio_BT[away_BT & ~chosen_BT].square()
        assert kept_N.mean() <= limit
        assert bool(chosen_BT.any()) == (limit < 10)
        if chosen_BT.any():  # unmasking the mildest masked token would exceed the limit
            mildest = log_ratio_BT[chosen_BT].square().min()
            assert mildest >= kept_N.max()
            assert torch.cat([kept_N, mildest[None]]).mean() > limit


@pytest.mark.parametrize("name", names("losses"))
@pytest.mark.parametrize("blocked", [("new",), ("old", "mu"), ("new", "old", "mu")])
def test_a_blocked_token_gives_no_nan(name: str, blocked: tuple[str, ...]) -> None:
    """A sampler with top-p, or a constrained decoder, gives some tokens a probability of zero."""
    given = {policy: logprobs(policy) for policy in ("new", "old", "mu")}
    for policy in blocked:
        given[policy][0, 1] = given[policy][1, 0] = -math.inf
    new_BT = given["new"].requires_grad_()
    terms = terms_of(
        new_BT, old_logprobs_BT=given["old"], sampler_logprobs_BT=given["mu"], kind=name
    )
    loss_BT = torch.where(MASK_BT, terms.loss_BT, 0.0)
    assert not loss_BT.isnan().any()
    assert gradient_of(loss_BT.sum(), new_BT).isfinite().all()


@pytest.mark.parametrize(("cap", "kept"), [(2.0, [False, False]), (2.6, [False, True])])
def test_the_error_mask_drops_responses_with_a_large_mean_error(
    cap: float, kept: list[bool]
) -> None:
    """By hand: w is 1, 1.25 and 6 in the first response, 8 / 9 and 1 / 4 in the second."""
    settings = CorrectionConfig(kind="error_mask", cap=cap)
    inputs = CorrectionInputs(logprobs("old"), logprobs("mu"), MASK_BT, settings)
    corrected = correction_of("error_mask")(inputs)
    errors = [(1 + 1.25 + 6) / 3, (9 / 8 + 4) / 2]
    assert [error <= cap for error in errors] == kept
    assert corrected is not None
    expected_BT = torch.tensor(kept)[:, None].expand(MASK_BT.shape)
    assert torch.equal(corrected.weights_BT, expected_BT.double())
    assert torch.equal(corrected.capped_BT, ~expected_BT & MASK_BT)


def test_log_ratios_are_bounded_and_keep_small_ratios_as_they_are() -> None:
    old_BT = torch.tensor([[-30.0, -1.0, -1.0]], dtype=torch.float64)
    new_BT = torch.tensor([[-1.0, -2.0, -90.0]], dtype=torch.float64).requires_grad_()
    mask_BT = torch.ones(1, 3, dtype=torch.bool)
    inputs = inputs_of(
        new_BT, advantages=1.0, old_logprobs_BT=old_BT, mask_BT=mask_BT, kind="ppo_clip"
    )
    log_ratio_BT = inputs.log_ratio()
    assert log_ratio_BT.tolist() == [[MAX_LOG_RATIO, -1.0, -MAX_LOG_RATIO]]
    assert gradient_of(log_ratio_BT.sum(), new_BT).tolist() == [[0.0, 1.0, 0.0]]
