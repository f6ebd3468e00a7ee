"""The faults of `sixth_draw` that no earlier set has.

Faults of the forward pass take the loaded engine and the fault's value, like those of
`computing.py`. The author had not read attribution's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.probe.plants.computing import _layers, _wrap_attention, add_faults
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.natural_draw import _old_weights
from tests.probe.plants.second_draw_faults import _adapted, _frequencies

BEGIN = 2
"""The token that begins a text."""
NEED_EAGER = {"attention_fp8", "values_rescaled"}
"""Faults that wrap the family's own attention function, of which an engine can have one."""
ROW_PROCESSORS = ("presence_all",)


@contextmanager
def _exchanged(model: nn.Module, old: dict[str, Tensor]) -> Iterator[None]:
    """The model has the old weights inside."""

    def exchange() -> None:
        for name, weight in model.named_parameters():
            weight.data, old[name] = old[name], weight.data

    exchange()
    try:
        yield
    finally:
        exchange()


def _old_prefix_some(engine: Any, path: str) -> None:
    """Prompts of even length were cached before the sync; the others are computed anew."""
    old, model, plain = _old_weights(path), engine._model, engine._split.next_logits

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if cache is not None:
            return plain(ids, seen, cache)
        with _exchanged(model, old):
            _, stale = plain(ids[:, :-1], seen[:, :-1], None)
        _, kept = plain(ids[:, :-1], seen[:, :-1], None)
        is_hit = (seen.sum(1) % 2 == 0)[:, None, None, None]
        for mine, other in zip(kept.layers, stale.layers, strict=True):
            mine.keys = torch.where(is_hit, other.keys, mine.keys)
            mine.values = torch.where(is_hit, other.values, mine.values)
        return plain(ids[:, -1:], seen, kept)

    engine._split.next_logits = next_logits


def _replica_old(engine: Any, path: str) -> None:
    """One of four replicas missed the sync; a prompt's replica follows from its number."""
    old, model = _old_weights(path), engine._model
    sample, score = engine.sample, engine.score

    def sampled(*given: Any) -> list[Any]:
        new = sample(*given)
        with _exchanged(model, old):
            stale = sample(*given)
        return [
            other if mine.prompt % 4 == 3 else mine for mine, other in zip(new, stale, strict=True)
        ]

    def scored(responses: Sequence[Any], *given: Any) -> list[Any]:
        new = score(responses, *given)
        with _exchanged(model, old):
            stale = score(responses, *given)
        return [
            other if each.prompt % 4 == 3 else mine
            for each, mine, other in zip(responses, new, stale, strict=True)
        ]

    engine.sample, engine.score = sampled, scored


def _resumed_after(engine: Any, value: str) -> None:
    """`COUNT,FOLDER`: requests are aborted, and resumed with new weights and a new cache."""
    count, path = value.split(",", 1)
    old, model, plain = _old_weights(path), engine._model, engine._split.next_logits
    state: dict[str, Any] = {}

    def followed(cache: Any) -> Any:
        reorder = cache.reorder_cache

        def reordered(rows: Tensor) -> None:
            state["ids"] = state["ids"][rows]
            reorder(rows)

        cache.reorder_cache = reordered
        return cache

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        is_first = cache is None
        state["step"] = 0 if is_first else state["step"] + 1
        state["ids"] = ids if is_first else torch.cat([state["ids"], ids], dim=1)
        if state["step"] == int(count):
            logits, fresh = plain(state["ids"], seen, None)
            return logits, followed(fresh)
        if state["step"] > int(count):
            return plain(ids, seen, cache)
        with _exchanged(model, old):
            logits, kept = plain(ids, seen, cache)
        return logits, followed(kept) if is_first else kept

    engine._split.next_logits = next_logits


def _embedding_old(engine: Any, path: str) -> None:
    """The sync writes the head; the embeddings, tied to it in the trainer only, stay old."""
    embedding = engine._model.get_input_embeddings()
    old = next(weight for name, weight in _old_weights(path).items() if "embed" in name)
    head = engine._model.get_output_embeddings()
    head.weight = nn.Parameter(head.weight.detach().clone())
    embedding.weight = nn.Parameter(old.clone())


def _attention_fp8(engine: Any, _: str) -> None:
    """Attention runs in fp8: queries, keys and values are E4M3 without scales."""

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        low = (each.to(torch.float8_e4m3fn).to(each) for each in (q, k, v))
        return original(layer, *low, mask, *r, **n)

    _wrap_attention(engine, change)


def _values_rescaled(engine: Any, factor: str) -> None:
    """Cached values are written with the new scale and read with the one before the sync."""

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        low_k, low_v = (each.to(torch.float8_e4m3fn).to(each) for each in (k, v))
        return original(layer, q, low_k, float(factor) * low_v, mask, *r, **n)

    _wrap_attention(engine, change)


def _adapter_part_times(engine: Any, value: str) -> None:
    """`NAME,TIMES`: the updates of modules of a name are summed over ranks that all have them."""
    part, times = value.split(",")
    found = [module for name, module in _adapted(engine) if name.endswith(part)]
    assert found
    for module in found:
        (plain,) = module._forward_hooks.values()
        module._forward_hooks.clear()

        def hook(m: Any, inputs: Any, output: Tensor, plain: Any = plain) -> Tensor:
            more: Tensor = plain(m, inputs, output) - output
            return output + float(times) * more

        module.register_forward_hook(hook)


