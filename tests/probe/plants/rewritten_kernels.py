"""An eleventh set of faults: what rewritten or fused kernels and ports of models get wrong.

Families, faults, sizes and the names that count were fixed and committed before the first run of
attribution on them. The author had read the earlier plants and the names of causes, but neither
attribution's code, nor its list of edits, nor its documentation. Each kind is meant to be one that
no earlier set has. Gaps were measured before, without attribution. A name counts that a
practitioner would act on correctly; names that attribution does not have are listed, too.
`EXPERT` says how an expert would word each cause.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _RESTORED, _layers, _wrap_attention, add_faults
from tests.probe.plants.issue_bugs import _modules_with

Names = tuple[str, ...]
EXPERT: dict[str, str] = {
    "activation_on_product": "the activation is applied to gate times up, not to the gate alone",
    "conv_flipped": "the taps of the short convolution are in reverse order",
    "expert_overwritten": "the outputs of a token's experts overwrite each other instead of being "
    "added: only its last expert counts",
    "final_norm_twice": "the final norm is applied twice",
    "heads_merged": "heads are merged with the dimension before the head: the output projection "
    "reads interleaved heads",
    "inputs_outputs_exchanged": "the projected B and C of the state space are read in the wrong "
    "order",
    "keys_rotated_twice": "keys are rotated twice, queries once",
    "kv_of_layer_before": "the last layer attends to the keys and values of the layer before",
    "norm_statistics": "the fused add and norm divides by the deviation of the residual before the "
    "sum",
    "residual_clamped": "the residual stream is clamped between layers",
    "self_masked": "the causal mask also hides each token from itself",
    "shared_gate_linear": "the gate of the shared expert has no sigmoid",
}
"""The cause of each kind."""


def _activation_on_product(engine: Any, _: str) -> None:
    for mlp in _modules_with(engine, "gate_proj"):

        def forward(x: Tensor, mlp: Any = mlp) -> Any:
            return mlp.down_proj(mlp.act_fn(mlp.gate_proj(x) * mlp.up_proj(x)))

        mlp.forward = forward


def _conv_flipped(engine: Any, _: str) -> None:
    """A convolution where the checkpoint means a cross-correlation."""
    with torch.no_grad():
        for module in engine._model.modules():
            if isinstance(module, nn.Conv1d):
                module.weight.copy_(module.weight.flip(-1))


def _expert_overwritten(engine: Any, _: str) -> None:
    """Experts are run by index; a token keeps the output of its last one."""
    for experts in _modules_with(engine, "gate_up_proj"):

        def forward(
            hidden: Tensor, ids: Tensor, weights: Tensor, run: Any = experts.forward
        ) -> Any:
            is_last = ids == ids.amax(-1, keepdim=True)
            return run(hidden, ids, weights * is_last)

        experts.forward = forward


def _final_norm_twice(engine: Any, _: str) -> None:
    norm = engine._model.base_model.norm
    plain = norm.forward
    norm.forward = lambda x: plain(plain(x))


def _heads_merged(engine: Any, _: str) -> None:
    heads = engine._model.config.num_attention_heads
    for layer in _layers(engine):
        layer.self_attn.o_proj.register_forward_pre_hook(
            lambda _m, inputs: inputs[0].unflatten(-1, (heads, -1)).transpose(-1, -2).flatten(-2)
        )


def _inputs_outputs_exchanged(engine: Any, _: str) -> None:
    with torch.no_grad():
        for mixer in _modules_with(engine, "x_proj"):
            steps, size = mixer.time_step_rank, mixer.ssm_state_size
            weight = mixer.x_proj.weight
            first, second = weight[steps : steps + size], weight[steps + size :]
            weight[steps:] = torch.cat([second, first])


def _keys_rotated_twice(engine: Any, _: str) -> None:
    """The function is the module's, so that a flag tells this engine's layers from another's."""
    source: Any = sys.modules[type(engine._model).__module__]
    plain = source.apply_rotary_pos_emb
    is_own = [False]

    def turned(q: Tensor, k: Tensor, *rest: Any, **named: Any) -> Any:
        query, key = plain(q, k, *rest, **named)
        return query, plain(q, key, *rest, **named)[1] if is_own[0] else key

    source.apply_rotary_pos_emb = turned
    _RESTORED.append((source, "apply_rotary_pos_emb", plain))
    for layer in _layers(engine):
        layer.self_attn.register_forward_pre_hook(lambda *_: is_own.__setitem__(0, True))
        layer.self_attn.register_forward_hook(lambda *_: is_own.__setitem__(0, False))


def _kv_of_layer_before(engine: Any, _: str) -> None:
    last = len(_layers(engine)) - 1
    kept: list[tuple[Tensor, Tensor]] = []

    def change(
        original: Any, layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, *r: Any, **n: Any
    ) -> Any:
        if layer.layer_idx == last:
            k, v = kept[0]
        else:
            kept[:] = [(k, v)]
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _norm_statistics(engine: Any, _: str) -> None:
    """The norm before the MLP takes the deviation of the stream before attention was added."""
    for layer in _layers(engine):
        norm = layer.post_attention_layernorm
        streams: list[Tensor] = []

        def noted(_m: Any, inputs: Any, kept: Any = streams) -> None:
            kept[:] = [inputs[0]]

        def forward(x: Tensor, norm: Any = norm, kept: Any = streams) -> Tensor:
            variance = kept[0].float().pow(2).mean(-1, keepdim=True)
            normed: Tensor = norm.weight * x * torch.rsqrt(variance + norm.variance_epsilon)
            return normed

        layer.input_layernorm.register_forward_pre_hook(noted)
        norm.forward = forward


