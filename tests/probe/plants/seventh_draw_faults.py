"""The faults of `seventh_draw`, which no earlier set has.

Faults of the forward pass take the loaded engine and the fault's value, like those of
`computing.py`. The author had not read attribution's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.probe.plants.computing import _embedding, _head, _layers, _modules, _wrap_attention
from tests.probe.plants.computing import add_faults as _add_faults
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.natural_draw import _old_weights
from tests.probe.plants.second_draw_faults import _adapted, _frequencies

NEED_EAGER = {"streaming"}
"""Faults that wrap the family's own attention function, of which an engine can have one."""
ROW_PROCESSORS = ("xtc", "top_sigma")


def _linears(engine: Any) -> list[nn.Linear]:
    """The projections of all layers."""
    found = [each for each in _layers(engine).modules() if isinstance(each, nn.Linear)]
    assert found
    return found


def _dummy_pair(engine: Any, layer: str) -> None:
    """Two projections that the engine fuses came in different chunks, and kept dummy weights."""
    attention = _layers(engine)[int(layer)].self_attn
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for module in (attention.q_a_proj, attention.kv_a_proj_with_mqa):
            shape = module.weight.shape
            module.weight.copy_((torch.rand(shape, generator=generator) * 2 - 1) * 1e-3)


def _absorbed_old(engine: Any, path: str) -> None:
    """Decoding has keys and values expanded by weights that were derived before the sync."""
    old, plain = _old_weights(path), engine._split.next_logits
    expanded = {n: w for n, w in engine._model.named_parameters() if "kv_b_proj" in n}
    assert expanded

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if cache is None:
            return plain(ids, seen, cache)
        new = {name: weight.data for name, weight in expanded.items()}
        try:
            for name, weight in expanded.items():
                weight.data = old[name]
            return plain(ids, seen, cache)
        finally:
            for name, weight in expanded.items():
                weight.data = new[name]

    engine._split.next_logits = next_logits


def _router_norm_twice(engine: Any, _: str) -> None:
    """The router, which has a norm of its own, reads the experts' normed input."""
    for layer in _layers(engine):
        norm = layer.pre_feedforward_layernorm_2
        layer.router.register_forward_pre_hook(
            lambda _m, given, norm=norm: (norm(given[0]), *given[1:])
        )


def _layer_scalars(engine: Any, value: str) -> None:
    """`X,…`: the scalars of the layers' outputs are others."""
    scalars = [float(each) for each in value.split(",")]
    with torch.no_grad():
        for layer, scalar in zip(_layers(engine), scalars, strict=True):
            layer.layer_scalar.mul_(scalar)


def _linear_gate(engine: Any, name: str) -> None:
    """Outputs of linear attention are gated with another activation."""
    found = [m for m in _modules_with(engine, "activation") if "Gated" in type(m).__name__]
    assert found
    for module in found:
        assert module.activation != name
        module.activation = name


def _yarn_untruncated(engine: Any, _: str) -> None:
    """The bounds of yarn's ramp are not rounded to whole dimensions."""
    config = engine._model.config
    given = dict(config.rope_parameters)
    config.rope_parameters = {**given, "truncate": False}
    other, _scaling = ROPE_INIT_FUNCTIONS[given["rope_type"]](config, "cpu")
    config.rope_parameters = given
    for _module, _kind, frequencies in _frequencies(engine):
        assert not torch.equal(frequencies, other)
        frequencies.copy_(other)


def _indexer_unrectified(engine: Any, _: str) -> None:
    """The indexer of sparse attention sums scores of both signs."""
    for _name, indexer in _modules(engine, "indexer"):
        plain = indexer.forward

        def forward(*given: Any, plain: Any = plain, **named: Any) -> Any:
            with mock.patch.object(nn.functional, "relu", lambda scores, *_: scores):
                return plain(*given, **named)

        indexer.forward = forward


def _weights_saturated(engine: Any, value: str) -> None:
    """Scales for a maximum of 448 in a format that ends at a smaller one."""
    with torch.no_grad():
        for module in _linears(engine):
            scale = module.weight.abs().max() / 448
            low = (module.weight / scale).clamp(-float(value), float(value))
            module.weight.copy_(low.to(torch.float8_e4m3fn).float() * scale)


