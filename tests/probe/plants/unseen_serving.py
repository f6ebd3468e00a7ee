"""Faults of serving and of the training batch, written before any look at attribution's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

PAD = 0


def drawn(engine: Any, prompts: Any, sampling: Any, want: Any, faults: Mapping[str, str]) -> Any:
    """The responses; every fourth is served by a replica with another temperature."""
    responses = engine.sample(prompts, sampling, want)
    if "every_fourth" not in faults:
        return responses
    other = replace(sampling, temperature=sampling.temperature * float(faults["every_fourth"]))
    others = engine.sample(prompts, other, want)
    return [others[n] if n % 4 == 3 else response for n, response in enumerate(responses)]


def reported(responses: Sequence[Any], raw: Any, faults: Mapping[str, str]) -> list[Any]:
    """The responses with wrong log-probabilities of some tokens or responses.

    Args:
        responses: as they were drawn.
        raw: scores responses at temperature 1.
        faults: by name.
    """
    changed = list(responses)
    if "first_raw" in faults:
        ones = raw(changed)
        changed = [
            replace(each, logprobs=[one.logprobs[0], *each.logprobs[1:]])
            for each, one in zip(changed, ones, strict=True)
        ]
    if "end_zero" in faults:
        changed = [
            replace(each, logprobs=[*each.logprobs[:-1], 0.0]) if each.ended else each
            for each in changed
        ]
    return _swapped(changed) if "sixth_swapped" in faults else changed


def _swapped(responses: list[Any]) -> list[Any]:
    """Every sixth response has the values of the next one of the same length."""
    by_length: dict[int, list[int]] = {}
    for number, each in enumerate(responses):
        by_length.setdefault(len(each.logprobs), []).append(number)
    changed = list(responses)
    for numbers in by_length.values():
        for place, number in enumerate(numbers):
            if place % 6 == 0 and len(numbers) > 1:
                other = numbers[(place + 1) % len(numbers)]
                changed[number] = replace(responses[number], logprobs=responses[other].logprobs)
    return changed


def read(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses as a learner's batch contains them."""
    if "packed" in faults:  # two sequences share a row without a mask between them
        return [
            replace(each, prompt_ids=[*_tokens(responses[n - 1]), *each.prompt_ids])
            if n % 2
            else each
            for n, each in enumerate(responses)
        ]
    if "padded_batch" in faults:  # padding on the left is attended
        width = max(len(each.prompt_ids) for each in responses)
        return [
            replace(each, prompt_ids=[PAD] * (width - len(each.prompt_ids)) + [*each.prompt_ids])
            for each in responses
        ]
    return list(responses)


def _tokens(response: Any) -> list[int]:
    return [*response.prompt_ids, *response.response_ids]


def processing(asked: Any, faults: Mapping[str, str]) -> Any:
    """The learner's processing; the temperature is applied in the model and in the loss."""
    if "temperature_twice" in faults:
        return replace(asked, temperature=asked.temperature**2)
    return asked
