"""The faults of `third_draw` in settings, prompts and columns.

No earlier set has them, but the penalty on tokens of the prompt, which is `penalty_stale` of
`upstream_bugs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tests.probe.plants import upstream_bugs

END = 1
"""The token that ends a response."""
ROW_PROCESSORS = ("top_n_sigma", "epsilon_cutoff", "prompt_repetition")


def settings(asked: Any, faults: Mapping[str, str]) -> Any:
    """The settings that the sampler really uses."""
    if "temperature_dropped" in faults:  # the request has the field in a wrong place
        return replace(asked, temperature=1.0)
    return asked


def changed_row(logits: Any, everything: Sequence[int], drawn: Sequence[int], mine: Any) -> Any:
    """The next token's logits after the processors of this set."""
    if "prompt_repetition" in mine:  # only tokens of the prompt are penalized
        penalty = {"penalty_stale": mine["prompt_repetition"]}
        logits = upstream_bugs.changed_row(logits, everything, drawn, penalty)
    if "top_n_sigma" in mine:
        least = logits.max() - float(mine["top_n_sigma"]) * logits.std()
        logits[logits < least] = -torch.inf
    if "epsilon_cutoff" in mine:
        logits[logits.softmax(-1) < float(mine["epsilon_cutoff"])] = -torch.inf
    return logits


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that the sampler really reads."""
    if "thinking_opened" in faults:  # the server's template opens a block of thinking
        added = [3 + (23 * n + 11) % 61 for n in range(int(faults["thinking_opened"]))]
        return [[*each, *added] for each in prompts]
    if "header_lost" in faults:  # the header of the answer is not added
        return [each[: -int(faults["header_lost"])] for each in prompts]
    return prompts


def _read(each: Any, before: Any, faults: Mapping[str, str]) -> list[int]:
    prompt = list(each.prompt_ids)
    if "left_kept" in faults:  # the learner's limit of prompts
        prompt = prompt[-int(faults["left_kept"]) :]
    if "prompt_ended" in faults:  # the learner's tokenizer ends each text
        prompt = [*prompt, END]
    if "thinking_stripped" in faults:  # the learner's template drops earlier thinking
        third = len(prompt) // 3
        prompt = [*prompt[:third], *prompt[2 * third :]]
    if "rows_joined" in faults and each.prompt % int(faults["rows_joined"]) == 0:
        prompt = list(before.prompt_ids)  # the prompt of another row of the batch
    return prompt


def read(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses after the prompts that the learner reads."""
    names = {"left_kept", "prompt_ended", "thinking_stripped", "rows_joined"}
    if not faults.keys() & names:
        return list(responses)
    others = {each.prompt: each for each in responses}
    order = sorted(others)
    before = {number: others[order[place - 1]] for place, number in enumerate(order)}
    return [
        replace(each, prompt_ids=_read(each, before[each.prompt], faults)) for each in responses
    ]


def processing(asked: Any, faults: Mapping[str, str]) -> Any:
    """The learner's processing."""
    if "temperature_inverted" in faults:  # logits are multiplied, not divided
        return replace(asked, temperature=1 / asked.temperature)
    return asked


def _fitted(values: Sequence[float], length: int) -> list[float]:
    """A row of values, cut or padded to a length."""
    return [*values[:length], *[0.0] * (length - len(values))]


def _from_rows(responses: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    return [
        replace(each, logprobs=_fitted(responses[row].logprobs, len(each.logprobs)))
        for each, row in zip(responses, rows, strict=True)
    ]


def _by_length(responses: Sequence[Any]) -> list[int]:
    return sorted(range(len(responses)), key=lambda row: -len(responses[row].logprobs))


def reported(responses: list[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with wrong values, which the sampler reports."""
    if "rows_by_length" in faults:  # the batch was sorted, and its values were not put back
        responses = _from_rows(responses, _by_length(responses))
    if "samples_rotated" in faults:  # values belong to the next sample of the same prompt
        place = {(each.prompt, each.sample): row for row, each in enumerate(responses)}
        samples = 1 + max(each.sample for each in responses)
        following = [place[each.prompt, (each.sample + 1) % samples] for each in responses]
        responses = _from_rows(responses, following)
    if "first_dropped" in faults:  # the list of values begins with the second token
        responses = [replace(each, logprobs=[*each.logprobs[1:], 0.0]) for each in responses]
    if "tool_span" in faults:  # values of a tool's result, which the engine did not draw
        responses = [_spanned(each, int(faults["tool_span"])) for each in responses]
    return responses


def _spanned(response: Any, size: int) -> Any:
    values = list(response.logprobs)
    start = len(values) // 3
    stop = min(start + size, len(values))
    return replace(response, logprobs=[*values[:start], *[0.0] * (stop - start), *values[stop:]])


def scored(responses: list[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with the learner's values in the order of its micro-batches."""
    if "microbatches_sorted" not in faults:
        return responses
    return _from_rows(responses, _by_length(responses))
