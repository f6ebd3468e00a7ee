"""Scores from logits, against transformers' own processors and plain arithmetic."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

ROWS, WORDS = 200, 64
PROCESSINGS = {
    "raw": {},
    "temperature": {"temperature": 0.6},
    "top-p": {"top_p": 0.8},
    "top-k": {"top_k": 7},
    "min-p": {"min_p": 0.05},
    "temperature, top-k and top-p": {"temperature": 1.3, "top_k": 20, "top_p": 0.9},
    "temperature, top-k and min-p": {"temperature": 0.7, "top_k": 9, "min_p": 0.02},
}


@pytest.fixture
def logits_NV() -> torch.Tensor:
    return torch.randn(ROWS, WORDS, generator=torch.Generator().manual_seed(0)) * 4 + 20


@pytest.fixture
def ids_N() -> torch.Tensor:
    return torch.randint(WORDS, (ROWS,), generator=torch.Generator().manual_seed(1))


def by_transformers(logits_NV: torch.Tensor, settings: dict[str, float]) -> torch.Tensor:
    steps = LogitsProcessorList()
    kinds = {
        "temperature": TemperatureLogitsWarper,
        "top_k": TopKLogitsWarper,
        "top_p": TopPLogitsWarper,
        "min_p": MinPLogitsWarper,
    }
    for name, kind in kinds.items():
        if name in settings:
            steps.append(kind(settings[name]))
    return torch.log_softmax(steps(torch.zeros(len(logits_NV), 1), logits_NV), dim=-1)


@pytest.mark.parametrize("settings", PROCESSINGS.values(), ids=PROCESSINGS.keys())
def test_processing_equals_transformers(
    logits_NV: torch.Tensor, ids_N: torch.Tensor, settings: dict[str, float]
) -> None:
    from contract import Processing
    from hf.logits import readings

    theirs_NV = by_transformers(logits_NV, settings)
    ours = readings(logits_NV, ids_N, Processing(**settings), ("entropy", "ranks"))
    own_N = theirs_NV.gather(1, ids_N[:, None])[:, 0]
    assert torch.allclose(ours["logprobs"], own_N, atol=1e-6, rtol=0)
    for row, (own, line_V) in enumerate(zip(own_N, theirs_NV, strict=True)):
        support = line_V[line_V.isfinite()]
        assert ours["entropy"][row].item() == pytest.approx(
            -(support.exp() * support).sum().item(), abs=1e-5
        )
        above = line_V[line_V > own]
        assert ours["rank"][row] == len(above)
        assert ours["mass_above"][row].item() == pytest.approx(above.exp().sum().item(), abs=1e-6)
        assert ours["top_logprob"][row].item() == pytest.approx(line_V.max().item(), abs=1e-6)
        ids_M, logprobs_M = ours["likeliest"][row], ours["likeliest_logprob"][row]
        assert torch.equal(line_V[ids_M.long()], line_V.sort(descending=True).values[: len(ids_M)])
        assert torch.allclose(line_V[ids_M.long()], logprobs_M, atol=1e-6, rtol=0)


def test_truncated_tokens_have_no_probability(logits_NV: torch.Tensor) -> None:
    from contract import Processing
    from hf.logits import log_probabilities, readings

    last_N = logits_NV.argmin(dim=1)
    told = readings(logits_NV, last_N, Processing(top_k=5), ("ranks",))
    assert (told["logprobs"] == -math.inf).all()
    assert (told["rank"] == 5).all()
    assert torch.allclose(told["mass_above"], torch.ones(ROWS))
    assert torch.isfinite(log_probabilities(logits_NV, Processing(top_p=1e-6))).sum() == ROWS


def test_min_p_comes_before_top_p_as_in_vllm() -> None:
    from contract import Processing
    from hf.logits import log_probabilities

    logits_1V = torch.tensor([[0.55, 0.30, 0.11, 0.04]]).log()
    # Without the last two, the first has .647 of the rest; with them .55: one word or two.
    kept_1V = log_probabilities(logits_1V, Processing(min_p=0.25, top_p=0.6)).isfinite()
    assert kept_1V.tolist() == [[True, False, False, False]]


def test_greedy_decoding_has_the_log_probabilities_of_the_bare_logits(
    logits_NV: torch.Tensor,
) -> None:
    from contract import Processing
    from hf.logits import log_probabilities

    greedy_NV = log_probabilities(logits_NV, Processing(temperature=0, top_k=3))
    assert torch.equal(greedy_NV, torch.log_softmax(logits_NV, dim=-1))


def test_temperatures_apply_to_raw_logits(logits_NV: torch.Tensor, ids_N: torch.Tensor) -> None:
    from contract import TEMPERATURES, Processing
    from hf.logits import readings

    told = readings(logits_NV, ids_N, Processing(temperature=0.3, top_k=2), ("temperatures",))
    for column, temperature in enumerate(TEMPERATURES):
        wanted_NV = torch.log_softmax(logits_NV.double() / temperature, dim=-1)
        wanted_N = wanted_NV.gather(1, ids_N[:, None])[:, 0].float()
        assert torch.allclose(told["at_temperature"][:, column], wanted_N, atol=1e-5, rtol=1e-6)


def test_narrow_logits_are_read_in_float32(logits_NV: torch.Tensor, ids_N: torch.Tensor) -> None:
    from contract import Processing
    from hf.logits import readings

    narrow_NV = logits_NV.bfloat16()
    told = readings(narrow_NV, ids_N, Processing(), ())["logprobs"]
    wanted_NV = torch.log_softmax(narrow_NV.float(), dim=-1)
    assert told.dtype == torch.float32
    assert torch.equal(told, wanted_NV.gather(1, ids_N[:, None])[:, 0])


def test_samples_follow_the_truncated_distribution() -> None:
    from contract import Processing
    from hf.logits import log_probabilities, sample_tokens

    count = 40_000
    logits_1V = torch.tensor([[1.0, 0.0, 2.0, -3.0, 1.5]])
    logprobs_NV = log_probabilities(logits_1V, Processing(top_k=3)).expand(count, -1)
    uniform_N = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    counts_V = sample_tokens(logprobs_NV, uniform_N).bincount(minlength=5)
    assert torch.allclose(counts_V / count, logprobs_NV[0].exp(), atol=2 / count)
    edges_N = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert sample_tokens(logprobs_NV[:2], edges_N).tolist() == [0, 4]


def test_batches_hold_each_sequence_once_within_the_budget() -> None:
    from hf.logits import batches

    lengths = [5, 90, 17, 1, 60, 5, 5, 300, 33, 2]
    lots = batches(lengths, 100)
    assert sorted(index for lot in lots for index in lot) == list(range(len(lengths)))
    assert lots[0] == [7]  # too long for the budget, so alone
    assert all(len(lot) * max(lengths[each] for each in lot) <= 100 for lot in lots[1:])
    assert batches([], 100) == []