def _residual_clamped(engine: Any, value: str) -> None:
    most = float(value)

    def clamped(_m: Any, _i: Any, out: Any) -> Any:
        if isinstance(out, tuple):
            return out[0].clamp(-most, most), *out[1:]
        return out.clamp(-most, most)

    for layer in _layers(engine):
        layer.register_forward_hook(clamped)


def _self_masked(engine: Any, _: str) -> None:
    """Only the first token of a sequence, which has no other, still sees itself."""

    def change(
        original: Any, layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, *r: Any, **n: Any
    ) -> Any:
        at = torch.arange(k.shape[2])[-q.shape[2] :, None]
        ages = at - torch.arange(k.shape[2])
        least = torch.finfo(q.dtype).min
        late = torch.zeros(ages.shape, dtype=q.dtype).masked_fill(ages <= 0, least)
        if mask is not None:
            if mask.dtype == torch.bool:
                mask = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, least)
            late = torch.minimum(mask[..., : k.shape[2]], late)
        is_alone = (late > least / 2).sum(-1, keepdim=True) == 0
        late = late.masked_fill(is_alone & (ages == 0), 0)
        return original(layer, q, k, v, late.view(-1, 1, *ages.shape), *r, **n)

    _wrap_attention(engine, change)


def _shared_gate_linear(engine: Any, _: str) -> None:
    """The block takes the sigmoid of the gate's output, so the gate gives the logit of itself."""
    for block in _modules_with(engine, "shared_expert_gate"):
        expert = block.shared_expert
        seen: list[Tensor] = []

        def noted(_m: Any, inputs: Any, kept: Any = seen) -> None:
            kept[:] = [inputs[0]]

        def scaled(_m: Any, _i: Any, out: Tensor, block: Any = block, kept: Any = seen) -> Tensor:
            gate = nn.functional.linear(kept[0], block.shared_expert_gate.weight)
            return out * gate / torch.sigmoid(gate)

        expert.register_forward_pre_hook(noted)
        expert.register_forward_hook(scaled)


add_faults(
    {
        "activation_on_product": _activation_on_product,
        "conv_flipped": _conv_flipped,
        "expert_overwritten": _expert_overwritten,
        "final_norm_twice": _final_norm_twice,
        "heads_merged": _heads_merged,
        "inputs_outputs_exchanged": _inputs_outputs_exchanged,
        "keys_rotated_twice": _keys_rotated_twice,
        "kv_of_layer_before": _kv_of_layer_before,
        "norm_statistics": _norm_statistics,
        "residual_clamped": _residual_clamped,
        "self_masked": _self_masked,
        "shared_gate_linear": _shared_gate_linear,
    }
)
NEED_EAGER = {"kv_of_layer_before", "self_masked"}

_CLAMP = ("clipped-activations", "activation-limit", "residual-clamp")
_GATE = ("shared-expert-gate", "missing-activation", "shared-gate-activation")
SINGLES: tuple[tuple[str, str, Names], ...] = (
    (
        "gemma", "activation_on_product",
        ("activation", "activation-order", "gate-order", "gated-activation"),
    ),
    (
        "lfm2", "conv_flipped",
        ("conv-order", "conv-taps", "short-convolution", "tensor-order", "weight-layout",
         "transposed-weights", "swapped-weights"),
    ),
    (
        "mamba", "inputs_outputs_exchanged",
        ("state-space", "tensor-order", "weight-layout", "swapped-weights"),
    ),
    (
        "flex_olmo", "expert_overwritten",
        ("expert-sum", "expert-accumulation", "missing-experts"),
    ),
    (
        "starcoder2", "heads_merged",
        ("head-order", "head-layout", "head-mapping", "output-layout", "tensor-order",
         "weight-layout", "transposed-weights"),
    ),
    ("arcee", "keys_rotated_twice", ("rope-twice", "rope-keys", "key-rotation", "key-positions")),
    ("seed_oss", "kv_of_layer_before", ("kv-sharing", "kv-layer", "layer-order", "shared-keys")),
    (
        "ministral", "norm_statistics",
        ("norm-statistics", "norm-input", "fused-norm", "norm-order", "norm-placement"),
    ),
)  # fmt: skip
"""Families, faults of the sampler, and accepted names."""
LEARNER: tuple[tuple[str, str, Names], ...] = (
    ("helium", "final_norm_twice", ("norm-twice", "double-norm", "final-norm", "norm-placement")),
    (
        "stablelm", "self_masked",
        ("causal-mask", "attention-mask", "mask-diagonal", "mask-border", "missing-keys"),
    ),
)  # fmt: skip
"""The same for the learner."""
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("qwen2_moe", "shared_gate_linear+hidden_temperature:1.15", (_GATE, ("temperature",))),
    ("glm", "residual_clamped:2", (_CLAMP, ("partial-sync",))),
)
"""Families, faults and accepted names; one with a partial sync has a stale layer, too."""
_BFLOAT = {"dtype": "bfloat16"}
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("qwen2_moe", _BFLOAT, {**_BFLOAT, "batch_tokens": 200}, {}),
)
"""Families, options of either engine and requested sampling of healthy pairs."""
ROUTED = ("qwen2_moe", "flex_olmo")
"""Families whose experts are recorded."""
