"""The causes that edits of masks, norms, routers and the layout of weights stand for."""

from __future__ import annotations

from grpodoctor.probe.attribution.computed_cause import ComputedCause

STRUCTURE: dict[str, ComputedCause] = {
    "generated": ComputedCause(
        "generation-path", "The {side} generates differently than it scores",
        "prompt and response read in two passes with a cache",
        "The model itself computes other values with a cache than in one pass, such as from a "
        "length that counts padding. Score along the same path, or correct the implementation.",
    ),
    "kv_saturation": ComputedCause(
        "kv-cache", "The {side}'s key-value cache clips large values",
        "keys and values in fp8 that end at ±{value}",
        "Calibrate the scales of the fp8 cache (k_scale, v_scale), compute them at run time, or "
        "keep the cache in the precision of the model.",
    ),
    "split_attention": ComputedCause(
        "attention-merge", "The {side} merges two parts of attention with wrong weights",
        "attention to the first {value} tokens merged with the rest by base-2 logarithms",
        "Check the log-sum-exp that the attention kernel returns: base 2 in FlashInfer, natural in "
        "merges of prefixes, chunks and context-parallel ranks.",
    ),
    "open_prompt": ComputedCause(
        "causal-mask", "The {side} reads prompts without a causal mask",
        "tokens of the prompt that see its later tokens",
        "Pass a causal mask when the prompt is read: a kernel without a mask sees all tokens.",
    ),
    "norm_mean": ComputedCause(
        "norm-type", "The {side} computes another kind of norm",
        "norms {value} the mean subtracted",
        "Use a layer norm where the family has one, and a root-mean-square norm elsewhere.",
    ),
    "norm_group_width": ComputedCause(
        "norm-groups", "The {side} normalizes over groups of another width",
        "norms over groups of {value}",
        "Pass the number of groups to the norm; with tensor parallelism divide width and number "
        "alike.",
    ),
    "unweighted_norm": ComputedCause(
        "norm-weights", "The {side} ignores the weights of a norm",
        "the weights of {value} left out",
        "Check that the engine loads the weights of this norm and passes them to its kernel.",
    ),
    "weight_layout": ComputedCause(
        "weight-layout", "The {side} reads the rows of a fused projection in another order",
        "{value}",
        "Check the conversion of the checkpoint: gate and up projection in halves or in turn, and "
        "queries, keys and values in blocks or in groups.",
    ),
    "position_limit": ComputedCause(
        "position-ids", "The {side} has no positions after a limit",
        "position {value} for all later tokens",
        "Make the table of positions or rotary sines and cosines as long as the context.",
    ),
    "router_place": ComputedCause(
        "router-weights", "The {side} applies the router's weights at another place",
        "the {value} of experts scaled by the router",
        "Scale the inputs of experts where the family does (apply_router_weight_on_input), and "
        "their outputs elsewhere; apply the weights once.",
    ),
    "router_groups": ComputedCause(
        "router-groups", "The {side} chooses groups of experts by another score",
        "groups of experts chosen by their best {value}",
        "Choose groups by the sum of their two best experts where scores have a correction bias "
        "(DeepSeek-V3), and by the best one in DeepSeek-V2.",
    ),
}  # fmt: skip
"""By the name of the edit."""


def layout_in_words(name: str, form: str) -> str:
    """An order of rows, for a sentence."""
    if name == "qkv":
        one, other = ("blocks", "groups") if form == "groups" else ("groups", "blocks")
        return f"queries, keys and values stored in {one} and read in {other}"
    orders = {
        "in turn": f"rows of {name} stored in turn and read as halves",
        "halves": f"rows of {name} stored as halves and read in turn",
    }
    return orders.get(form, f"the halves of {name} exchanged")
