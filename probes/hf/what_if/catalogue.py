"""The what-if edits that a model allows, with the values to try first."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from contract import InapplicableError

from hf.adapters import has_adapter, times_applied
from hf.routers import Routers
from hf.what_if import (
    adapter_places,
    exchanged,
    experts,
    head_parameters,
    layer_patterns,
    modules,
    norm_kinds,
    number_formats,
    part_rounding,
    parts,
    positions,
    rope_types,
    rotary_tables,
    router_choice,
    routing,
    row_orders,
    sites,
    weight_layout,
    wiring,
)
from hf.what_if.attention import CACHED
from hf.what_if.modules import activations, biases, layers, norms, owners_of
from hf.what_if.numerics import owned_weights
from hf.what_if.rounding import CACHE_SCALES, SCALED_ONCE

_FACTORS = (0.25, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 4.0)
_WINDOWS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_KEPT_FIRST = (1, 2, 4, 8, 16)
"""Tokens that a bounded cache keeps besides the last ones (attention sinks: 4)."""
_SPLITS = (4, 8, 16, 32, 64, 128, 256, 512)
_LIMITED = (0.001, 0.01, 0.1, 0.3, 1.0, 10.0)
"""For an end of a range, which often is 0 or infinite."""
_UNLIMITED = 1e9
"""A limit that no activation reaches."""
_SHARDS = (2, 4, 8, 16)
_COARSE_WINDOWS = _WINDOWS[1::2]  # for the many groups of layers; the search refines them
_ADAPTER = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_PART_COUNTS = (2, 4, 8, 16, 32)
_CAPS = (2.0, 5.0, 10.0, 20.0, 30.0, 50.0)
_BASES = (100.0, 500.0, 1e3, 3e3, 1e4, 5e4, 1e5, 5e5, 1e6, 1e7)
_SCALINGS = (0.25, 0.5, 2.0, 4.0, 8.0)
_PART_FACTORS = (0.0, 0.5, 2.0)
"""For sines or cosines alone: a kernel that reads zeros in place of one of them."""
_SLOPES = (-0.1, 0.01, 0.05, 0.1, 0.3, 1.0)
_FEW_LAYERS = 4
_RECENT = (8, 16, 32, 64, 128, 256, 512)
_DRY = tuple(f"{allowed}/{base}" for allowed in (2, 1, 3, 4) for base in (1.75, 1.5, 2.0))
"""Shortest repetition and base of the penalty DRY; the first ones are the defaults."""
_EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)
_ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "quick_gelu", "relu2")
_PARTS = (0.0, 0.5, 0.8, 1.25, 2.0)
_SITE_FACTORS = (0.0, 0.7, 1.4, -1.0)
_SITE_BOUNDS = (0.3, 1.0, 3.0)
_HALVES = ("bfloat16", "float16")
_CACHES = ("int8", "int8/column", "int8/tensor", "int4", "int4/column", "fp8", "fp8/tensor",
           "fp8/row", "fp8_e5m2", "bfloat16", "float16")  # fmt: skip
_WEIGHTS_OF_KEYS = ("bfloat16", "float16", "fp8", "fp8/row", "fp8_e5m2", "int8")
_SINK_SHIFTS = (-2.0, -math.log(2), math.log(2), 1.0, 2.0)  # ln 2: counted twice, or half
_SINK_FACTORS = (0.25, 0.5, math.log(2), 1 / math.log(2), 2.0, 4.0)
"""ln 2: a kernel with base-2 logarithms does not convert the sink."""
_AMPLITUDES = (0.7, 0.85, *(0.1 * math.log(factor) + 1 for factor in (4, 8, 16, 32, 64)), 2.0)
"""Factors that yarn derives from its scaling."""
_JUMPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_NOT_SETTINGS = (
    "dropout", "training", "_id", "initializer", "use_cache", "is_", "has_", "aux", "output_",
    "return_", "gradient", "tie_", "attention_scaling", "scaling_type", "cross", "pretraining",
    "inplace", "jitter", "version", "rope_theta", "_is_", "base_model",
)  # fmt: skip
"""Parts of the names of attributes that are bookkeeping, or covered by another edit."""
_SHAPES = (
    "vocab", "token", "layer", "hidden_size", "hidden_dim", "head_dim", "heads", "intermediate",
    "max_position", "dim", "features", "padding", "in_", "out_", "chunk", "num_experts",
    "num_local", "groups", "seq_len", "lora_rank", "rank", "inner", "size", "n_routed", "n_shared",
    "bos", "eos", "pad", "max_",
)  # fmt: skip
"""The same for whole numbers and flags that are shapes; a shape is no fraction."""


def what_ifs(model: Any) -> list[dict[str, Any]]:
    """Each edit as `{"name", "values", "kind", "now"}`.

    The kind is `choice`; or `number`, `integer` if values between those listed make sense. `now`
    is the value that changes nothing, None if unknown. The entry `tensors` lists the names of the
    tensors that the edit `other_weights` can take from another checkpoint.
    """
    listers = (_attention, _positions, _modules, _routing, _layer_patterns, _settings, _parts,
               _parts_in_formats, _wiring, _sites, number_formats.of_matrices)  # fmt: skip
    listed = [edit for lister in listers for edit in _known(lister, model)]
    listed += [*number_formats.listed(), *_processors()]
    found: list[dict[str, Any]] = [
        {"name": name, "values": list(values), "kind": kind, "now": _now(model, name, values)}
        for name, values, kind in listed
        if values
    ]
    names = [name for name, _, _, _ in owned_weights(model)]
    return [*found, {"name": "tensors", "values": names, "kind": "choice", "now": None}]


_Listed = Iterator[tuple[str, Any, str]]


def _known(lister: Callable[[Any], _Listed], model: Any) -> _Listed:
    """The edits up to a module of a form that no family had so far: the others remain."""
    try:
        yield from lister(model)
    except Exception as error:  # noqa: BLE001 - a family's code raises what it likes
        print(f"what-if edits {lister.__name__} are incomplete: {error}", flush=True)


_NEUTRAL = {
    "attention_scale": 1.0,
    "embedding_scale": 1.0,
    "rope_scaling": 1.0,
    "output_scale": 1.0,
    "distance_bias": 0.0,
    "adapter_part": 1.0,
    "alibi_factor": 1.0,
    "alibi_power": 1.0,
    "layer_rope_scaling": 1.0,
    "rope_amplitude": 1.0,
    "rope_part": 1.0,
    "expert_scale": 1.0,
    "sink_scale": 1.0,
    "site_scale": 1.0,
    "sink_shift": 0.0,
    "part_frequency": 0.0,
    "part_presence": 0.0,
    "part_repetition": 1.0,
    "recent_repetition": 1.0,
    "repetition_penalty": 1.0,
    "dry_penalty": 0.0,
    "presence_penalty": 0.0,
    "typical_p": 1.0,
    "frequency_penalty": 0.0,
    "bias_scale": 1.0,
    "layer_scale": 1.0,
    "uniform_share": 0.0,
    "vocabulary_part": 0.0,
}


def _now(model: Any, name: str, values: Any) -> float | None:
    """The value of a number that changes nothing."""
    if name == "setting":
        now = {**settings_of(model), **_limits_of(model)}.get(values[0][0])
        if isinstance(now, float) and not math.isfinite(now):
            return None
        return None if isinstance(now, bool) else now
    if name == "rope_parameter":
        return float(rope_types.own_parameters(model)[values[0][0]])
    if name == "norm_epsilon":
        first = next(module for _, module in norms(model))
        return float(next(getattr(first, e) for e in modules.EPSILONS if hasattr(first, e)))
    if name == "adapter":
        return float(times_applied(model))
    if name == "rope_base":
        parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
        theta = parameters.get("rope_theta")
        return float(theta) if isinstance(theta, int | float) else None
    return _NEUTRAL.get(name)


def _attention(model: Any) -> _Listed:
    context = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 8192)
    yield "window", [width for width in _WINDOWS if width < context], "integer"
    chunks = [width for width in _COARSE_WINDOWS if width < context]
    yield "attention_chunk", chunks, "integer"
    yield "full_attention", [True], "choice"
    yield "attention_scale", _FACTORS, "number"
    yield "attention_soft_cap", _CAPS, "number"
    yield "attention_soft_cap", [0.0], "choice"
    alone = [f"{each} in {form}" for each in CACHED for form in _CACHES]
    yield "kv_cache", [*_CACHES, *alone], "choice"
    yield "attention_weights", _WEIGHTS_OF_KEYS, "choice"
    yield "kv_saturation", number_formats.LIMITS, "number"
    yield from (("cache_scale", [[a, x] for x in CACHE_SCALES], "number") for a in SCALED_ONCE)
    yield "head_order", ["tiled", "reversed", "next", "first of 2", "last of 2"], "choice"
    yield "open_prompt", [True], "choice"
    yield "mask_border", ["self", "next", "later", "earlier"], "choice"
    yield "split_attention", [width for width in _SPLITS if width < context], "choice"
    yield "distance_bias", _SLOPES, "number"
    sinks = any(name.rpartition(".")[2] == "sinks" for name, _ in model.named_parameters())
    yield "without_sinks", [True] if sinks else [], "choice"
    yield "sink_shift", _SINK_SHIFTS if sinks else [], "number"
    yield "sink_scale", _SINK_FACTORS if sinks else [], "number"
    has_alibi = bool(positions.alibi_functions(model))
    yield "without_alibi", [True] if has_alibi else [], "choice"
    yield "alibi_factor", _FACTORS if has_alibi else [], "number"
    yield "alibi_power", [0.5, 2.0] if has_alibi else [], "number"
    for group in _layer_groups(model):
        yield "layer_window", [[group, width] for width in chunks], "integer"
    for first in _KEPT_FIRST:
        widths = [width for width in _WINDOWS if width < context]
        yield "bounded_cache", [[str(first), width] for width in widths], "integer"


def _sibling_norms(model: Any) -> list[str]:
    """The names of norms within one module of a layer, such as those of time steps, B and C."""
    by_parent: dict[str, dict[str, None]] = {}
    for path, _ in norms(model):
        parent, _, name = path.rpartition(".")
        if not parent.rpartition(".")[2].isdigit():  # a layer itself has the norms of its blocks
            by_parent.setdefault(parent, {})[name] = None
    return [",".join(names) for names in by_parent.values() if len(names) > 1]


def _layer_groups(model: Any) -> list[str]:
    """Every second layer, and in a small model each layer: window patterns differ by layer."""
    try:
        count = len(layers(model))
    except InapplicableError:
        return []
    return ["even", "odd", *(map(str, range(count)) if count <= _FEW_LAYERS else ())]


def _positions(model: Any) -> _Listed:
    limit = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 8192)
    for far in ("again", "1", "-1"):
        yield "position_jump", [[far, place] for place in _JUMPS if place < limit], "integer"
    if not positions.rotary_modules(model):
        yield "position_start", [-2, -1, 1, 2, 3, 4], "choice"
        layouts = ["interleaved", "halves"] if positions.rotations(model) else []
        yield "rope_layout", layouts, "choice"
        return
    yield "rope_base", _BASES, "number"
    yield "rope_scaling", _SCALINGS, "number"
    yield "rope_off", [True], "choice"
    for part in rotary_tables.ROTATED_BY:
        yield "rope_part", [[part, factor] for factor in _PART_FACTORS], "number"
    yield "rope_share", [0.25, 0.5, 0.75, -1.0], "choice"
    forms = [form + part for form in _HALVES for part in ("", "/frequencies")]
    yield "rope_precision", forms, "choice"
    for name in ("position_limit", "rotation_limit"):
        yield name, [far for far in _WINDOWS if far < limit], "integer"
    for kind in positions.amplitude_kinds(model):
        yield "rope_amplitude", [[kind, factor] for factor in _AMPLITUDES], "number"
    yield "qk_norm_order", ["after", "before"] if positions.qk_norms(model) else [], "choice"
    yield "rope_layout", positions.rope_layouts(model), "choice"
    kinds = [f"{kind}/{factor}" for kind in ("yarn", "llama3") for factor in (2, 4, 8)]
    yield "rope_type", [*rope_types.own_types(model), *kinds], "choice"
    for name, now in rope_types.own_parameters(model).items():
        yield "rope_parameter", [[name, now * factor] for factor in _FACTORS], "number"
    yield "rotary_width", _rotary_widths(model), "choice"
    kinds = positions.rotary_kinds(model)
    for kind in kinds:
        yield "layer_rope_like", [[kind, other] for other in kinds if other != kind], "choice"
        yield "layer_rope_base", [[kind, base] for base in _BASES], "number"
        yield "layer_rope_scaling", [[kind, value] for value in _SCALINGS], "number"


def _rotary_widths(model: Any) -> list[int]:
    """Numbers of rotated dimensions other than the model's."""
    now = 2 * getattr(*positions.rotary_modules(model)[0]).numel()
    sizes = [getattr(module, "head_dim", None) for module in model.modules()]
    most = max((size for size in sizes if isinstance(size, int)), default=now)
    return [width for width in (now // 4, now // 2, 2 * now, 4 * now) if 2 <= width <= most]


def _modules(model: Any) -> _Listed:
    yield from _embedding_and_norms(model)
    yield from _biases_and_activations(model)
    yield from _logits(model)
    yield from _adapters_and_heads(model)
    try:
        yield from _blocks(model)
    except InapplicableError:  # the model has no list of layers
        return


def _embedding_and_norms(model: Any) -> _Listed:
    root = model.config.get_text_config().hidden_size ** 0.5
    yield "embedding_scale", (*_FACTORS, root, 1 / root), "number"
    yield "embedding_end", head_parameters.ends(model), "integer"
    for table in row_orders.tables(model):
        yield "mean_rows", [[table, end] for end in head_parameters.ends(model)[1::2]], "integer"
    if norms(model):
        yield "norm_epsilon", _EPSILONS, "number"
        yield "norm_offset", [1.0, -1.0], "choice"
    yield "norm_mean", norm_kinds.mean_kinds(model), "choice"
    yield "norm_group_width", norm_kinds.group_widths(model), "choice"
    yield "unweighted_norm", norm_kinds.weighted(model), "choice"
    yield "gated_norm", ["after", "before"] if norm_kinds.gated(model) else [], "choice"
    yield "norm_rounding", _HALVES if norms(model) else [], "choice"
    leaves = list(dict.fromkeys(name.rpartition(".")[2] for name, _ in norms(model)))
    pairs = [",".join(leaf for leaf in leaves if leaf in pair) for pair in positions.QK_NORMS]
    together = [*(pair for pair in pairs if pair), *_sibling_norms(model)]
    yield "without_norm", list(dict.fromkeys([*together, *leaves])), "choice"


def _biases_and_activations(model: Any) -> _Listed:
    named = [name for name in biases(model) if "norm" not in name]
    yield "without_bias", [",".join(named), *named] if named else [], "choice"
    summed = parts.summed_biases(model)
    for names in dict.fromkeys((",".join(summed), *summed) if summed else ()):
        yield "bias_scale", [[names, factor] for factor in (2.0, 4.0, 8.0)], "number"
    if activations(model):
        yield "activation", _ACTIVATIONS, "choice"


def _logits(model: Any) -> _Listed:
    yield "logit_soft_cap", (*_CAPS, 100.0), "number"
    caps = [getattr(owner, name) for owner, name in modules.logit_caps(model)]
    yield "logit_cap_product", list(dict.fromkeys(caps)), "choice"
    yield "logit_clamp", _CAPS, "number"
    forms = [half + place for half in _HALVES for place in ("", "/inputs")]
    yield "logit_rounding", forms, "choice"


def _adapters_and_heads(model: Any) -> _Listed:
    times = [each for each in _ADAPTER if each != times_applied(model)]
    yield "adapter", times if has_adapter(model) else [], "number"
    yield "adapter_moved", adapter_places.moves(model), "choice"
    for part in adapter_places.parts(model):
        yield "adapter_part", [[part, factor] for factor in (0.0, 2.0)], "number"
    yield "tied_head", [True] if modules.has_own_head(model) else [], "choice"
    heads = [count for each in modules.wide_norms(model).values() for _, count in each]
    counts = sorted({count for count in (*_PART_COUNTS, *heads) if count <= max(heads, default=0)})
    yield "norm_parts", counts, "choice"
    yield "without_gate", modules.gates(model), "choice"


def _blocks(model: Any) -> _Listed:
    yield "open_gate", modules.gated_blocks(model), "choice"
    yield "residual_rounding", _HALVES, "choice"
    yield "missing_layer", list(range(len(layers(model)))), "choice"
    for layout in weight_layout.layouts(model):
        yield "weight_layout", [layout], "choice"
    yield "rolled_heads", head_parameters.rolls(model), "choice"
    for name in head_parameters.scaled(model):
        yield "parameter_scale", [[name, factor] for factor in (0.0, 2.0)], "choice"
    for name in modules.blocks(model):
        yield "output_scale", [[name, factor] for factor in _PARTS], "number"


def _routing(model: Any) -> _Listed:
    if Routers(model):
        forms = [f"{form}{part}" for form in _HALVES for part in ("", "/inputs")] + ["fp8", "int8"]
        yield "router_precision", forms, "choice"
        yield "router_place", routing.score_places(model), "choice"
        yield "router_input", router_choice.router_inputs(model), "choice"
        yield "router_groups", ["best", "two"], "choice"
        yield "router_scores", ["softmax", "sigmoid"], "choice"
        forms = ["raw", "sum", "equal", "sigmoid", "softmax", "corrected"]
        yield "router_weights", forms, "choice"
        yield "lost_experts", experts.lost_parts(model), "choice"
        yield "expert_sum", experts.sums(model), "choice"
        for part in experts.replicas(model):
            yield "expert_scale", [[part, 2.0]], "number"
        for place, orders in experts.exchanges(model).items():
            yield "experts_from", [[place, order] for order in orders], "choice"


def _layer_patterns(model: Any) -> _Listed:
    found = layer_patterns.patterns(model)
    for name, values in found.items():
        each = [[name, change] for change in layer_patterns.changes(values)]
        yield "layer_pattern", each, "choice"
    if len(found) > 1:
        joint = list(zip(*found.values(), strict=True))
        each = [[layer_patterns.ALL, change] for change in layer_patterns.changes(joint)]
        yield "layer_pattern", each, "choice"


def _settings(model: Any) -> _Listed:
    """Numbers and flags of configuration and modules, whatever their names."""
    for name, now in sorted(settings_of(model).items()):
        if isinstance(now, bool):
            yield "setting", [[name, not now]], "choice"
        elif isinstance(now, int):
            near = {now - 1, now + 1, 1, 2 * now, now // 2} - {now, 0}
            yield "setting", [[name, value] for value in sorted(near) if value > 0], "choice"
        else:
            factors = [[name, now * factor] for factor in _FACTORS]
            yield "setting", [[name, 1.0] for _ in range(now != 1)] + factors, "number"
            if "cap" in name:
                yield "setting", [[name, None]], "choice"
            if now > 0 and re.search(r"limit|clip|bound|clamp|max|thresh", name):
                yield "setting", [[name, _UNLIMITED]], "choice"
    for name, now in sorted(_limits_of(model).items()):
        multiples = [now * factor for factor in _FACTORS if 0 < now < math.inf]
        yield "setting", [[name, value] for value in (*_LIMITED, *multiples)], "number"
    for name, others in sorted(modules.function_names(model).items()):
        yield "function_name", [[name, other] for other in others], "choice"


def settings_of(model: Any) -> dict[str, Any]:
    """Numbers and flags by attribute, without shapes and without those that other edits change."""
    found: dict[str, Any] = {}
    for owner in owners_of(model):
        for name, value in vars(owner).items():
            if _is_setting(name, value):
                found.setdefault(name, value)
    return found


def _limits_of(model: Any) -> dict[str, float]:
    """The ends of ranges, `limits[0]` and `limits[1]`, of configuration and modules."""
    found: dict[str, float] = {}
    for owner in owners_of(model):
        for name, value in vars(owner).items():
            is_pair = isinstance(value, tuple | list) and len(value) == 2
            if is_pair and all(type(end) is float for end in value) and _is_setting(name, 0.0):
                found |= {f"{name}[{place}]": end for place, end in enumerate(value)}
    return found


def _is_setting(name: str, value: Any) -> bool:
    if name.startswith("_") or not isinstance(value, bool | int | float):
        return False
    if name in modules.EPSILONS or name.endswith("_eps") or name == "scaling":
        return False
    shapes = () if type(value) is float else _SHAPES
    return not any(part in name for part in (*_NOT_SETTINGS, *shapes))


def _processors() -> _Listed:
    yield "repetition_penalty", (0.8, 1.05, 1.1, 1.2, 1.5, 2.0), "number"
    yield "recent_repetition", [[str(n), x] for n in _RECENT for x in (1.1, 1.3)], "number"
    for part in ("prompt", "response"):
        yield "part_repetition", [[part, penalty] for penalty in (1.1, 1.3)], "number"
    for name in ("part_presence", "part_frequency"):
        for part in ("both", "prompt", *map(str, _RECENT)):
            yield name, [[part, 0.5]], "number"
    yield "no_repeat_ngram", (2, 3, 4, 5, 6), "choice"
    for start in _DRY:
        yield "dry_penalty", [[start, 0.8]], "number"
    yield "vocabulary_shards", _SHARDS, "choice"
    yield "presence_penalty", (-0.5, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0), "number"
    yield "frequency_penalty", (-0.5, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0), "number"
    yield "min_tokens", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "integer"
    yield "position_gap", (-8, -4, -1, 1, 2, 4, 8, 16, 32, 64, 128), "choice"
    yield "top_n_sigma", (0.7, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0), "number"
    yield "typical_p", (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98), "number"
    yield "uniform_share", (0.003, 0.03, 0.3), "number"
    yield "padded_vocabulary", (1, 4, 16, 64, 128, 256, 512, 1024), "integer"


def _parts(model: Any) -> _Listed:
    """One entry per part: an entry holds few values."""
    for part in parts.vocabulary_slices():
        yield "vocabulary_part", [[part, 0.5]], "number"
    try:
        blocks = parts.layer_blocks(model)
    except InapplicableError:
        return
    for source in parts.layer_sources(model):
        yield "layer_from", [source], "choice"
    for place, sources in exchanged.exchanges(model).items():
        yield "weights_from", [[place, source] for source in sources], "choice"
    for place in exchanged.squares(model):
        yield "transposed", [[place, True]], "choice"
    for block in blocks:
        yield "layer_scale", [[block, 0.0]], "number"
    for block in (*dict.fromkeys(each.rpartition(".")[2] for each in blocks), *blocks):
        yield "lost_part", [[block, part] for part in parts.slices_of(model, block)], "choice"


def _wiring(model: Any) -> _Listed:
    """How blocks, norms and residuals are connected, and the order of tokens."""
    for table in row_orders.tables(model):
        yield "row_order", [[table, order] for order in row_orders.orders(model)], "choice"
    for value in wiring.norm_places(model):
        yield "norm_place", [value], "choice"
    for value in wiring.residuals(model):
        yield "residual_from", [value], "choice"


def _parts_in_formats(model: Any) -> _Listed:
    for part, forms in part_rounding.stored(model).items():
        yield "part_rounding", [[part, form] for form in forms], "choice"
    for part, forms in part_rounding.multiplied(model).items():
        yield "part_products", [[part, form] for form in forms], "choice"
    yield "latent_cache", part_rounding.cached(model), "choice"


def _sites(model: Any) -> _Listed:
    """Generic changes of what modules read and return."""
    for site in sites.scaled(model):
        yield "site_scale", [[site, factor] for factor in _SITE_FACTORS], "number"
    for site, names in sites.changes(model):
        yield "site_change", [[site, name] for name in names], "choice"
        yield "site_bound", [[site, bound] for bound in _SITE_BOUNDS], "number"
    for site, names in sites.parameters(model):
        yield "site_change", [[site, name] for name in names], "choice"
    for site in sites.weighted(model):
        yield "site_scales", [[site, [1.0] * len(sites.modules_at(model, site)[0])]], "choice"