def _group_index_ignored(engine: Any, size: str) -> None:
    """Four-bit groups are of inputs in the order of their importance, but read in their own."""
    generator = torch.Generator().manual_seed(12)
    with torch.no_grad():
        for module in _linears(engine):
            weight, inputs = module.weight, module.weight.shape[1]
            if inputs % int(size):
                continue
            order = torch.randperm(inputs, generator=generator)
            groups = weight[:, order].unflatten(1, (-1, int(size)))
            scales = groups.abs().amax(-1, keepdim=True) / 7
            codes = (groups / scales).round().flatten(1)[:, order.argsort()]
            wrong = codes.unflatten(1, (-1, int(size))) * scales
            weight.copy_(wrong.flatten(1))


def _token_of_neighbor(engine: Any, every: str) -> None:
    """At some steps each request is given the token of the request before it in the batch."""
    plain, step = engine._split.next_logits, [0]

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        step[0] = 0 if cache is None else step[0] + 1
        if cache is not None and step[0] % int(every) == 0:
            ids = ids.roll(1, 0)
        return plain(ids, seen, cache)

    engine._split.next_logits = next_logits


def _magnitudes(engine: Any, size: str) -> None:
    """An adapter with magnitudes: the other engine knows only the low-rank update."""
    generator = torch.Generator().manual_seed(13)
    for _name, module in _adapted(engine):
        factors = 1 + float(size) * torch.randn(module.out_features, generator=generator)
        module.register_forward_hook(lambda _m, _x, out, factors=factors: out * factors)


def _sines_lost(engine: Any, _: str) -> None:
    """Sines are read behind the end of their rows, where there are zeros."""
    for _name, module in _modules(engine, "rotary"):
        module.register_forward_hook(lambda _m, _x, out: (out[0], torch.zeros_like(out[1])))


def _unrotated_from(engine: Any, length: str) -> None:
    """Positions behind the end of the table are not rotated."""

    def hook(_module: nn.Module, given: Any, named: Any, output: Any) -> Any:
        at = named["position_ids"] if "position_ids" in named else given[1]
        late = (at >= int(length))[..., None]
        cosines, sines = output
        return cosines.masked_fill(late, 1.0), sines.masked_fill(late, 0.0)

    for _name, module in _modules(engine, "rotary"):
        module.register_forward_hook(hook, with_kwargs=True)


def _mask_of_first_row(engine: Any, _: str) -> None:
    """Sequences are padded on the left, and all have the mask of the first in the batch."""
    plain, hidden = engine._score_batch, engine._split.hidden

    def batch(responses: Sequence[Any], *given: Any, **named: Any) -> Any:
        sizes = [len(each.prompt_ids) + len(each.response_ids) - 1 for each in responses]

        def padded(ids: Tensor, *_: Any) -> Tensor:
            width = ids.shape[1]
            pads = [width - size for size in sizes]
            at = torch.arange(width)
            rows = torch.stack([row.roll(pad) for row, pad in zip(ids, pads, strict=True)])
            positions = (at[None] - torch.tensor(pads)[:, None]).clamp(min=0)
            seen = (at >= pads[0]).long().expand(rows.shape)
            out: Tensor = hidden(rows, positions, seen)
            return torch.stack([row.roll(-pad, 0) for row, pad in zip(out, pads, strict=True)])

        engine._split.hidden = padded
        try:
            return plain(responses, *given, **named)
        finally:
            engine._split.hidden = hidden

    engine._score_batch = batch


def _race(engine: Any, rate: str) -> None:
    """Some tokens read a buffer before it is written; which ones changes from run to run."""
    generator = torch.Generator()
    generator.seed()

    def hook(_module: nn.Module, _given: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) else output
        kept = torch.rand(first.shape[:-1], generator=generator) >= float(rate)
        changed = first * kept[..., None]
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    _layers(engine)[1].mlp.register_forward_hook(hook)


def _expert_summed_twice(engine: Any, number: str) -> None:
    """An expert has replicas on two ranks, which both add its output."""
    with torch.no_grad():
        for experts in _modules_with(engine, "down_proj"):
            if isinstance(experts.down_proj, nn.Parameter):
                experts.down_proj[int(number)].mul_(2)


def _norm_of_first_shard(engine: Any, parts: str) -> None:
    """Norms of queries over their whole width: each rank has the first rank's weights."""
    with torch.no_grad():
        for attention in _modules_with(engine, "q_norm"):
            weight = attention.q_norm.weight
            first = weight.chunk(int(parts))[0]
            weight.copy_(first.repeat(int(parts)))


