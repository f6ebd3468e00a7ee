"""What an engine did with a what-if edit, in words for a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edit_causes.operation_causes import operation_in_words
from grpodoctor.probe.attribution.edit_causes.site_causes import (
    norm_place_in_words,
    rank_part_in_words,
    residual_in_words,
    rows_in_words,
    scaled_in_words,
    site_in_words,
)
from grpodoctor.probe.attribution.edit_causes.structure_causes import (
    block_in_words,
    experts_in_words,
    jump_in_words,
    layout_in_words,
    lost_experts_in_words,
)
from grpodoctor.probe.attribution.edit_causes.update_causes import (
    coarse_update_in_words,
    moved_update_in_words,
    partial_update_in_words,
    scaled_update_in_words,
)
from grpodoctor.probe.attribution.edits import (
    IN_PREFIX,
    IN_PROMPT,
    IN_RESPONSE,
    Edit,
    inner_edit,
    shown,
)

_BANNED = -100.0
"""A bias that leaves a token no probability."""

_PHASES = {
    IN_PROMPT: "the prompt is read",
    IN_PREFIX: "the cached part of the prompt is read",
    IN_RESPONSE: "tokens are generated",
}


def described(edit: Edit) -> str:
    """What the engine did with the edit, for a sentence."""
    inner = inner_edit(edit)
    if inner is not None:
        return f"{described(inner)}, only while {_PHASES[edit[0]]},"
    name, value = edit[0], json.loads(edit[1])
    if name == "logit_bias" and all(bias <= _BANNED for _, bias in value):
        return f"the tokens {', '.join(str(token) for token, _ in value)} banned"
    if name == "rope_layout" and value == "last":
        return "the last dimensions of each head rotated"
    if name == "kv_cache" and " in " in value:
        return str(value)
    if name in _PAIRED:
        return _PAIRED[name](str(value[0])).format(shown(value[1]))
    if name in _WORDED:
        return _WORDED[name](*value)
    return cause_of(edit).change.format(value=shown(value))


_PAIRED: dict[str, Callable[[str], str]] = {
    "adapter_part": lambda part: f"{part} of the adapter times {{}}",
    "bias_scale": lambda names: f"the biases of {names.replace(',', ' and ')} times {{}}",
    "dry_penalty": lambda start: (
        f"a DRY penalty of {{}} from {start.split('/')[0]} repeated tokens on, base "
        f"{start.split('/')[1]}"
    ),
    "expert_scale": lambda part: f"the outputs of part {part} of the experts times {{}}",
    "layer_rope_base": lambda kind: f"rope base {{}} in layers with {kind.replace('_', ' ')}",
    "layer_rope_scaling": lambda kind: (
        f"positions divided by {{}} in layers with {kind.replace('_', ' ')}"
    ),
    "mean_rows": lambda table: (
        f"the rows of the {table} from token {{}} on at the mean of the others"
    ),
    "layer_scale": lambda block: f"the output of {block_in_words(block)} times {{}}",
    "position_jump": jump_in_words,
    "parameter_scale": lambda name: f"{name} times {{}}",
    "part_frequency": lambda part: f"a frequency penalty of {{}} on {_counted(part)}",
    "part_presence": lambda part: f"a presence penalty of {{}} on {_counted(part)}",
    "part_repetition": lambda part: f"a repetition penalty of {{}} on tokens of the {part} only",
    "recent_repetition": lambda last: f"a repetition penalty of {{}} on the last {last} tokens",
    "output_scale": lambda block: f"the output of {block_in_words(block)} times {{}}",
    "rope_amplitude": lambda kind: (
        f"sines and cosines times {{}} in {kind.replace('_', ' ')} layers"
    ),
    "rope_part": lambda part: f"the {part} of rotary positions times {{}}",
    "rope_parameter": lambda name: f"{name} {{}} in the scaling of rotary positions",
    "setting": lambda name: f"{name} {{}}",
    "update_part": partial_update_in_words,
    "update_scale": scaled_update_in_words,
}
"""Edits of a name and a number: from the name, the sentence with a place for the number."""


def _counted(part: str) -> str:
    """The tokens that a penalty counts."""
    if part == "both":
        return "tokens of the prompt, too"
    return "tokens of the prompt only" if part == "prompt" else f"the last {part} tokens"


def _like(kind: str, other: str) -> str:
    one, two = kind.replace("_", " "), other.replace("_", " ")
    return f"the rotary positions of {two} in layers with {one}"


def _vocabulary(part: str, added: float) -> str:
    number, _, count = part.partition("/")
    return f"{shown(added)} added to the logits of part {number} of {count} of the vocabulary"


def _lost(block: str, part: str) -> str:
    number, _, count = part.partition("/")
    where = "" if "." in block else " of every layer"
    return f"part {number} of {count} of the sum in {block_in_words(block)}{where} left out"


def _other_layer(layer: str, source: str) -> str:
    if source.startswith("swap "):
        return f"the weights of layers {layer} and {source[5:]} exchanged"
    return f"the weights of layer {source} in layer {layer}"


def _sibling(place: str, source: str) -> str:
    if source.startswith("swap "):
        return f"the weights of {_placed(place)} and {source[5:]} exchanged"
    return f"the weights of {source} in {_placed(place)}"


def _placed(place: str) -> str:
    """`*.o_proj` or `1.self_attn.o_proj` in words."""
    layer, _, name = place.partition(".")
    return f"{name} of every layer" if layer == "*" else f"{name} of layer {layer}"


def _pattern(name: str, change: Any) -> str:
    """How a pattern of layers is read, for a sentence."""
    what = "all patterns of layers" if name == "*" else name
    if isinstance(change, str):
        return f"{what} taken from the {change} layer"
    return f"{what} of layer {change} in all layers"


_SCALED_ONCE = {
    "unread": "keys and values in fp8 divided by {} when written, and not multiplied when read",
    "unwritten": "keys and values in fp8 multiplied by {} when read, and not divided when written",
}
_WORDED: dict[str, Callable[..., str]] = {
    "update_format": coarse_update_in_words,
    "update_moved": moved_update_in_words,
    "expert_sum": lambda _, which: f"only the output of each token's {which} expert",
    "bounded_cache": lambda first, last: (
        f"the first {first} and the last {shown(last)} tokens seen, none between"
    ),
    "cache_scale": lambda form, scale: _SCALED_ONCE[str(form)].format(shown(scale)),
    "experts_from": experts_in_words,
    "input_rotation": lambda name, size: (
        f"the inputs of {name} rotated in blocks of {shown(size)} (Hadamard)"
    ),
    "weight_saturation": lambda scale, share: (
        f"weights in fp8 cut at {shown(share)} of the largest of each {scale}"
    ),
    "layer_from": _other_layer,
    "layer_pattern": _pattern,
    "layer_rope_like": _like,
    "lost_experts": lost_experts_in_words,
    "lost_part": _lost,
    "rank_part": rank_part_in_words,
    "rolled_heads": lambda name, far: (
        f"{name} shifted by {shown(far)} heads"
        if far > 0
        else f"{name} of the first of {-far} ranks on all of them"
    ),
    "function_name": lambda name, function: f"{name} {function or 'without a function'}",
    "norm_place": norm_place_in_words,
    "residual_from": residual_in_words,
    "operation": operation_in_words,
    "part_products": lambda part, form: f"{part} and what it reads in {shown(form)}",
    "part_rounding": lambda part, form: f"the weights of {part} in {shown(form)}",
    "row_order": rows_in_words,
    "site_bound": lambda site, most: f"{site_in_words(site)} within ±{shown(most)}",
    "site_change": lambda site, change: f"{site_in_words(site)} changed: {change}",
    "site_scale": scaled_in_words,
    "site_scales": scaled_in_words,
    "transposed": lambda place, _: f"{_placed(place)} transposed",
    "vocabulary_part": _vocabulary,
    "weight_layout": layout_in_words,
    "weights_from": _sibling,
}
"""Edits whose value is a pair, in words."""