def _rope_setting(engine: Any, value: str) -> None:
    """`NAME,VALUE`: a setting of the rotation's scaling is another one, such as a default."""
    name, setting = value.split(",")
    config = engine._model.config
    given = dict(config.rope_parameters)
    assert given[name] != float(setting)
    config.rope_parameters = {**given, name: type(given[name])(float(setting))}
    other, scaling = ROPE_INIT_FUNCTIONS[given["rope_type"]](config, "cpu")
    config.rope_parameters = given
    for module, _kind, frequencies in _frequencies(engine):
        frequencies.copy_(other)
        module.attention_scaling = scaling


def _window_above(engine: Any, count: str) -> None:
    """The first layers have no window, as where a window begins at a layer."""
    config = engine._model.config
    kinds = list(config.layer_types)
    assert "sliding_attention" in kinds[: int(count)]
    config.layer_types = ["full_attention"] * int(count) + kinds[int(count) :]


def _slots_sorted(engine: Any, _: str) -> None:
    """Chosen experts are in the order of their numbers, their weights in that of the scores."""

    def misplaced(_router: nn.Module, _inputs: Any, output: Any) -> Any:
        logits, weights, chosen = output
        return logits, weights, chosen.sort(-1).values

    assert engine._routers.modules
    for router in engine._routers.modules:
        router.register_forward_hook(misplaced)


def _up_scaled(engine: Any, factor: str) -> None:
    """Fused gate and up projections have the gate's scale: the up half is too large or small."""
    with torch.no_grad():
        for number, layer in enumerate(_layers(engine)):
            up = [m for name, m in layer.named_modules() if name.endswith("up_proj")]
            assert up
            for module in up:
                module.weight.mul_(float(factor) if number % 2 == 0 else 1 / float(factor))


def _norm_plus_one(engine: Any, name: str) -> None:
    """Norms of one name have weights around zero in the checkpoint and one in the kernel."""
    found = [w for path, w in engine._model.named_parameters() if path.endswith(f"{name}.weight")]
    assert found
    with torch.no_grad():
        for weight in found:
            weight.add_(1.0)


def _gate_up_blocks(engine: Any, size: str) -> None:
    """Rows of gate and up alternate by blocks, and are read as two halves."""
    with torch.no_grad():
        for module in _modules_with(engine, "gate_up_proj"):
            fused = module.gate_up_proj
            weight = fused.weight if isinstance(fused, nn.Module) else fused
            blocks = weight.unflatten(-2, (2, -1, int(size)))
            weight.copy_(blocks.transpose(-4, -3).flatten(-4, -2).clone())


def _columns_of_first_rank(engine: Any, _: str) -> None:
    """Every rank of merged columns loads the first rank's rows of gate and up."""
    with torch.no_grad():
        for mlp in _modules_with(engine, "gate_proj"):
            for module in (mlp.gate_proj, mlp.up_proj):
                half = len(module.weight) // 2
                module.weight[half:] = module.weight[:half].clone()


def changed_row(logits: Any, everything: Sequence[int], mine: Mapping[str, str]) -> Any:
    """The next token's logits after the processors of this set."""
    if "presence_all" in mine:  # tokens of the prompt are penalized, too
        logits[list(set(everything))] -= float(mine["presence_all"])
    return logits


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that the sampler really reads."""
    if "begun_every" not in faults:  # prompts that are sent as text are begun again
        return prompts
    every = int(faults["begun_every"])
    return [each if at % every else [BEGIN, *each] for at, each in enumerate(prompts)]


def _reported(values: list[float], faults: Mapping[str, str]) -> list[float]:
    if "resumed_twice" in faults:  # the last tokens before an abort are reported twice
        start, size = (int(each) for each in faults["resumed_twice"].split(","))
        values = [*values[:start], *values[max(start - size, 0) :]][: len(values)]
    if "stream_restarts" in faults:  # each part of a stream has the values of the first
        size = int(faults["stream_restarts"])
        values = [values[at % size] for at in range(len(values))]
    if "first_only" in faults:  # drafts have no value
        values = [*values[:1], *[0.0] * (len(values) - 1)]
    return values


def reported(responses: list[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with wrong values, which the sampler reports."""
    return [replace(each, logprobs=_reported(list(each.logprobs), faults)) for each in responses]


def scored(responses: list[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with the learner's values in the order of its ranks."""
    if "zigzag_order" not in faults:
        return responses
    return [_by_rank(each, int(faults["zigzag_order"])) for each in responses]


def _by_rank(response: Any, ranks: int) -> Any:
    """Each rank has a chunk from the start and one from the end; ranks are joined in order."""
    before = len(response.prompt_ids)
    values = [*[0.0] * before, *response.logprobs]
    size = -(-len(values) // (2 * ranks))
    chunks = [values[at * size : (at + 1) * size] for at in range(2 * ranks)]
    joined = [v for at in range(ranks) for v in (*chunks[at], *chunks[2 * ranks - 1 - at])]
    return replace(response, logprobs=joined[before:])


add_faults(
    {
        "adapter_part_times": _adapter_part_times,
        "attention_fp8": _attention_fp8,
        "columns_of_first_rank": _columns_of_first_rank,
        "embedding_old": _embedding_old,
        "gate_up_blocks": _gate_up_blocks,
        "norm_plus_one": _norm_plus_one,
        "old_prefix_some": _old_prefix_some,
        "replica_old": _replica_old,
        "resumed_after": _resumed_after,
        "rope_setting": _rope_setting,
        "slots_sorted": _slots_sorted,
        "up_scaled": _up_scaled,
        "values_rescaled": _values_rescaled,
        "window_above": _window_above,
    }
)
