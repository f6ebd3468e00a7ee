"""Scores from hidden states agree with those from the logits of the whole batch."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import DataError
from grpodoctor.measure.hidden import Head, TokenScores, score_hidden, tiles
from grpodoctor.measure.hidden import head as head_module
from grpodoctor.measure.hidden import score as score_module

HEADS = {
    "plain": {},
    "bias": {"bias": True},
    "scale": {"scale": 0.25},
    "softcap": {"softcap": 3.0},
    "everything": {"bias": True, "scale": 2.0, "softcap": 5.0},
}
TOKENS, HIDDEN, VOCABULARY = 37, 16, 300


class Batch(NamedTuple):
    hidden_ND: Tensor
    head: Head
    ids_N: Tensor

    def leaves(self) -> list[Tensor]:
        """The tensors with a gradient."""
        tensors = (self.hidden_ND, self.head.weight_VD, self.head.bias_V)
        return [tensor for tensor in tensors if tensor is not None]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tiles, chunks and blocks; none divides the batch evenly."""
    monkeypatch.setitem(score_module._CHUNK_TOKENS, "cpu", 16)
    monkeypatch.setitem(score_module._TILE_ELEMENTS, "cpu", 16 * 64)
    monkeypatch.setattr(score_module, "_FEWEST_COLUMNS", 1)
    monkeypatch.setitem(tiles._BLOCK_ELEMENTS, "cpu", 5 * 64)


