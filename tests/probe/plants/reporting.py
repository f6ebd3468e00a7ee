"""Faults of the reported log-probabilities: other units, rounding, shifts, shuffling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

Values = Any
_Change = Callable[[Values, str, int], Values]


def _halves(values: Values, far: str, number: int) -> Values:
    return np.roll(values, int(far)) if number % 2 else values


def _third(values: Values, far: str, number: int) -> Values:
    return np.roll(values, int(far)) if number % 3 == 0 else values


def _bfloat16(values: Values, *_: Any) -> Values:
    import torch

    return torch.tensor(values, dtype=torch.float32).bfloat16().double().numpy()


def _block_means(values: Values, size: int) -> Values:
    parts = np.split(values, range(size, len(values), size))
    return np.concatenate([np.full(len(part), part.mean()) for part in parts])


CHANGES: dict[str, _Change] = {
    "log2": lambda x, *_: x / np.log(2),
    "log10": lambda x, *_: x / np.log(10),
    "nll": lambda x, *_: -x,
    "probabilities": lambda x, *_: np.exp(x),
    "rounded": lambda x, digits, _: np.round(x, int(digits)),
    "rounded_probabilities": lambda x, digits, _: np.log(
        np.maximum(np.round(np.exp(x), int(digits)), 10.0 ** -int(digits))
    ),
    "bf16_storage": _bfloat16,
    "fp16_storage": lambda x, *_: np.asarray(x, np.float16).astype(np.float64),
    "averaged": lambda x, *_: np.full(len(x), np.mean(x)),
    "smoothed": lambda x, width, _: np.convolve(
        np.pad(x, (int(width) - 1, 0), mode="edge"), np.ones(int(width)) / int(width), "valid"
    ),
    "averaged_in": lambda x, size, _: _block_means(x, int(size)),
    "cumulative": lambda x, *_: np.cumsum(x),
    "clipped": lambda x, floor, _: np.maximum(x, float(floor)),
    "clipped_above": lambda x, most, _: np.minimum(x, float(most)),
    "shift": lambda x, far, _: np.roll(x, int(far)),
    "shift_half": _halves,
    "shift_third": _third,
    "shuffled": lambda x, _, number: np.random.default_rng(number).permutation(x),
    "reversed": lambda x, *_: x[::-1],
    "halved": lambda x, *_: x / 2,
    "per_length": lambda x, *_: x / len(x),
}
"""By name; each takes the values of a response, the fault's value and the response's number."""


def spoilt(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with changed log-probabilities."""
    changed = list(responses)
    for name, value in faults.items():
        if name in CHANGES:
            changed = [
                replace(
                    each,
                    logprobs=CHANGES[name](np.asarray(each.logprobs), value, number).tolist(),
                )
                for number, each in enumerate(changed)
                if each.logprobs
            ]
        elif name == "responses_shuffled":
            changed = _rotated(changed)
    return changed


def _rotated(responses: list[Any]) -> list[Any]:
    """Each response with the values of the next one of the same length."""
    by_length: dict[int, list[int]] = {}
    for number, each in enumerate(responses):
        by_length.setdefault(len(each.logprobs or ()), []).append(number)
    changed = list(responses)
    for numbers in by_length.values():
        for number, other in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
            changed[number] = replace(responses[number], logprobs=responses[other].logprobs)
    return changed
