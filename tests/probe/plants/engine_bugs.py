"""Faults as serving engines and trainers have them, in families that no earlier plant uses.

Families, faults and the names that count were fixed before the first run. A name counts that a
practitioner would act on correctly.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _RESTORED, _modules, _rounded, _wrap_attention, add_faults
from tests.probe.plants.unseen_computing import _older, _wrap_prefill

Names = tuple[str, ...]
NEED_EAGER = {"decode_unwindowed"}


def _layers(engine: Any) -> list[Any]:
    lists = [each for each in engine._model.modules() if isinstance(each, nn.ModuleList)]
    return list(max(lists, key=len))


def _with(name: str, *, least: int = 1) -> Callable[[Any, str], None]:
    """Sets an attribute of every module that has it."""

    def fault(engine: Any, value: str) -> None:
        changed = [each for each in engine._model.modules() if hasattr(each, name)]
        assert len(changed) >= least, name
        for module in changed:
            setattr(module, name, type(getattr(module, name))(float(value)))

    return fault


def _mlp_norm_shared(engine: Any, _: str) -> None:
    """MLPs read the norm of the attention next to them."""
    for layer in _layers(engine):
        layer.ln_mlp = layer.ln_attn


def _alibi_max(engine: Any, value: str) -> None:
    source = sys.modules[type(engine._model).__module__]
    plain = source.build_mpt_alibi_tensor

    def built(heads: int, length: int, alibi_bias_max: int = 8, device: Any = None) -> Tensor:
        return plain(heads, length, int(value), device)

    source.build_mpt_alibi_tensor = built
    _RESTORED.append((source, "build_mpt_alibi_tensor", plain))


def _routers(engine: Any) -> list[Any]:
    found = [each for each in engine._model.modules() if hasattr(each, "e_score_correction_bias")]
    assert found
    return found


def _correction_lost(engine: Any, _: str) -> None:
    for router in _routers(engine):
        router.e_score_correction_bias.zero_()


def _correction_in_weights(engine: Any, _: str) -> None:
    """Weights of experts are the corrected scores."""

    def corrected(router: Any, _inputs: Any, out: Any) -> Any:
        logits, _weights, chosen = out
        scores = (logits.sigmoid() + router.e_score_correction_bias).gather(1, chosen)
        scores = scores / scores.sum(-1, keepdim=True)
        return logits, scores * router.routed_scaling_factor, chosen

    for router in _routers(engine):
        router.register_forward_hook(corrected)


def _halves_for_pairs(engine: Any, _: str) -> None:
    """GPT-J's interleaved pairs are read as two halves."""
    source = sys.modules[type(engine._model).__module__]
    plain = source.apply_rotary_pos_emb

    def turned(x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        sin, cos = (torch.cat([part, part], -1)[:, :, None, :] for part in (sin, cos))
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    source.apply_rotary_pos_emb = turned
    _RESTORED.append((source, "apply_rotary_pos_emb", plain))


def _norm_before_rope(engine: Any, _: str) -> None:
    """Queries and keys are normalized first and rotated then."""
    layers = [module for _, module in _modules(engine, "attention")]
    norms: list[Any] = []
    source = sys.modules[type(layers[0]).__module__]
    plain = source.apply_rotary_pos_emb
    for layer in layers:
        pair = layer.query_layernorm.forward, layer.key_layernorm.forward
        layer.query_layernorm.forward = layer.key_layernorm.forward = lambda x: x
        layer.register_forward_pre_hook(lambda *_, pair=pair: norms.append(pair))

    def turned(q: Tensor, k: Tensor, *rest: Any, **named: Any) -> Any:
        of_q, of_k = norms[-1]
        norms.clear()
        return plain(of_q(q), of_k(k), *rest, **named)

    source.apply_rotary_pos_emb = turned
    _RESTORED.append((source, "apply_rotary_pos_emb", plain))


def _output_gate_open(engine: Any, _: str) -> None:
    """The gate of attention's output is 1: zero rows give 1/2, which the projection doubles."""
    with torch.no_grad():
        for layer in _layers(engine):
            if hasattr(layer, "self_attn"):
                layer.self_attn.q_proj.weight.unflatten(0, (4, 2, 16))[:, 1].zero_()
                layer.self_attn.o_proj.weight.mul_(2)


def _head_bias_lost(engine: Any, _: str) -> None:
    with torch.no_grad():
        engine._model.get_output_embeddings().bias.zero_()


def _shared_twice(engine: Any, _: str) -> None:
    """Both ranks add the whole output of the shared experts."""
    for layer in _layers(engine):
        layer.shared_mlp.register_forward_hook(lambda _m, _i, out: 2 * out)


def _state_bf16(engine: Any, _: str) -> None:
    """Recurrent states are kept in bfloat16."""

    def changed(plain: Any, _step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        logits, cache = plain(ids, seen, cache)
        states = [getattr(layer, "recurrent_states", {}) for layer in cache.layers]
        assert any(states)
        for kept in states:
            for state in kept.values():
                state.copy_(state.bfloat16())
        return logits, cache

    _wrap_prefill(engine, changed)


def _decode_unwindowed(engine: Any, _: str) -> None:
    """Prompts are read with the window; each new token sees everything."""
    width = engine._model.config.sliding_window
    engine._model.config.sliding_window = 4096
    for _name, layer in _modules(engine, "attention"):
        layer.narrow = layer.sliding_window is not None
        layer.sliding_window = None
    engine._model.config.layer_types = ["full_attention"] * 3

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        if layer.narrow and q.shape[2] > 1:
            ages = torch.arange(k.shape[2])[None] - torch.arange(k.shape[2])[-q.shape[2] :, None]
            hidden = torch.zeros(ages.shape).masked_fill((ages <= -width) | (ages > 0), -1e30)
            mask = hidden if mask is None else torch.minimum(mask[..., : k.shape[2]], hidden)
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _block_from(engine: Any, value: str) -> None:
    """`PATTERN,FIRST,LAST,PATH`: rows of one tensor are those of an older checkpoint."""
    pattern, first, last, path = value.split(",", 3)
    older = dict(_older(path)._model.named_parameters())
    names = [name for name, _ in engine._model.named_parameters() if re.search(pattern, name)]
    assert names
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if name in names:
                weight[int(first) : int(last)] = older[name][int(first) : int(last)]


def _keys_values_exchanged(engine: Any, layer: str) -> None:
    attention = _layers(engine)[int(layer)].self_attn
    with torch.no_grad():
        keys = attention.k_proj.weight.clone()
        attention.k_proj.weight.copy_(attention.v_proj.weight)
        attention.v_proj.weight.copy_(keys)


def _transposed(engine: Any, layer: str) -> None:
    weight = _layers(engine)[int(layer)].self_attn.o_proj.weight
    with torch.no_grad():
        weight.copy_(weight.T.clone())


def _quantised_tensor(engine: Any, _: str) -> None:
    """Weights of layers in int8 with one scale for a tensor."""
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if weight.ndim > 1 and "layers" in name:
                weight.copy_(_rounded(weight.reshape(1, -1), "int8").reshape(weight.shape))


def _residual_bf16(engine: Any, _: str) -> None:
    def lowered(_module: Any, _inputs: Any, out: Any) -> Any:
        if isinstance(out, tuple):
            return (out[0].bfloat16().to(out[0].dtype), *out[1:])
        return out.bfloat16().to(out.dtype)

    for layer in _layers(engine):
        layer.register_forward_hook(lowered)


add_faults(
    {
        "alibi_max": _alibi_max,
        "block_from": _block_from,
        "correction_in_weights": _correction_in_weights,
        "correction_lost": _correction_lost,
        "decode_unwindowed": _decode_unwindowed,
        "group_count": _with("num_group"),
        "halves_for_pairs": _halves_for_pairs,
        "head_bias_lost": _head_bias_lost,
        "key_multiplier": _with("key_multiplier"),
        "keys_values_exchanged": _keys_values_exchanged,
        "logit_scale": _with("logit_scale"),
        "mlp_norm_shared": _mlp_norm_shared,
        "norm_before_rope": _norm_before_rope,
        "output_gate_open": _output_gate_open,
        "position_offset": _with("offset"),
        "quantised_tensor": _quantised_tensor,
        "residual_bf16": _residual_bf16,
        "residual_depth": _with("residual_scale"),
        "shared_twice": _shared_twice,
        "state_bf16": _state_bf16,
        "transposed": _transposed,
    }
)
ROW_PROCESSORS = ("early_min_p", "ngram_ban", "repetition_window")


def changed_row(logits: Any, everything: Sequence[int], drawn: Sequence[int], mine: Any) -> Any:
    """The next token's logits after the processors of this set."""
    if "early_min_p" in mine:  # before the temperature
        logits[logits < logits.max() + np.log(float(mine["early_min_p"]))] = -torch.inf
    if "repetition_window" in mine:  # only recent tokens are penalized
        penalty, width = mine["repetition_window"].split(",")
        for token in set(everything[-int(width) :]):
            by = float(penalty) if logits[token] < 0 else 1 / float(penalty)
            logits[token] *= by
    if "ngram_ban" in mine:
        before = int(mine["ngram_ban"]) - 1
        last = list(everything[-before:])
        for at in range(len(everything) - before):
            if list(everything[at : at + before]) == last:
                logits[everything[at + before]] = -torch.inf
    return logits


@contextmanager
def reported_over(faults: Mapping[str, str]) -> Any:
    """Report the likeliest token's value instead of the sampled one's."""
    with ExitStack() as stack:
        for source in ("hf.generation", "hf.engine") if "likeliest" in faults else ():
            name = "readings" if source == "hf.generation" else "token_readings"
            read = getattr(sys.modules[source], name)

            def likeliest(
                logits: Any, _ids: Any, processing: Any, want: Any, read: Any = read
            ) -> Any:
                return read(logits, logits.argmax(-1), processing, want)

            stack.enter_context(mock.patch.object(sys.modules[source], name, likeliest))
        yield


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that are really read."""
    if "prefix_mixed" in faults:  # the first block of some prompts is another prompt's
        every, size = map(int, faults["prefix_mixed"].split(","))
        return [
            [*prompts[n - 1][:size], *prompt[size:]] if n % every == 0 else prompt
            for n, prompt in enumerate(prompts)
        ]
    if "date_inside" in faults:  # as a template that writes today's date
        at, size = map(int, faults["date_inside"].split(","))
        return [[*each[:at], *range(40, 40 + size), *each[at + size :]] for each in prompts]
    return prompts


def drawn(
    engine: Any, prompts: Any, sampling: Any, want: Any, responses: Any, faults: Mapping[str, str]
) -> list[Any]:
    """The responses of replicas and drafts with an older checkpoint."""
    if "half_from" in faults:  # one of two replicas was not synchronized
        others = _older(faults["half_from"]).sample(prompts, sampling, want)
        return [others[n] if n % 2 else each for n, each in enumerate(responses)]
    if "draft_from" in faults:  # every fourth token has the draft's value
        scored = _older(faults["draft_from"]).score(responses, _as_sampled(sampling), ())
        return [
            replace(each, logprobs=_every_fourth(each.logprobs, other.logprobs))
            for each, other in zip(responses, scored, strict=True)
        ]
    return list(responses)


def _as_sampled(sampling: Any) -> Any:
    from contract import Processing

    return Processing(temperature=sampling.temperature)


def _every_fourth(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [others[n] if n % 4 == 3 else value for n, value in enumerate(values)]


COMPUTED: tuple[tuple[str, str, Names], ...] = (
    ("opt", "position_offset:0", ("position-ids", "model-config")),
    ("falcon", "mlp_norm_shared", ("model-config", "missing-norm", "norm-weights")),
    ("mpt", "alibi_max:16", ("attention-bias", "position-bias", "model-config")),
    ("glm4_moe", "correction_lost", ("router-bias", "missing-bias")),
    ("dots1", "correction_in_weights", ("router-weights", "router-bias")),
    ("deepseek_v2", "group_count:1", ("model-config", "router-groups")),
    ("gptj", "halves_for_pairs", ("rope-layout",)),
    ("hunyuan", "norm_before_rope", ("qk-norm",)),
    ("qwen3_next", "output_gate_open", ("missing-gate",)),
    ("phimoe", "head_bias_lost", ("missing-bias",)),
    ("granitemoeshared", "shared_twice",
     ("residual-scale", "shared-expert-scale", "missing-experts", "model-config")),
    ("minicpm3", "residual_depth:1", ("residual-scale", "model-config")),
    ("falcon_h1", "state_bf16", ("state-cache", "kv-cache", "generation-path")),
    ("cwm", "decode_unwindowed", ("sliding-window", "generation-path", "kv-cache")),
    ("gemma", "keys_values_exchanged:1", ("swapped-weights", "layer-order", "tensor-order")),
    ("cohere", "transposed:1", ("transposed-weights",)),
    ("cohere", "quantised_tensor", ("quantisation",)),
    ("mpt", "residual_bf16", ("precision",)),
)  # fmt: skip
"""Families, faults of the sampler's forward pass, and accepted names."""
WEIGHTS: tuple[tuple[str, str, Names], ...] = (
    ("glm4_moe", r"block_from:layers\.1\.mlp\.experts\.gate_up_proj,0,1,STALE", ("partial-sync",)),
    ("hunyuan", "block_from:embed_tokens,32,64,STALE", ("partial-sync",)),
    ("opt", "half_from:STALE", ("stale-weights",)),
    ("falcon", "draft_from:STALE", ("stale-weights", "mixed-weights", "speculative-decoding")),
)
"""The same with an older checkpoint, which is given."""
SERVED: tuple[tuple[str, str, Names, dict[str, Any], bool], ...] = (
    ("codegen", "hidden_top_k:9", ("truncation",), {"top_k": 10}, True),
    ("opt", "early_min_p:0.1", ("truncation",), {"temperature": 0.7}, False),
    ("gemma", "repetition_window:1.3,8", ("repetition-penalty",), {}, False),
    ("mpt", "ngram_ban:2", ("no-repeat-ngram", "ngram-ban", "structured-output"), {}, False),
    ("dots1", "clipped:-6", ("clipping",), {}, False),
    ("falcon", "per_length", ("scaled-logprobs", "averaging", "length-normalised"), {}, False),
    ("minicpm3", "likeliest", ("likeliest-token", "top-token"), {}, False),
    ("apertus", "prefix_mixed:3,4", ("prefix-caching", "prompt-ids", "stale-cache"), {}, False),
    ("codegen", "date_inside:2,3", ("prompt-ids",), {}, False),
)
"""Families, faults, accepted names, requested sampling, and whether the learner applies it, too."""
_STALE = ("partial-sync",)
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("cohere", "logit_scale:0.8+kv:int8",
     (("logit-scale", "temperature", "model-config"), ("kv-cache",))),
    ("glm4_moe", "correction_lost+hidden_top_p:0.9",
     (("router-bias", "missing-bias"), ("truncation",))),
    ("phimoe", "head_bias_lost", (("missing-bias",), _STALE)),
    ("opt", "position_offset:0+rounded:2", (("position-ids", "model-config"), ("rounding",))),
    ("falcon_h1", "key_multiplier:1+hidden_temperature:0.9",
     (("model-config", "attention-scale"), ("temperature",))),
    ("gpt_bigcode", "attention_scale:1.3+begun", (("attention-scale",), ("prompt-ids",))),
    ("gptj", "halves_for_pairs+repetition:1.3", (("rope-layout",), ("repetition-penalty",))),
    ("minimax_m2", "hidden_min_p:0.05+norm_eps:0.1", (("truncation",), ("norm-epsilon",))),
)  # fmt: skip
"""Families, faults and accepted names; one with a partial sync has a stale layer, too."""
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("falcon_h1", {}, {}),
    ("qwen3_next", {"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    ("mpt", {"attention": "eager"}, {}),
)
"""Families and options of either engine of healthy pairs."""
ROUTED = ("glm4_moe", "dots1", "deepseek_v2", "phimoe", "qwen3_next", "minimax_m2")
"""Families whose experts are recorded."""
