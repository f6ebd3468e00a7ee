"""The causes that edits of masks, norms, routers and the layout of weights stand for."""

from __future__ import annotations

import re

from grpodoctor.probe.attribution.edit_causes.computed_cause import ComputedCause

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
    "cache_scale": ComputedCause(
        "kv-cache", "The {side} applies the scale of its fp8 key-value cache once", "{value}",
        "Keys and values must be read with the scale with which they were written: check k_scale "
        "and v_scale after each weight sync, and that the attention kernel reads them.",
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
    "mask_border": ComputedCause(
        "mask-border", "The {side} masks one token more or less",
        "the mask's border moved ({value})",
        "Check whether the causal mask or the window includes each token itself, and nothing after "
        "it: j <= i, and i - j < window.",
    ),
    "expert_sum": ComputedCause(
        "expert-accumulation", "The {side} keeps one expert's output of each token", "{value}",
        "Check that the outputs of a token's experts are added, and do not overwrite each other.",
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
        "weight-layout", "The {side} reads the rows of a projection in another order",
        "{value}",
        "Check the conversion of the checkpoint and the split among ranks: gate and up projection "
        "in halves or in turn; queries, keys and values in blocks or in groups, each split by "
        "itself, permuted for its own number of heads.",
    ),
    "rolled_heads": ComputedCause(
        "head-order", "The {side} uses the parameters of other heads",
        "{value}",
        "Check how parameters with one number per head (A_log, dt_bias, sinks) are split among "
        "ranks and converted.",
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
    "router_input": ComputedCause(
        "router-input", "The {side} gives routers another input", "the input of routers {value}",
        "Check which tensor the router reads: before or after the norm of its block, and whether "
        "the router has a norm of its own, so that a normed input is normed twice.",
    ),
    "router_scores": ComputedCause(
        "router-scoring", "The {side} scores experts with another function",
        "experts scored by a {value}",
        "Give both engines the router's function of the checkpoint (scoring_func): a softmax over "
        "all experts, or a sigmoid of each.",
    ),
    "router_groups": ComputedCause(
        "router-groups", "The {side} chooses groups of experts by another score",
        "groups of experts chosen by their best {value}",
        "Choose groups by the sum of their two best experts where scores have a correction bias "
        "(DeepSeek-V3), and by the best one in DeepSeek-V2.",
    ),
    "bounded_cache": ComputedCause(
        "cache-eviction", "The {side} sees the first and the last tokens only", "{value}",
        "Turn off context shift and streaming eviction of the key-value cache (llama.cpp: "
        "--context-shift, --keep), or give the cache room for the longest response.",
    ),
    "expert_scale": ComputedCause(
        "expert-scale", "The {side} adds the outputs of some experts with another factor",
        "{value}",
        "At a factor of 2, check redundant experts (EPLB): each logical expert runs on one of its "
        "replicas, and all ranks choose the same. Otherwise compare per-expert scales.",
    ),
    "input_rotation": ComputedCause(
        "weight-rotation", "The {side} lacks a rotation, or has one more", "{value}",
        "Weights that were rotated against outliers (QuaRot, SpinQuant) need the same Hadamard "
        "rotation of their inputs at run time, with the same block size.",
    ),
    "rope_part": ComputedCause(
        "rope-rotation", "The {side} reads wrong sines or cosines", "{value}",
        "Check the offsets and the width with which the kernel reads its table: the sines begin "
        "at half of the rotated width, not of a padded one.",
    ),
    "weight_saturation": ComputedCause(
        "quantisation", "The {side} cuts the largest quantized weights", "{value}",
        "Compute the scales of fp8 weights for the largest number of the format: 448 for E4M3, "
        "240 for E4M3FNUZ (MI300).",
    ),
    "adapter_moved": ComputedCause(
        "adapter", "The {side} adds updates of the LoRA adapter to other weights",
        "updates of the adapter moved ({value})",
        "Check how the engine maps the adapter's names to numbered layers and to slices of fused "
        "projections (packed_modules_mapping); merge the adapter, and compare.",
    ),
    "adapter_part": ComputedCause(
        "adapter", "The {side} applies parts of the LoRA adapter with different factors",
        "{value}",
        "At a factor of 0 the engine drops this part without a word: check that it supports the "
        "adapter's target modules under these names (vLLM: lora_target_modules) and its rank "
        "(max_lora_rank). Otherwise compare alpha, rank and scaling of this part; or merge the "
        "adapter.",
    ),
    "experts_from": ComputedCause(
        "expert-order", "The {side} gives experts the weights of other ones", "{value}",
        "Check the map from the routers' ids to the loaded experts: expert parallelism, redundant "
        "experts and load balancing (EPLB) move weights, and routes must follow.",
    ),
    "gated_norm": ComputedCause(
        "gated-norm", "The {side} gates the input of a norm at another place",
        "the gate applied {value} the norm",
        "Check norm_before_gate: state-space layers of most families multiply by the gate first.",
    ),
    "lost_experts": ComputedCause(
        "missing-experts", "The {side} leaves experts out of the sum", "{value}",
        "Check expert parallelism: each expert is loaded on one rank, the sum over ranks has all, "
        "and experts that return their input (zero experts) are added, too.",
    ),
    "cache_hole": ComputedCause(
        "cache-hole", "The {side} leaves a slot of its key-value cache unwritten",
        "a slot of zeros between prompt and response that attention sees",
        "Check the number of tokens in the cache when decoding begins: the first new token is "
        "written, and has its position, right after the prompt.",
    ),
    "embedding_end": ComputedCause(
        "embedding-rows", "The {side} lacks the embeddings of the last tokens",
        "the embeddings of tokens from {value} on set to zero",
        "Check how embeddings are divided among ranks if their number is no multiple of the ranks, "
        "and which rows a resized vocabulary initializes; often these are the chat template's "
        "tokens.",
    ),
    "mean_rows": ComputedCause(
        "embedding-rows", "The {side} has the mean of all rows in place of those of some tokens",
        "{value}",
        "Check the sync of rows that a resized vocabulary adds (embeddings and output head): they "
        "begin at the mean of the others, and the trained ones must replace them.",
    ),
    "rotation_limit": ComputedCause(
        "position-ids", "The {side} does not rotate positions after a limit",
        "no rotation from position {value} on",
        "Make the table of rotary sines and cosines as long as the context.",
    ),
    "part_rounding": ComputedCause(
        "quantisation", "The {side}'s weights of one kind of part are quantized", "{value}",
        "Exclude this part from the quantization or conversion, or convert it on both sides.",
    ),
    "part_products": ComputedCause(
        "quantisation", "The {side} multiplies in a coarser format in one kind of part", "{value}",
        "Exclude this part from the quantization or conversion, or convert it on both sides.",
    ),
    "latent_cache": ComputedCause(
        "kv-cache", "The {side}'s compressed keys and values are quantized",
        "compressed keys and values in {value}",
        'Keep the cache in the precision of the model (vLLM: kv_cache_dtype="auto").',
    ),
    "linear_rounding": ComputedCause(
        "quantisation", "The {side} multiplies in 8 bits",
        "weights and inputs of linear layers rounded to {value}",
        "Load unquantized weights, or quantize weights only; otherwise correct with truncated "
        "importance sampling.",
    ),
    "part_repetition": ComputedCause(
        "repetition-penalty", "The {side} applies a repetition penalty to a part of the tokens",
        "{value}",
        "Set repetition_penalty to 1. Some engines penalize the prompt's tokens, some only the "
        "generated ones, and asynchronous scheduling may leave the latter out.",
    ),
    "part_presence": ComputedCause(
        "presence-penalty", "The {side} applies a presence penalty to other tokens",
        "{value}",
        "Set presence_penalty to 0, or count the same tokens on both sides: some engines count "
        "the prompt, too, or only the last tokens.",
    ),
    "part_frequency": ComputedCause(
        "frequency-penalty", "The {side} applies a frequency penalty to other tokens",
        "{value}",
        "Set frequency_penalty to 0, or count the same tokens on both sides: some engines count "
        "the prompt, too, or only the last tokens.",
    ),
    "no_repeat_ngram": ComputedCause(
        "no-repeat-ngram", "The {side} forbids tokens that would repeat an n-gram",
        "no repeated n-gram of {value} tokens",
        "Set no_repeat_ngram_size to 0 in the sampler; a learner cannot apply it.",
    ),
    "dry_penalty": ComputedCause(
        "dry-penalty", "The {side} penalizes tokens that continue a repetition (DRY)",
        "{value}",
        "Set dry_multiplier to 0 in the sampler; a learner cannot apply it.",
    ),
    "vocabulary_shards": ComputedCause(
        "local-normaliser", "The {side} normalizes over a part of the vocabulary",
        "log-probabilities normalized over the token's own part of {value}",
        "Sum the normalizer of the log-softmax over all tensor-parallel ranks, or gather the "
        "logits before it.",
    ),
    "norm_rounding": ComputedCause(
        "precision", "The {side} computes norms in another precision", "norms in {value}",
        "Compute norms in float32 on both sides: sums of squares lose much in 16 bits.",
    ),
    "position_jump": ComputedCause(
        "position-ids", "The {side} counts positions of the prompt differently from a place on",
        "{value}",
        "Check the positions after a cached prefix or a chunk of the prompt: they continue at the "
        "number of tokens before, whatever was read from the cache.",
    ),
    "rope_parameter": ComputedCause(
        "rope-scaling", "The {side} scales rotary positions by another number", "{value}",
        "Give both engines the same rope_parameters (rope_scaling): method, factor and the "
        "context before the scaling.",
    ),
    "attention_chunk": ComputedCause(
        "chunked-attention", "The {side} attends within chunks only",
        "attention within chunks of {value} tokens",
        "Check chunked prefill and context parallelism: each chunk attends to the keys and values "
        "of all earlier ones, also those of other ranks.",
    ),
    "input_saturation": ComputedCause(
        "activation-quantisation", "The {side} cuts the inputs of projections in fp8",
        "inputs of projections in fp8 up to {value}",
        "Calibrate the scales of activations (input_scale) with this checkpoint, or scale them by "
        "token at run time.",
    ),
    "rope_amplitude": ComputedCause(
        "rope-scaling", "The {side} multiplies sines and cosines by another factor", "{value}",
        "Compare attention_factor, mscale and mscale_all_dim of the rope scaling on both sides: "
        "some engines ignore attention_factor and derive the factor from the scaling.",
    ),
    "sink_scale": ComputedCause(
        "attention-sinks", "The {side} scales the attention sinks", "attention sinks times {value}",
        "Check that the kernel converts sinks to the base of its logarithms, and does not multiply "
        "them by the softmax scale.",
    ),
    "sink_shift": ComputedCause(
        "attention-sinks", "The {side} shifts the attention sinks", "{value} added to sinks",
        "0.693: the sink is counted twice. Count it once when parts of attention are merged "
        "(split key-value cache, context parallelism).",
    ),
    "tied_head": ComputedCause(
        "tied-head", "The {side} uses the embeddings as output head", "the embeddings as head",
        "Check tie_word_embeddings, also in a nested text_config: the checkpoint has a head of its "
        "own, which the engine or a sync ignores.",
    ),
}  # fmt: skip
"""By the name of the edit."""


def jump_in_words(far: str) -> str:
    """A jump of positions, for a sentence with a place for the token's number."""
    if far == "again":
        return "positions counted from 0 again at token {}"
    return f"positions moved by {far} from token {{}} on"


def lost_experts_in_words(place: str, part: str) -> str:
    """Experts that are left out, for a sentence."""
    number, _, count = part.partition("/")
    which = f"part {number} of {count} of the experts" if count else "experts without weights"
    return f"{which}{_where(place)} left out"


def experts_in_words(place: str, order: str) -> str:
    """Experts with the weights of others, for a sentence."""
    one, found, other = order.partition("<>")
    if found:
        return f"the weights of experts {one} and {other}{_where(place)} exchanged"
    if order == "halves":
        return f"the halves of the experts{_where(place)} exchanged"
    if order == "reversed":
        return f"the experts{_where(place)} in reverse order"
    if " rank of " in order:
        return f"the experts{_where(place)} {order} on all of them"
    if " among " in order:
        return f"the experts{_where(place)} held {order} ranks and read the other way"
    return f"each expert{_where(place)} with the weights of the {order} one"


def _where(place: str) -> str:
    return "" if place == "*" else f" of layer {place}"


def layout_in_words(name: str, form: str) -> str:
    """An order of rows, for a sentence."""
    if form.startswith("split among "):
        what = "queries, keys and values" if name == "qkv" else name
        return f"the rows of {what} {form} ranks as a whole, not each part by itself"
    if " permuted for " in form:
        return f"the rows of {form} heads"
    if form.startswith("of the first of "):
        what = "queries, keys and values" if name == "qkv" else name
        return f"the rows of {what} {form} ranks on each of them"
    how, found, size = form.partition(" blocks of ")
    if found:
        stored, read = ("in turn", "as halves") if how == "in" else ("as halves", "in turn")
        return f"rows of {name} stored {stored} by blocks of {size} and read {read}"
    part, found, layout = form.partition(" in ")
    if found and layout in ("pairs", "halves"):
        of = f"{part} of queries and keys" if part in ("weights", "biases") else part
        return f"the rows of the {of} in the order for rotated {layout}"
    if name == "qkv":
        one, other = ("blocks", "groups") if form == "groups" else ("groups", "blocks")
        return f"queries, keys and values stored in {one} and read in {other}"
    orders = {
        "in turn": f"rows of {name} stored in turn and read as halves",
        "halves": f"rows of {name} stored as halves and read in turn",
    }
    return orders.get(form, f"the halves of {name} exchanged")


VALUES_OR = "the values or "
"""Before a place of `sums_values`."""


def sums_values(place: str) -> bool:
    """Whether a factor at a module equals one on the values of attention, which it sums."""
    return bool(re.search(r"(attn|attention|attn\.[vo]_proj|attention\.[vo]_proj)$", place))


def block_in_words(block: str) -> str:
    """`3.mlp` in words."""
    layer, _, name = block.rpartition(".")
    return f"{name} of layer {layer}" if layer else name
