"""The causes that what-if edits stand for: ids, titles and remedies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from grpodoctor.probe.attribution.edit_causes.computed_cause import ComputedCause
from grpodoctor.probe.attribution.edit_causes.operation_causes import cause_of_operation
from grpodoctor.probe.attribution.edit_causes.site_causes import (
    WIRED,
    cause_of_rank_part,
    cause_of_site,
)
from grpodoctor.probe.attribution.edit_causes.special_causes import cause_of_value
from grpodoctor.probe.attribution.edit_causes.structure_causes import (
    STRUCTURE,
    VALUES_OR,
    block_in_words,
    sums_values,
)
from grpodoctor.probe.attribution.edit_causes.update_causes import UPDATE
from grpodoctor.probe.attribution.edits import (
    Edit,
    inner_edit,
)


def _cause(id: str, title: str, change: str, remedy: str) -> ComputedCause:  # noqa: A002 - its name
    return ComputedCause(id, title, change, remedy)


_CHECK = "Compare this setting in the config.json that each engine loads and in its start options."
_BY_NAME: dict[str, ComputedCause] = {
    **STRUCTURE,
    **UPDATE,
    **WIRED,
    "window": _cause(
        "sliding-window", "The {side} attends to a window of the last tokens only",
        "a sliding window of {value} tokens",
        "Give both engines the same sliding_window, or disable it on both sides. A key-value cache "
        "that drops its oldest entries has the same effect.",
    ),
    "full_attention": _cause(
        "sliding-window", "The {side} ignores the sliding window", "full attention",
        "Use an attention kernel that supports the model's sliding window, or disable the window "
        "on both sides.",
    ),
    "attention_scale": _cause(
        "attention-scale", "The {side} scales attention differently",
        "attention scores times {value}",
        "Check the softmax scale of attention: 1/sqrt(head_dim), query_pre_attn_scalar, or the "
        "factor of a rope scaling.",
    ),
    "attention_soft_cap": _cause(
        "attention-soft-cap", "The {side} soft-caps attention differently",
        "an attention soft-cap of {value} (0: none)",
        "Use an attention kernel that supports attn_logit_softcapping, on both sides.",
    ),
    "logit_soft_cap": _cause(
        "logit-soft-cap", "The {side} soft-caps logits differently",
        "a logit soft-cap of {value}",
        "Apply final_logit_softcapping on both sides, before the temperature.",
    ),
    "kv_cache": _cause(
        "kv-cache", "The {side}'s key-value cache is quantized", "keys and values in {value}",
        'Keep the cache in the precision of the model (vLLM: kv_cache_dtype="auto").',
    ),
    "attention_weights": _cause(
        "attention-precision", "The {side} multiplies values in another precision",
        "attention weights in {value}",
        "Use an attention kernel that keeps the weights of the keys in the precision of the model, "
        "or the same kernel on both sides.",
    ),
    "head_order": _cause(
        "head-order", "The {side} assigns query heads to other key-value heads",
        "query heads in another order ({value})",
        "Check the conversion of grouped-query attention, and what each rank loads: query heads "
        "share key-value heads in consecutive blocks.",
    ),
    "rope_base": _cause(
        "rope-base", "The {side} uses another rope base", "rope_theta {value}",
        "Give both engines the same rope_theta; newer config files keep it in rope_parameters, "
        "which older engines do not read.",
    ),
    "rope_scaling": _cause(
        "rope-scaling", "The {side} scales rotary positions differently",
        "positions divided by {value}",
        "Give both engines the same rope scaling (type and factor).",
    ),
    "rope_type": _cause(
        "rope-scaling", "The {side} scales rotary positions differently", "rope scaling {value}",
        "Give both engines the same rope scaling (type and factor).",
    ),
    "rope_off": _cause(
        "rope-base", "The {side} ignores positions", "no rotary positions",
        "Check the position ids that the engine receives.",
    ),
    "rope_layout": _cause(
        "rope-layout", "The {side} pairs rotary dimensions differently",
        "rotary dimensions paired as {value}",
        "Check the conversion of query and key weights between interleaved and half-split rotary "
        "layouts.",
    ),
    "position_gap": _cause(
        "position-ids", "The {side} counts the positions of the response differently",
        "the positions of the response moved by {value}",
        "Check the position ids after truncation, padding or a cached prompt: the response "
        "continues at the length of its prompt.",
    ),
    "rope_share": _cause(
        "rope-layout", "The {side} rotates other dimensions",
        "a share of {value} of the dimensions rotated (negative: backwards)",
        "Give both engines the same partial_rotary_factor, and check which dimensions are rotated.",
    ),
    "rotary_width": _cause(
        "rope-layout", "The {side} rotates another number of dimensions",
        "{value} dimensions of each head rotated",
        "Give both engines the same partial_rotary_factor, and check which dimensions are rotated.",
    ),
    "layer_rope_base": _cause(
        "rope-base", "The {side} uses another rope base in one kind of layer",
        "an unscaled rope base of {value}",
        "Compare rope_parameters of each kind of layer, and rope_local_base_freq in older files.",
    ),
    "layer_rope_scaling": _cause(
        "rope-scaling", "The {side} scales rotary positions differently in one kind of layer",
        "scaled rotary positions: {value}",
        "Compare rope_parameters of each kind of layer: a scaling often applies to layers with "
        "full attention only.",
    ),
    "layer_rope_like": _cause(
        "rope-base", "The {side} rotates one kind of layer like another",
        "the rotary positions of {value}",
        "Compare rope_parameters of each kind of layer, and rope_local_base_freq in older files.",
    ),
    "position_start": _cause(
        "position-ids", "The {side} counts positions from another number",
        "the first token at position {value}",
        "Check the position ids of the first token, and the offset of learned positions.",
    ),
    "padded_positions": _cause(
        "position-ids", "The {side} counts padding in its positions",
        "positions that count padding on the left up to {value} tokens",
        "Compute position ids from the attention mask, so that padding has no position.",
    ),
    "rope_precision": _cause(
        "rope-precision", "The {side} computes rotary positions in another precision",
        "sines and cosines in {value}",
        "Compute inverse frequencies, sines and cosines in float32 on both sides.",
    ),
    "qk_norm_order": _cause(
        "qk-norm", "The {side} normalizes queries and keys at another place",
        "queries and keys normalized {value} the rotation",
        "Check the order of rotation and query-key norms in the engine's attention.",
    ),
    "layer_window": _cause(
        "sliding-window", "The {side} uses a sliding window in other layers",
        "a sliding window in the layers {value}",
        "Give both engines the same layer_types or sliding-window pattern.",
    ),
    "distance_bias": _cause(
        "attention-bias", "The {side} adds a bias to attention scores",
        "attention scores lowered by {value} per position",
        "Check for a position bias (ALiBi) that only one engine applies.",
    ),
    "without_alibi": _cause(
        "attention-bias", "The {side} adds no bias by position to attention scores",
        "no position bias (ALiBi)",
        "Use an attention kernel that supports the model's position bias (ALiBi).",
    ),
    "alibi_factor": _cause(
        "attention-bias", "The {side} scales the bias by position differently",
        "the position bias (ALiBi) times {value}",
        "Check alibi_bias_max and the slopes of the position bias (ALiBi) on both sides.",
    ),
    "alibi_power": _cause(
        "attention-bias", "The {side} uses other slopes of the bias by position",
        "the slopes of the position bias (ALiBi) to the power {value}",
        "Check alibi_bias_max and the slopes of the position bias (ALiBi) on both sides.",
    ),
    "without_sinks": _cause(
        "attention-sinks", "The {side} ignores the attention sinks", "no attention sinks",
        "Use an attention kernel that supports the model's attention sinks, on both sides.",
    ),
    "norm_parts": _cause(
        "qk-norm", "The {side} normalizes queries and keys over parts of their width",
        "queries and keys normalized in {value} parts",
        "Compute this norm over all heads: with tensor parallelism, its sum of squares needs an "
        "all-reduce over the ranks.",
    ),
    "without_gate": _cause(
        "missing-gate", "The {side} ignores a gate", "{value} fully open",
        "Check that the engine's implementation of this model family applies the gate.",
    ),
    "open_gate": _cause(
        "missing-gate", "The {side} ignores a gate", "the gate in {value} fully open",
        "Check that the engine's implementation of this model family applies the gate.",
    ),
    "residual_rounding": _cause(
        "precision", "The {side} keeps hidden states in another precision",
        "hidden states between layers in {value}",
        "Keep the residual stream of both engines in the same precision.",
    ),
    "transposed": _cause(
        "transposed-weights", "The {side} transposes a matrix", "{value}",
        "Check the layout of square matrices in the conversion of the checkpoint: their shape does "
        "not show a missing transpose.",
    ),
    "weights_from": _cause(
        "swapped-weights", "The {side} loads weights into another module", "{value}",
        "Check the names and the order in which fused projections are split in the conversion of "
        "the checkpoint.",
    ),
    "logit_clamp": _cause(
        "logit-clamp", "The {side} clamps logits", "logits clamped to ±{value}",
        "Compute logits in float32, or remove the clamp.",
    ),
    "logit_rounding": _cause(
        "logit-precision", "The {side} computes logits in another precision", "logits in {value}",
        "Compute the output head and the log-softmax in float32 on both sides.",
    ),
    "epsilon_cutoff": _cause(
        "truncation", "The {side} drops tokens below a probability", "an epsilon cutoff of {value}",
        "Set epsilon_cutoff to 0 in the sampler.",
    ),
    "top_n_sigma": _cause(
        "truncation", "The {side} drops tokens far below the likeliest one", "top_n_sigma {value}",
        "Turn top_n_sigma off in the sampler (llama.cpp: -1).",
    ),
    "typical_p": _cause(
        "typical-p", "The {side} truncates to locally typical tokens", "typical_p {value}",
        "Set typical_p to 1 in the sampler.",
    ),
    "uniform_share": _cause(
        "uniform-share", "The {side} mixes random tokens into its distribution",
        "a share of {value} drawn uniformly from the vocabulary",
        "Remove the exploration (epsilon-greedy, smoothing) from the sampler.",
    ),
    "vocabulary_part": _cause(
        "vocabulary-part", "The {side} shifts the logits of a part of the vocabulary", "{value}",
        "Check the output head of each tensor-parallel rank: its shard, its bias and its offset.",
    ),
    "layer_from": _cause(
        "layer-order", "The {side} computes a layer with the weights of another one", "{value}",
        "Check the numbers of layers in the conversion of the checkpoint, and which layers each "
        "pipeline-parallel rank loads.",
    ),
    "bias_scale": _cause(
        "bias-scale", "The {side} adds biases more than once", "{value}",
        "Check tensor parallelism: a bias is added once after the all-reduce, not on every rank.",
    ),
    "lost_part": _cause(
        "lost-part", "The {side} leaves out a part of a layer's sum", "{value}",
        "Check tensor parallelism: each rank loads its own shard, and the all-reduce adds the "
        "partial sums of all ranks.",
    ),
    "padded_vocabulary": _cause(
        "padded-vocabulary", "The {side} normalizes over a padded vocabulary",
        "{value} further vocabulary entries with a logit of 0",
        "Exclude the padding of the vocabulary from the log-softmax.",
    ),
    "embedding_scale": _cause(
        "embedding-scale", "The {side} scales embeddings differently", "embeddings times {value}",
        "Check the embedding multiplier, such as the factor sqrt(hidden_size) of Gemma.",
    ),
    "norm_epsilon": _cause(
        "norm-epsilon", "The {side} uses another norm epsilon", "a norm epsilon of {value}",
        "Give both engines the same rms_norm_eps or layer_norm_eps.",
    ),
    "norm_offset": _cause(
        "norm-offset", "The {side} shifts the weights of norms", "{value} added to norm weights",
        "Check the convention for norm weights: some families store w, others w - 1.",
    ),
    "without_norm": _cause(
        "missing-norm", "The {side} skips a norm", "{value} skipped",
        "Check that the engine's implementation of this model family applies every norm.",
    ),
    "without_bias": _cause(
        "missing-bias", "The {side} lacks biases", "the biases of {value} set to zero",
        "Check that the engine loads the biases of this model family, and that syncs include them.",
    ),
    "activation": _cause(
        "activation", "The {side} uses another activation function", "the activation {value}",
        "Give both engines the same hidden_act.",
    ),
    "missing_layer": _cause(
        "missing-layer", "The {side} skips a layer", "layer {value} skipped",
        "Check the number of layers that the engine loads, and its early-exit options.",
    ),
    "adapter": _cause(
        "adapter", "The {side} applies the LoRA adapter with another scale",
        "the adapter times {value}",
        "0: check that the adapter reaches the engine. 2: it is loaded and merged. 1: the learner "
        "applies it more than once. Another factor: compare alpha / rank (rank-stabilized "
        "adapters: alpha / sqrt(rank)) on both sides.",
    ),
    "router_precision": _cause(
        "router-precision", "The {side} routes in another precision", "routers in {value}",
        "Run the routers of both engines in float32.",
    ),
    "router_weights": _cause(
        "router-weights", "The {side} weights experts differently", "expert weights: {value}",
        "Give both engines the same norm_topk_prob.",
    ),
    "compute_dtype": _cause(
        "precision", "The {side} computes in another precision", "computation in {value}",
        "Run both sides in the same precision; the engine's reported precision is not what it "
        "computes in.",
    ),
    "weight_rounding": _cause(
        "quantisation", "The {side}'s weights are quantized", "weights rounded to {value}",
        "Load the same unquantized weights in both engines, or correct with truncated importance "
        "sampling.",
    ),
    "activation_rounding": _cause(
        "quantisation", "The {side}'s activations are quantized",
        "activations rounded to {value}",
        "Do not quantize activations, or correct with truncated importance sampling.",
    ),
    "padding": _cause(
        "attended-padding", "The {side} attends to padding",
        "padding before the prompts, seen by attention",
        "Pass an attention mask that hides padding, or pad on the right.",
    ),
    "repetition_penalty": _cause(
        "repetition-penalty", "The {side} applies a repetition penalty",
        "a repetition penalty of {value}",
        "Set repetition_penalty to 1; it may come from generation_config.json or from the server.",
    ),
    "recent_repetition": _cause(
        "repetition-penalty", "The {side} applies a repetition penalty to recent tokens",
        "{value}",
        "Set repetition_penalty to 1, or score with the same penalty and window (llama.cpp: "
        "repeat_last_n).",
    ),
    "presence_penalty": _cause(
        "presence-penalty", "The {side} applies a presence penalty",
        "a presence penalty of {value}",
        "Set presence_penalty to 0; it may come from the server's defaults.",
    ),
    "frequency_penalty": _cause(
        "frequency-penalty", "The {side} applies a frequency penalty",
        "a frequency penalty of {value}",
        "Set frequency_penalty to 0; it may come from the server's defaults.",
    ),
    "min_tokens": _cause(
        "min-tokens", "The {side} forbids early end tokens",
        "no end token before position {value}",
        "Set min_tokens to 0, or exclude these positions from the loss.",
    ),
    "logit_bias": _cause(
        "logit-bias", "The {side} biases or bans tokens", "a logit bias on {value}",
        "Remove logit_bias, bad_words and banned tokens from the sampling settings.",
    ),
}  # fmt: skip
_BY_SETTING = (  # the first match counts: `norm_topk_prob` is no number of experts
    (r"norm_topk_prob|routed_scaling", "router-weights", "The {side} weights experts differently",
     "Give both engines the same norm_topk_prob and routed_scaling_factor."),
    (r"group", "router-groups", "The {side} routes among other groups of experts",
     "Give both engines the same n_group and topk_group."),
    (r"top_?k|experts_per_tok", "router-top-k", "The {side} uses another number of experts",
     "Give both engines the same number of experts per token."),
    (r"attn.*cap", "attention-soft-cap", "The {side} soft-caps attention differently",
     "Use an attention kernel that supports attn_logit_softcapping, on both sides."),
    (r"final.*cap|logit.*cap", "logit-soft-cap", "The {side} soft-caps logits differently",
     "Apply final_logit_softcapping on both sides, before the temperature."),
    (r"window", "sliding-window", "The {side} uses another sliding window",
     "Give both engines the same sliding_window, or disable it on both sides."),
    (r"(rope|rotary)\w*interleave", "rope-layout", "The {side} pairs rotary dimensions differently",
     "Check the conversion of query and key weights between interleaved and half-split rotary "
     "layouts."),
    (r"embed", "embedding-scale", "The {side} scales embeddings differently",
     "Check the embedding multiplier of both engines."),
)  # fmt: skip


def cause_of(edit: Edit) -> ComputedCause:
    """The cause that an edit stands for."""
    inner = inner_edit(edit)
    if inner is not None:
        return cause_of(inner)
    name, value = edit[0], json.loads(edit[1])
    if name in _BY_VALUE:
        return _BY_VALUE[name](*value)
    if name in ("site_change", "site_scale", "site_scales"):
        return cause_of_site(name, str(value[0]), value[1])
    if name == "rank_part":
        return cause_of_rank_part(str(value[0]), str(value[1]))
    if name == "operation":
        return cause_of_operation(str(value[0]), str(value[1]))
    special = cause_of_value(name, value)
    if special is not None:
        return special
    known = _BY_NAME.get(name)
    return known or ComputedCause(
        name, f"The {{side}} differs in {name}", f"{name} {{value}}", _CHECK
    )


def _of_parameter(name: str, factor: float) -> ComputedCause:
    """The cause of a parameter per head that is left out, or added twice."""
    if factor != 0:
        title = f"The {{side}} applies {name} more than once"
        remedy = f"Add {name} once: in the projection before the kernel, or in the kernel."
        return ComputedCause("bias-scale", title, "", remedy)
    cause = "missing-skip" if name == "D" else "missing-bias"
    return ComputedCause(
        cause, f"The {{side}} lacks {name}", "",
        f"Check that the engine loads {name} and passes it to its kernel, with the shape that the "
        "kernel expects (one number per head or per channel).",
    )  # fmt: skip


def _of_setting(attribute: str, _value: object) -> ComputedCause:
    for pattern, identity, title, remedy in _BY_SETTING:
        if re.search(pattern, attribute):
            return ComputedCause(identity, title, "{value}", remedy)
    title = f"The {{side}} uses another {attribute}"
    return ComputedCause("model-config", title, "{value}", _CHECK)


def _of_pattern(pattern: str, _change: object) -> ComputedCause:
    """The cause of a pattern of layers that is read otherwise."""
    if re.search(r"rope|rotary", pattern):
        return ComputedCause(
            "rope-layers", "The {side} rotates queries and keys in other layers", "",
            "Give both engines the same list of layers without rotary positions.",
        )  # fmt: skip
    if pattern.startswith("is_"):  # masks follow the configuration: positions may follow this flag
        return ComputedCause(
            "model-config", f"The {{side}} reads {pattern} differently in some layers", "",
            "Give both engines the same layer_types or sliding-window pattern, and check what else "
            "depends on it: layers with full attention often have no rotary positions.",
        )  # fmt: skip
    if pattern == "*" or re.search(r"window|sliding|layer_types?|attention_type", pattern):
        return ComputedCause(
            "sliding-window", "The {side} assigns kinds of attention to other layers", "",
            "Give both engines the same layer_types or sliding-window pattern.",
        )  # fmt: skip
    return ComputedCause(
        "model-config", f"The {{side}} assigns {pattern} to other layers", "", _CHECK
    )


def _of_part(block: str, factor: float) -> ComputedCause:
    part = block_in_words(block)
    if factor != 0:
        where = f"{VALUES_OR if sums_values(block) else ''}the output of {part}"
        return ComputedCause(
            "residual-scale", f"The {{side}} scales {where} differently", "",
            "Check residual multipliers, and scales that a loader folds into weights.",
        )  # fmt: skip
    kind = "experts" if "expert" in part else "module"
    return ComputedCause(
        f"missing-{kind}", f"The {{side}} adds nothing from {part}", "",
        "Check that the engine's implementation of this model family computes this part, and that "
        "it loads all of its weights: zeros in one projection have the same effect.",
    )  # fmt: skip


_BY_VALUE: dict[str, Callable[..., ComputedCause]] = {
    "layer_pattern": _of_pattern,
    "layer_scale": _of_part,
    "output_scale": _of_part,
    "parameter_scale": _of_parameter,
    "setting": _of_setting,
}
"""By the edit's name, from its pair of a name and a value."""
