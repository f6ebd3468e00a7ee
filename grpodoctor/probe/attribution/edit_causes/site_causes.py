"""The causes that generic edits of modules, and edits of the connections of blocks, stand for."""

from __future__ import annotations

import re
from typing import Any

from grpodoctor.probe.attribution.edit_causes.computed_cause import ComputedCause
from grpodoctor.probe.attribution.edit_causes.structure_causes import VALUES_OR, sums_values
from grpodoctor.probe.attribution.edits import shown

_COMPARE = (
    "Feed one response to both engines, and compare what this module reads and returns in each."
)
_QUERIES = r"(^|[._])(q|k|query|key)(_[ab])?_?(proj|norm|layernorm|lin)?$"
_SUMMED = r"(v_proj|o_proj|out_proj|down_proj|up_proj|fc[12]|c_proj|dense\w*|attn|attention|mlp)$"
WIRED: dict[str, ComputedCause] = {
    "norm_place": ComputedCause(
        "norm-placement", "The {side} applies norms at another place", "{value}",
        "Check whether this family normalizes what a block reads or what it returns, and that the "
        "residual is added after that.",
    ),
    "residual_from": ComputedCause(
        "residual-source", "The {side} adds another residual", "{value}",
        "Check which tensor is kept as residual: the one before the norm, not its output, and not "
        "a buffer that a fused kernel overwrites.",
    ),
    "row_order": ComputedCause(
        "embedding-order", "The {side} stores tokens in another order", "{value}",
        "Compare the ids of added and special tokens in the tokenizer and in the conversion of the "
        "embeddings and the output head.",
    ),
    "function_name": ComputedCause(
        "activation", "The {side} uses another activation function", "{value}",
        "Check which activation is passed to the fused kernel, and whether it applies one.",
    ),
    "logit_cap_product": ComputedCause(
        "logit-soft-cap", "The {side} soft-caps logits with another formula",
        "logits times tanh(logits / {value})",
        "A soft-cap is cap * tanh(logits / cap): check the factor before the hyperbolic tangent.",
    ),
    "site_bound": ComputedCause(
        "activation-limit", "The {side} bounds values inside of the model", "{value}",
        "Check for a clamp, a saturated number format, or a limit of the model's configuration. "
        + _COMPARE,
    ),
}  # fmt: skip
"""By the edit's name."""


def cause_of_site(name: str, site: str, value: Any) -> ComputedCause:
    """The cause of a change at a site."""
    where = site_in_words(site)
    path = site.rpartition("/")[0].rpartition(":")[2]
    if name in ("site_scale", "site_scales"):
        identity = _scale_id(path)
        # Factors on queries and on keys have the same effect.
        what = f"{VALUES_OR if sums_values(path) else ''}{where}"
        what = "queries or keys" if identity == "attention-scale" else what
        return ComputedCause(
            identity, f"The {{side}} scales {what} differently", "",
            "Check scales of quantized weights and caches that a loader applies or leaves out, and "
            "multipliers of the configuration. " + _COMPARE,
        )  # fmt: skip
    if site.endswith("/weight") and (cause := _of_weight(path, str(value), where)):
        return cause
    kinds = {
        r"^of |^skipped$": ("activation", "applies another function in"),
        r"^again$": ("norm-twice", "normalizes twice in"),
        r"^(reversed|halves|in turn|in halves|shifted)$": ("tensor-order", "orders the units of"),
        r"^(bfloat16|fp8|int8)": ("precision", "rounds"),
        r"^(normed|centered)$": ("extra-norm", "normalizes"),
        r"^(plus|minus) input$": ("residual-source", "adds the input to"),
        r"^before$": ("position-ids", "shifts by a position"),
        r"^negated$": (_scale_id(path), "changes the sign of"),
    }
    for pattern, (identity, verb) in kinds.items():
        if re.search(pattern, str(value)):
            return ComputedCause(identity, f"The {{side}} {verb} {where}", "", _COMPARE)
    return ComputedCause("activation", f"The {{side}} applies a function to {where}", "", _COMPARE)


def cause_of_rank_part(site: str, change: str) -> ComputedCause:
    """The cause of a part of projections that belongs to one tensor-parallel rank."""
    where = site_in_words(f"{site}/weight")
    if change.startswith("lost"):
        return ComputedCause(
            "lost-part", f"The {{side}} lacks a rank's part of {where}", "",
            "Check what each tensor-parallel rank loads, and that a sync reaches every rank.",
        )  # fmt: skip
    return ComputedCause(
        "weight-layout", f"The {{side}} reads another rank's part of {where}", "",
        "Check which shard each tensor-parallel rank loads or receives: its rank within its "
        "group, not the first one's.",
    )  # fmt: skip


