"""Arithmetic of the programs that hold a model's logits: what is read off them, and in what lots.

Nothing here holds the logits of more than one chunk of tokens. Shape suffixes: N tokens, V words of
the vocabulary, T the contract's temperatures.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from contract import TEMPERATURES, Processing
from torch import Tensor

_CHUNK_ENTRIES = {"cpu": 1 << 22, "other": 1 << 26}
"""Logits at a time: 16 MiB as float32 on a CPU, a few of its caches; 256 MiB elsewhere."""
_FEWEST_ROWS = 32
"""Of a chunk: with fewer, reading the output layer's weights costs more than multiplying them."""


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Which sequences share a forward pass: those of like length, longest first.

    Args:
        lengths: of the sequences, in tokens.
        budget: most tokens of a pass, padding included; a longer sequence has one to itself.
    """
    lots: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        if room == 0:
            lots.append([])
            room = max(1, budget // max(1, lengths[index]))
        lots[-1].append(index)
        room -= 1
    return lots


def chunk_rows(vocabulary: int, device: torch.device) -> int:
    """Tokens whose logits are held at a time."""
    entries = _CHUNK_ENTRIES["cpu" if device.type == "cpu" else "other"]
    return max(_FEWEST_ROWS, entries // vocabulary)


def log_probabilities(logits_NV: Tensor, processing: Processing) -> Tensor:
    """Float32 log-probabilities of all words, -inf outside of what is kept.

    Temperature, then min-p, then top-k, then top-p, each on what the ones before have left: the
    order of vLLM, and of transformers but for min-p, which it applies last. A temperature of 0 is
    greedy decoding, whose log-probabilities are, as vLLM's are, those of the logits as they stand.
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
    """Leave the likeliest words whose probabilities just reach `top_p`; always at least one."""
    rising_NV, order_NV = kept_NV.sort(dim=-1)
    dropped_NV = torch.softmax(rising_NV, dim=-1).cumsum(dim=-1) <= 1 - top_p
    dropped_NV[:, -1] = False
    return kept_NV.masked_fill(dropped_NV.scatter(1, order_NV, dropped_NV), -torch.inf)


def readings(
    logits_NV: Tensor, ids_N: Tensor, processing: Processing, want: Sequence[str]
) -> dict[str, Tensor]:
    """What a task may want of some tokens, `logprobs` included, by the names of a shard.

    Args:
        logits_NV: that predict the tokens, in any precision.
        ids_N: the tokens.
        processing: of all that is read but `at_temperature`, which is of the raw logits.
        want: names of the contract's `WANTS`; those that need more than logits are not given.
    """
    logprobs_NV = log_probabilities(logits_NV, processing)
    found = {"logprobs": logprobs_NV.gather(1, ids_N[:, None])[:, 0]}
    if "entropy" in want:
        found["entropy"] = torch.special.entr(logprobs_NV.exp()).sum(dim=-1)
    if "ranks" in want:
        found |= _ranks(logprobs_NV, found["logprobs"])
    if "temperatures" in want:
        found["at_temperature"] = _at_temperatures(logits_NV, ids_N)
    return found


def _ranks(logprobs_NV: Tensor, own_N: Tensor) -> dict[str, Tensor]:
    above_NV = logprobs_NV > own_N[:, None]
    return {
        "rank": above_NV.sum(dim=-1, dtype=torch.int32),
        "mass_above": torch.where(above_NV, logprobs_NV.exp(), 0.0).sum(dim=-1),
        "top_logprob": logprobs_NV.amax(dim=-1),
    }


def _at_temperatures(logits_NV: Tensor, ids_N: Tensor) -> Tensor:
    """Shape (N, T)."""
    shifted_NV = logits_NV.float() - logits_NV.float().amax(dim=-1, keepdim=True)
    own_N = shifted_NV.gather(1, ids_N[:, None])[:, 0]
    columns = [
        own_N / temperature - (shifted_NV / temperature).exp_().sum(dim=-1).log()
        for temperature in TEMPERATURES
    ]
    return torch.stack(columns, dim=1)


def drawn(logprobs_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """One token a row: the inverse of its distribution function at the row's uniform number.

    So a row's tokens do not depend on its neighbours in a batch, but for the rounding of a forward
    pass.

    Args:
        logprobs_NV: finite or -inf; each row has a word.
        uniform_N: float64, in [0, 1).
    """
    cumulated_NV = logprobs_NV.double().exp_().cumsum(dim=-1)
    wanted_N1 = (uniform_N * cumulated_NV[:, -1])[:, None]
    return torch.searchsorted(cumulated_NV, wanted_N1, right=True)[:, 0]
