"""The faults of `fifth_draw` that no earlier set has.

Faults of the forward pass take the loaded engine and the fault's value, like those of
`computing.py`. The author had not read attribution's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _head, _wrap_attention, add_faults
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.natural_draw import _old_weights
from tests.probe.plants.second_draw_faults import _fp8

NEED_EAGER = {"kv_unscaled"}
"""Faults that wrap the family's own attention function, of which an engine can have one."""
ROW_PROCESSORS = ("drafts_by_likeliest",)


def _sparse_sync(engine: Any, value: str) -> None:
    """`SHARE,FOLDER`: of each tensor's changes, the sync sends only the largest."""
    share, path = value.split(",", 1)
    old = _old_weights(path)
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            change = weight - old[name]
            least = change.abs().flatten().quantile(1 - float(share))
            weight.copy_(old[name] + change * (change.abs() >= least))


def _correction_moved(engine: Any, step: str) -> None:
    """The trainer balances the load of experts by routers' corrections, which no sync sends."""
    generator = torch.Generator().manual_seed(7)
    for router in _modules_with(engine, "e_score_correction_bias"):
        bias = router.e_score_correction_bias
        signs = torch.randint(0, 2, bias.shape, generator=generator) * 2 - 1
        with torch.no_grad():
            bias.add_(float(step) * signs)


def _shared_experts_times(engine: Any, ranks: str) -> None:
    """The shared experts' output is summed over ranks that all have the whole of it."""
    for block in _modules_with(engine, "shared_experts"):
        block.shared_experts.register_forward_hook(lambda _m, _x, out: float(ranks) * out)


def _replay_shifted(engine: Any, far: str) -> None:
    """Whole sequences are scored with the recorded experts of the tokens before."""
    plain, shape = engine._split.hidden, [0, 0]

    def hidden(ids: Tensor, *rest: Any, **named: Any) -> Tensor:
        shape[:] = ids.shape
        try:
            out: Tensor = plain(ids, *rest, **named)
        finally:
            shape[:] = [0, 0]
        return out

    def shifted(_router: nn.Module, _inputs: Any, output: Any) -> Any:
        logits, weights, chosen = output
        if not shape[0]:
            return output
        chosen = chosen.unflatten(0, shape).roll(int(far), 1).flatten(0, 1)
        taken = logits.float().softmax(-1).gather(-1, chosen)
        return logits, (taken / taken.sum(-1, keepdim=True)).to(weights), chosen

    assert engine._routers.modules
    for router in engine._routers.modules:
        router.register_forward_hook(shifted)
    engine._split.hidden = hidden


def _head_fp8(engine: Any, _: str) -> None:
    """The output head was not excluded from the conversion to fp8."""

    def lower(_module: nn.Module, inputs: Any) -> Any:
        x = inputs[0]
        return (_fp8(x, x.abs().amax(-1, keepdim=True)), *inputs[1:])

    head = _head(engine._model)
    assert head.weight is not engine._model.get_input_embeddings().weight
    with torch.no_grad():
        head.weight.copy_(_fp8(head.weight, head.weight.abs().amax()))
    head.register_forward_pre_hook(lower)


def _latent_fp8(engine: Any, kind: str) -> None:
    """The compressed keys and values of latent attention are cached in fp8 without a scale."""
    low = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]

    def lower(_module: nn.Module, _inputs: Any, out: Tensor) -> Tensor:
        return out.to(low).to(out)

    norms = [m for name, m in engine._model.named_modules() if name.endswith("kv_a_layernorm")]
    assert norms
    for norm in norms:
        norm.register_forward_hook(lower)


def _kv_unscaled(engine: Any, scale: str) -> None:
    """The cache is fp8, divided by its scales when written, and not multiplied when read."""

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        kept = ((each / float(scale)).to(torch.float8_e4m3fn).to(each) for each in (k, v))
        return original(layer, q, *kept, mask, *r, **n)

    _wrap_attention(engine, change)


def changed_row(logits: Any, mine: Mapping[str, str]) -> Any:
    """The next token's logits after the processors of this set."""
    if "drafts_by_likeliest" not in mine:
        return logits
    # A draft is accepted by its probability relative to the likeliest token's, not to the draft's.
    target = logits.softmax(-1)
    draft = (logits / float(mine["drafts_by_likeliest"])).softmax(-1)
    accepted = draft * target / target.max()
    rest = (target - draft).clamp(min=0)
    return (accepted + (1 - accepted.sum()) * rest / rest.sum()).log()


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that the sampler really reads."""
    if "spans_exchanged" not in faults:  # the keys of a tool's schema in another order
        return prompts
    start, size = (int(each) for each in faults["spans_exchanged"].split(","))
    middle, stop = start + size, start + 2 * size
    return [
        [*each[:start], *each[middle:stop], *each[start:middle], *each[stop:]] for each in prompts
    ]


def reported(responses: list[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with wrong values, which the sampler reports."""
    if "drafts_certain" not in faults:  # accepted drafts have the value 0
        return responses
    every = int(faults["drafts_certain"])
    return [
        replace(
            each,
            logprobs=[0.0 if at % every else value for at, value in enumerate(each.logprobs)],
        )
        for each in responses
    ]


add_faults(
    {
        "correction_moved": _correction_moved,
        "head_fp8": _head_fp8,
        "kv_unscaled": _kv_unscaled,
        "latent_fp8": _latent_fp8,
        "replay_shifted": _replay_shifted,
        "shared_experts_times": _shared_experts_times,
        "sparse_sync": _sparse_sync,
    }
)