def rank_part_in_words(site: str, change: str) -> str:
    """A change of ranks' parts, for a sentence."""
    where, (how, _, part) = site_in_words(f"{site}/weight"), change.partition(" ")
    if how == "lost":
        number, _, count = part.partition("/")
        return f"the part of rank {number} of {count} of {where} set to zero"
    source = "first" if how == "first" else "next"
    return f"{where} with the part of the {source} of {part} ranks on each rank"


def _of_weight(path: str, change: str, where: str) -> ComputedCause | None:
    """The cause of a parameter with other values."""
    if re.match(r"(int|fp|mxfp|nvfp|bfloat)\d", change):
        return ComputedCause(
            "quantisation", f"The {{side}} quantizes {where}", "",
            "Load the same unquantized weights in both engines, or correct with truncated "
            "importance sampling.",
        )  # fmt: skip
    if change in ("reversed", "shifted") and "conv" in path and "bias" not in path:
        return ComputedCause(
            "conv-taps", f"The {{side}} orders the taps of {where} differently", "",
            "Check whether the kernel computes a convolution or a cross-correlation, and which tap "
            "belongs to the present token.",
        )  # fmt: skip
    if change in ("plus one", "minus one") and "norm" in path:
        return ComputedCause(
            "norm-offset", f"The {{side}} shifts {where}", "",
            "Check the convention for norm weights: some families store w, others w - 1.",
        )  # fmt: skip
    if change in ("plus one", "minus one", "exponential", "logarithm", "softplus", "absolute"):
        return ComputedCause(
            "stored-convention", f"The {{side}} reads {where} in another convention", "",
            "Check what the checkpoint stores: the value, its logarithm, or the value less one.",
        )  # fmt: skip
    return None


def _scale_id(path: str) -> str:
    last = path.rpartition(".")[2]
    if re.search("rotary|rope", last):  # before the embeddings: it often is `rotary_emb`
        return "rope-scaling"
    if path.startswith("^"):
        if re.search("pos|wpe", last):
            return "position-embedding"
        return "embedding-scale" if re.search("emb|wte", last) else "logit-scale"
    if re.search(_QUERIES, last):
        return "attention-scale"
    return "residual-scale" if re.search(_SUMMED, last) else "tensor-scale"


def site_in_words(site: str) -> str:
    """`3:mlp.down_proj/in` in words."""
    path, _, end = site.rpartition("/")
    layer, _, name = path.rpartition(":")
    if path.startswith("^"):
        where = path[1:]
    elif name == "*":
        where = f"all projections of {f'layer {layer}' if layer else 'every layer'}"
    elif name.endswith(".*"):
        everywhere = f"layer {layer}" if layer else "every layer"
        where = f"all weights in {name.removesuffix('.*')} of {everywhere}"
    else:
        everywhere = f"layer {layer}" if layer else "every layer"
        where = f"{name} of {everywhere}" if name else everywhere
    return {"out": "the output of ", "in": "the input of "}.get(end, "") + where


def scaled_in_words(site: str, factors: Any) -> str:
    """A factor, or one for each layer."""
    if isinstance(factors, list):
        return f"{site_in_words(site)} times {', '.join(map(shown, factors))} by layer"
    return f"{site_in_words(site)} times {shown(factors)}"


def norm_place_in_words(norm: str, place: str) -> str:
    """Where a norm is applied."""
    where = "before and after its block" if place == "both" else f"{place} its block"
    return f"{'every norm' if norm == '*' else norm} applied {where}"


def residual_in_words(block: str, form: str) -> str:
    """Which residual is added."""
    of = "every block" if block == "*" else block
    return {
        "normed": f"the residual around {of} taken after its norm",
        "missing": f"no residual around {of}",
        "twice": f"the residual around {of} added twice",
        "parallel": f"{of} reading what its layer reads",
    }.get(form, f"residual {form} around {of}")


def rows_in_words(table: str, order: str) -> str:
    """Which rows are in which order."""
    part, _, how = order.partition(" ")
    number, _, count = part.partition("/")
    rows = "all rows" if count == "1" else f"part {number} of {count} of the rows"
    return f"{rows} of the {table} in another order ({how})"