def make_batch(
    *,
    bias: bool = False,
    scale: float = 1.0,
    softcap: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        values = torch.randn(*shape, generator=generator).to(dtype)
        return values.requires_grad_()

    hidden_ND, weight_VD = normal(TOKENS, HIDDEN), normal(VOCABULARY, HIDDEN)
    head = Head(weight_VD, normal(VOCABULARY) if bias else None, scale, softcap)
    return Batch(hidden_ND, head, torch.randint(VOCABULARY, (TOKENS,), generator=generator))


def expected(batch: Batch, temperature: float) -> TokenScores:
    """In float64, from all logits at once."""
    head = batch.head
    logits_NV = batch.hidden_ND.double() @ head.weight_VD.double().t()
    if head.bias_V is not None:
        logits_NV = logits_NV + head.bias_V.double()
    logits_NV = logits_NV * head.scale
    if head.softcap is not None:
        logits_NV = head.softcap * torch.tanh(logits_NV / head.softcap)
    logprobs_NV = torch.log_softmax(logits_NV / temperature, dim=-1)
    entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
    return TokenScores(logprobs_NV.gather(1, batch.ids_N[:, None])[:, 0], entropy_N)


def gradients(scores: TokenScores, batch: Batch) -> list[Tensor]:
    """Of a sum that weighs each token and both scores differently."""
    weights_N = torch.linspace(-1.0, 2.0, len(batch.ids_N), dtype=scores.logprobs_N.dtype)
    loss = (weights_N * scores.logprobs_N).sum() + (weights_N.flip(0) * scores.entropy_N).sum()
    return list(torch.autograd.grad(loss, batch.leaves()))


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("kind", HEADS)
def test_scores_are_those_of_the_logits(kind: str, temperature: float) -> None:
    batch = make_batch(**HEADS[kind])
    scores = score_hidden(*batch, temperature)
    for own_N, right_N in zip(scores, expected(batch, temperature), strict=True):
        torch.testing.assert_close(own_N.double(), right_N, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("kind", HEADS)
def test_gradients_are_those_of_the_logits(kind: str, temperature: float) -> None:
    batch = make_batch(**HEADS[kind])
    own = gradients(score_hidden(*batch, temperature), batch)
    right = gradients(expected(batch, temperature), batch)
    for own_gradient, right_gradient in zip(own, right, strict=True):
        torch.testing.assert_close(own_gradient, right_gradient, atol=1e-4, rtol=1e-4)


def test_each_score_has_a_gradient_alone() -> None:
    batch = make_batch()
    for field in TokenScores._fields:
        own = torch.autograd.grad(getattr(score_hidden(*batch), field).sum(), batch.leaves())
        right = torch.autograd.grad(getattr(expected(batch, 1.0), field).sum(), batch.leaves())
        for own_gradient, right_gradient in zip(own, right, strict=True):
            torch.testing.assert_close(own_gradient, right_gradient, atol=1e-4, rtol=1e-4)


def test_only_needed_gradients_are_computed() -> None:
    batch = make_batch()
    batch.head.weight_VD.requires_grad_(False)
    score_hidden(*batch).logprobs_N.sum().backward()
    assert batch.hidden_ND.grad is not None
    assert batch.head.weight_VD.grad is None


@pytest.mark.parametrize("kind", HEADS)
def test_half_precision_products_are_summed_in_float32(kind: str) -> None:
    batch = make_batch(**HEADS[kind], dtype=torch.bfloat16)
    scores = score_hidden(*batch)
    # A product has eight bits: its error is 2^-9 of a logit of up to about 15.
    for own_N, right_N in zip(scores, expected(batch, 1.0), strict=True):
        assert own_N.dtype == torch.float32
        torch.testing.assert_close(own_N.double(), right_N, atol=0.15, rtol=0.05)
    assert [grad.dtype for grad in gradients(scores, batch)] == [torch.bfloat16] * len(
        batch.leaves()
    )


def test_autocast_computes_in_its_dtype() -> None:
    batch = make_batch()
    with torch.autocast("cpu", torch.bfloat16):
        scores = score_hidden(*batch)
    half = Batch(batch.hidden_ND.bfloat16(), Head(batch.head.weight_VD.bfloat16()), batch.ids_N)
    assert torch.equal(scores.logprobs_N, score_hidden(*half).logprobs_N)
    assert gradients(scores, batch)[0].dtype == torch.float32


def test_large_logits_stay_finite() -> None:
    hidden_ND = torch.tensor([[1000.0], [-1000.0]])
    head = Head(torch.linspace(-1.0, 1.0, VOCABULARY)[:, None])
    scores = score_hidden(hidden_ND, head, torch.tensor([VOCABULARY - 1, VOCABULARY - 1]))
    logits_NV = (hidden_ND @ head.weight_VD.t()).double()
    right_N = torch.log_softmax(logits_NV, dim=-1)[:, -1]
    torch.testing.assert_close(scores.logprobs_N.double(), right_N, atol=1e-3, rtol=1e-5)
    assert bool((scores.entropy_N >= 0).all())


def test_an_entry_that_a_bias_excludes_has_no_probability() -> None:
    batch = make_batch(bias=True)
    bias_V = batch.head.bias_V
    assert bias_V is not None
    excluded_V = torch.where(torch.arange(VOCABULARY) % 3 == 0, -torch.inf, bias_V.detach())
    batch = batch._replace(
        head=Head(batch.head.weight_VD, excluded_V), ids_N=torch.full_like(batch.ids_N, 1)
    )
    scores, right = (
        score_hidden(*batch),
        torch.log_softmax(batch.hidden_ND @ batch.head.weight_VD.t() + excluded_V, dim=-1),
    )
    torch.testing.assert_close(scores.logprobs_N, right[:, 1], atol=2e-5, rtol=1e-5)
    assert bool(scores.entropy_N.isfinite().all())
    assert bool(torch.autograd.grad(scores.logprobs_N.sum(), batch.hidden_ND)[0].isfinite().all())


def test_a_hidden_state_that_is_not_finite_spoils_only_its_own_scores() -> None:
    batch = make_batch()
    hidden_ND = batch.hidden_ND.detach().clone()
    hidden_ND[3, 2] = torch.nan
    scores = score_hidden(hidden_ND, batch.head, batch.ids_N)
    assert scores.logprobs_N.isnan().nonzero().flatten().tolist() == [3]


def test_no_tokens_give_no_scores() -> None:
    batch = make_batch()
    scores = score_hidden(batch.hidden_ND[:0], batch.head, batch.ids_N[:0])
    assert [len(values) for values in scores] == [0, 0]


@pytest.mark.parametrize("wrong", [-100, VOCABULARY])
def test_an_id_outside_the_vocabulary_is_named(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_batch()
    ids_N = batch.ids_N.clone()
    ids_N[4] = wrong
    with pytest.raises(DataError, match=rf"id {wrong} is outside the vocabulary of 300"):
        score_hidden(batch.hidden_ND, batch.head, ids_N)
    monkeypatch.setattr(score_module, "_check", lambda *_: None)  # as on an accelerator
    scores = score_hidden(batch.hidden_ND.detach(), batch.head, ids_N)
    assert scores.logprobs_N.isnan().nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("kind", HEADS)
def test_single_logits_are_those_of_all(
    kind: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "_GATHERED_ELEMENTS", 5 * 4 * HIDDEN)  # several blocks
    batch = make_batch(**HEADS[kind])
    ids_NK = torch.randint(VOCABULARY, (TOKENS, 4), generator=torch.Generator().manual_seed(2))
    picked_NK = batch.head.logits_at(batch.hidden_ND, ids_NK, temperature)
    logprobs_NK = torch.stack(
        [expected(batch._replace(ids_N=ids_N), temperature).logprobs_N for ids_N in ids_NK.T], dim=1
    )
    gaps_NK = logprobs_NK - logprobs_NK[:, :1]
    torch.testing.assert_close(
        (picked_NK - picked_NK[:, :1]).double(), gaps_NK, atol=2e-5, rtol=1e-5
    )
    assert not picked_NK.requires_grad
    assert batch.head.logits_at(batch.hidden_ND[:0], ids_NK[:0]).shape == (0, 4)


def test_shapes_that_do_not_fit_are_named() -> None:
    batch = make_batch()
    with pytest.raises(DataError, match=r"\(37, 15\) do not fit a head of shape \(300, 16\)"):
        score_hidden(batch.hidden_ND[:, 1:], batch.head, batch.ids_N)
    with pytest.raises(DataError, match="ids of shape"):
        score_hidden(batch.hidden_ND, batch.head, batch.ids_N[1:])
    with pytest.raises(DataError, match="temperature 0"):
        score_hidden(*batch, 0.0)
    with pytest.raises(DataError, match="the head's bias has shape"):
        Head(batch.head.weight_VD, torch.zeros(3))
    with pytest.raises(DataError, match="softcap"):
        Head(batch.head.weight_VD, softcap=0.0)
    with pytest.raises(DataError, match=r"weight has shape \(300,\)"):
        Head(torch.zeros(300))
