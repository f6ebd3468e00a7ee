"""Properties that every loss has, whatever its formula."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    TopTokens,
)
from grpodoctor.trainer.algorithms.names import Family, names
from grpodoctor.trainer.algorithms.registry import loss_of
from grpodoctor.trainer.config.loss import loss_config, loss_settings
from grpodoctor.trainer.recipes import page_of
from grpodoctor.vocabulary.knobs import KNOBS
from grpodoctor.vocabulary.losses import LOSSES
from tests.trainer.algorithms.loss_cases import (
    MASK_BT,
    TOKEN_SUM,
    aggregated,
    chosen_by,
    gradient_of,
    inputs_of,
    logprobs,
    tensor,
    terms_of,
)


@pytest.mark.parametrize(
    ("knob", "family"),
    [("loss", "losses"), ("advantage", "advantages"), ("correction", "corrections")],
)
def test_every_choice_of_a_knob_is_a_registered_variant(knob: str, family: Any) -> None:
    assert set(KNOBS[knob].choices) == set(names(family))


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
def test_a_response_has_the_same_loss_alone_and_in_a_batch(name: str) -> None:
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


@pytest.mark.parametrize("name", ["sapo", "vespo"])
@pytest.mark.parametrize("jump", [-300.0, -60.0, 60.0, 300.0])
def test_a_soft_gate_stays_finite_at_extreme_ratios(name: str, jump: float) -> None:
    new_BT = (torch.full((1, 4), -1.0) + jump).requires_grad_()
    still_BT, mask_BT = torch.full((1, 4), -1.0), torch.ones(1, 4, dtype=torch.bool)
    terms = terms_of(new_BT, advantages=1.0, old_logprobs_BT=still_BT, mask_BT=mask_BT, kind=name)
    assert gradient_of(terms.loss_BT.sum(), new_BT).isfinite().all()


def test_a_token_of_probability_one_has_a_finite_binary_divergence() -> None:
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
        "from grpodoctor.trainer.algorithms.registry import token_selector_of, loss_of\n"
        "for name in names('losses'): loss_of(name), token_selector_of(name)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


FAMILIES: tuple[Family, ...] = ("losses", "advantages", "corrections", "reweightings")


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family in FAMILIES for name in names(family)]
)
def test_every_variant_page_has_all_sections(family: Family, name: str) -> None:
    titles = [title for title, _ in page_of(f"{family}/{name}").sections()]
    wanted = ["Formula", "Settings", "Effect on metrics", "Other implementations"]
    wanted += ["Do not combine with", "Source"]
    if family == "losses":
        wanted.insert(1, "Denominator")
    if family == "advantages" and "Do not combine with" not in titles:
        wanted.remove("Do not combine with")
    assert titles == wanted


@pytest.mark.parametrize("jump", [-300.0, 300.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_an_extreme_response_ratio_is_clipped_and_finite(jump: float, advantage: float) -> None:
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
