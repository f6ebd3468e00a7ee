"""Arithmetic on logits: log-probabilities, entropy, ranks, and sampling.

Nothing here holds the logits of more than one chunk of tokens. Shape suffixes: N tokens, V
vocabulary entries, T the contract's temperatures.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from contract import LIKELIEST, TEMPERATURES, Processing
from torch import Tensor

_CHUNK_ENTRIES = {"cpu": 1 << 22, "other": 1 << 26}
"""Logits per chunk: 16 MiB as float32 on a CPU, a few times its cache; 256 MiB elsewhere."""
_MIN_ROWS = 32
"""Rows per chunk: with fewer, reading the output layer's weights dominates."""


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group sequences of similar length into forward passes, longest first.

    Args:
        lengths: of the sequences, in tokens.
        budget: most tokens of a pass, padding included; a longer sequence gets its own pass.

    Returns:
        indices of the sequences of each pass.
    """
    passes: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if room == 0:
            passes.append([])
            room = max(1, budget // max(1, lengths[index]))
        passes[-1].append(index)
        room -= 1
    return passes


def chunk_rows(vocabulary: int, device: torch.device) -> int:
    """Number of tokens whose logits are held at a time."""
    entries = _CHUNK_ENTRIES["cpu" if device.type == "cpu" else "other"]
    return max(_MIN_ROWS, entries // vocabulary)


def log_probabilities(logits_NV: Tensor, processing: Processing) -> Tensor:
    """Float32 log-probabilities of the whole vocabulary, -inf for truncated tokens.

    The order is temperature, min-p, top-k, top-p, each applied to the result of the previous one.
    vLLM has the same order; transformers applies min-p last. A temperature of 0 means greedy
    decoding; its log-probabilities are, as in vLLM, those of the unprocessed logits.
    """
    if processing.temperature == 0:
        return torch.log_softmax(logits_NV, dim=-1, dtype=torch.float32)
    if processing.temperature != 1:
        logits_NV = logits_NV.float() / processing.temperature
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1, dtype=torch.float32)
    if processing.min_p <= 0 and processing.top_k <= 0 and processing.top_p >= 1:
        return logprobs_NV
    return torch.log_softmax(_truncated(logprobs_NV, processing), dim=-1)


def _truncated(logprobs_NV: Tensor, processing: Processing) -> Tensor:
    kept_NV = logprobs_NV
    if processing.min_p > 0:
        floor_N1 = kept_NV.amax(dim=-1, keepdim=True) + torch.tensor(processing.min_p).log()
        kept_NV = kept_NV.masked_fill(kept_NV < floor_N1, -torch.inf)
    if 0 < processing.top_k < kept_NV.shape[-1]:
        last_N1 = kept_NV.topk(processing.top_k, dim=-1).values[:, -1:]
        kept_NV = kept_NV.masked_fill(kept_NV < last_N1, -torch.inf)
    if processing.top_p < 1:
        kept_NV = _nucleus(kept_NV, processing.top_p)
    return kept_NV


def _nucleus(kept_NV: Tensor, top_p: float) -> Tensor:
    """Keep the most likely tokens whose total probability reaches `top_p`; at least one."""
    rising_NV, order_NV = kept_NV.sort(dim=-1)
    dropped_NV = torch.softmax(rising_NV, dim=-1).cumsum(dim=-1) <= 1 - top_p
    dropped_NV[:, -1] = False
    return kept_NV.masked_fill(dropped_NV.scatter(1, order_NV, dropped_NV), -torch.inf)


def readings(
    logits_NV: Tensor, ids_N: Tensor, processing: Processing, want: Sequence[str]
) -> dict[str, Tensor]:
    """`logprobs` and the wanted columns of some tokens, by their names in a shard.

    Args:
        logits_NV: the logits that predict the tokens, in any precision.
        ids_N: the tokens.
        processing: applied before all columns except `at_temperature`, which uses raw logits.
        want: names from the contract's `WANTS`; `experts` needs more than logits and is skipped.
    """
    logprobs_NV = log_probabilities(logits_NV, processing)
    columns = {"logprobs": logprobs_NV.gather(1, ids_N[:, None])[:, 0]}
    if "entropy" in want:
        columns["entropy"] = torch.special.entr(logprobs_NV.exp()).sum(dim=-1)
    if "ranks" in want:
        columns |= _ranks(logprobs_NV, columns["logprobs"]) | _likeliest(logprobs_NV)
    if "temperatures" in want:
        columns["at_temperature"] = _at_temperatures(logits_NV, ids_N)
    return columns


def _ranks(logprobs_NV: Tensor, own_N: Tensor) -> dict[str, Tensor]:
    above_NV = logprobs_NV > own_N[:, None]
    return {
        "rank": above_NV.sum(dim=-1, dtype=torch.int32),
        "mass_above": torch.where(above_NV, logprobs_NV.exp(), 0.0).sum(dim=-1),
        "top_logprob": logprobs_NV.amax(dim=-1),
    }


def _likeliest(logprobs_NV: Tensor) -> dict[str, Tensor]:
    top = logprobs_NV.topk(min(LIKELIEST, logprobs_NV.shape[-1]), dim=-1)
    return {"likeliest": top.indices.int(), "likeliest_logprob": top.values}


def _at_temperatures(logits_NV: Tensor, ids_N: Tensor) -> Tensor:
    """Shape (N, T)."""
    shifted_NV = logits_NV.float() - logits_NV.float().amax(dim=-1, keepdim=True)
    own_N = shifted_NV.gather(1, ids_N[:, None])[:, 0]
    logprobs = [
        own_N / temperature - (shifted_NV / temperature).exp_().sum(dim=-1).log()
        for temperature in TEMPERATURES
    ]
    return torch.stack(logprobs, dim=1)


def sample_tokens(logprobs_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Sample one token per row by inverse transform sampling.

    A row's tokens do not depend on the other rows of its batch, except through the rounding of the
    forward pass.

    Args:
        logprobs_NV: finite or -inf; each row has a finite entry.
        uniform_N: uniform random numbers, float64, in [0, 1).
    """
    cumulated_NV = logprobs_NV.double().exp_().cumsum(dim=-1)
    wanted_N1 = (uniform_N * cumulated_NV[:, -1])[:, None]
    return torch.searchsorted(cumulated_NV, wanted_N1, right=True)[:, 0]