def _hadamard(size: int) -> Tensor:
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def _rotation_lost(engine: Any, size: str) -> None:
    """Weights are rotated against outliers; the rotation of their inputs is left out."""
    with torch.no_grad():
        for layer in _layers(engine):
            weight = layer.mlp.down_proj.weight
            blocks = weight.unflatten(1, (-1, int(size)))
            weight.copy_((blocks @ _hadamard(int(size))).flatten(1))


def _rows_averaged(engine: Any, start: str) -> None:
    """Rows of added tokens were made anew, as the mean of all others."""
    with torch.no_grad():
        for module in (_embedding(engine._model), _head(engine._model)):
            weight: Any = module.weight
            weight[int(start) :] = weight[: int(start)].mean(0)


def _streaming(engine: Any, value: str) -> None:
    """`FIRST,LAST`: tokens see only the first and the last keys, as with a bounded cache."""
    first, last = map(int, value.split(","))

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        at = torch.arange(k.shape[2])
        ages = at[-q.shape[2] :, None] - at[None]
        lost = (ages < 0) | ((ages >= last) & (at[None] >= first))
        hidden = torch.zeros(lost.shape).masked_fill(lost, -1e30)
        mask = hidden if mask is None else torch.minimum(mask[..., : k.shape[2]], hidden)
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _columns_of_shortest(engine: Any, _: str) -> None:
    """Values are cut out from the end of the shortest prompt on, in all rows of a batch."""
    plain = engine.score

    def score(responses: Sequence[Any], processing: Any, want: Sequence[str]) -> list[Any]:
        scored: list[Any] = plain(responses, processing, want)
        start = min(len(each.prompt_ids) for each in responses)
        longer = [
            replace(
                each,
                prompt_ids=list(each.prompt_ids[:start]),
                response_ids=[*each.prompt_ids[start:], *each.response_ids],
            )
            for each in responses
        ]
        return [
            replace(each, logprobs=other.logprobs[: len(each.response_ids)])
            for each, other in zip(scored, plain(longer, processing, ()), strict=True)
        ]

    engine.score = score


def _step_bias_twice(engine: Any, _: str) -> None:
    """The bias of the time steps is in the projection and in the scan."""
    with torch.no_grad():
        for mixer in _modules_with(engine, "dt_bias"):
            mixer.dt_bias.mul_(2)


def changed_row(logits: Any, everything: Sequence[int], mine: Mapping[str, str]) -> Any:
    """The next token's logits after the processors of this set."""
    if "xtc" in mine and sum(everything) % 2:  # at half of the steps
        shares = logits.softmax(-1)
        likely = shares >= float(mine["xtc"])
        if likely.sum() > 1:
            least = shares.masked_fill(~likely, 2.0).argmin()
            likely[least] = False
            logits = logits.masked_fill(likely, -torch.inf)
    if "top_sigma" in mine:  # tokens further below the likeliest than their deviation are lost
        least = logits.max() - float(mine["top_sigma"]) * logits[logits.isfinite()].std()
        logits = logits.masked_fill(logits < least, -torch.inf)
    return logits


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that the sampler really reads."""
    if "middle_cut" not in faults:
        return prompts
    size = int(faults["middle_cut"])
    before, after = size // 2, size - size // 2
    return [
        [*each[:before], *each[-after:]] if len(each) > size else list(each) for each in prompts
    ]


_add_faults(
    {
        "absorbed_old": _absorbed_old,
        "columns_of_shortest": _columns_of_shortest,
        "dummy_pair": _dummy_pair,
        "expert_summed_twice": _expert_summed_twice,
        "group_index_ignored": _group_index_ignored,
        "indexer_unrectified": _indexer_unrectified,
        "layer_scalars": _layer_scalars,
        "linear_gate": _linear_gate,
        "magnitudes": _magnitudes,
        "mask_of_first_row": _mask_of_first_row,
        "norm_of_first_shard": _norm_of_first_shard,
        "race": _race,
        "rotation_lost": _rotation_lost,
        "router_norm_twice": _router_norm_twice,
        "rows_averaged": _rows_averaged,
        "sines_lost": _sines_lost,
        "step_bias_twice": _step_bias_twice,
        "streaming": _streaming,
        "token_of_neighbor": _token_of_neighbor,
        "unrotated_from": _unrotated_from,
        "weights_saturated": _weights_saturated,
        "yarn_untruncated": _yarn_untruncated,
    }
)
