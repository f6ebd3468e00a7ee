"""Applies edits to a loaded model until a block ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from contract import InapplicableError, Response
from torch import Tensor

from hf.adapters import adapter_times
from hf.what_if import (
    adapter_places,
    exchanged,
    experts,
    head_parameters,
    layer_patterns,
    modules,
    norm_kinds,
    number_formats,
    numerics,
    operation_edits,
    part_rounding,
    parts,
    positions,
    rank_parts,
    rope_types,
    rotary_tables,
    router_choice,
    routing,
    row_orders,
    sites,
    weight_layout,
    wiring,
)
from hf.what_if.attention import AttentionEdits, KeptCache, Places, edited_attention
from hf.what_if.phases import PHASES, Phases
from hf.what_if.processors import POSITIONS, ProcessorEdits

Edit = tuple[str, Any]
"""Name and value."""
_EDITS: dict[str, Callable[[Any, Any], AbstractContextManager[None]]] = {
    "activation": modules.activation,
    "adapter": adapter_times,
    "adapter_moved": adapter_places.adapter_moved,
    "adapter_part": adapter_places.adapter_part,
    "activation_rounding": numerics.activation_rounding,
    "alibi_factor": positions.alibi_factor,
    "alibi_power": positions.alibi_power,
    "bias_scale": parts.bias_scale,
    "compute_dtype": numerics.compute_dtype,
    "embedding_end": head_parameters.embedding_end,
    "embedding_scale": modules.embedding_scale,
    "expert_scale": experts.expert_scale,
    "expert_sum": experts.expert_sum,
    "experts_from": experts.experts_from,
    "experts_shifted": router_choice.experts_shifted,
    "function_name": modules.function_name,
    "gated_norm": norm_kinds.gated_norm,
    "latent_cache": part_rounding.latent_cache,
    "layer_pattern": layer_patterns.layer_pattern,
    "layer_rope_base": positions.layer_rope_base,
    "layer_rope_like": positions.layer_rope_like,
    "layer_rope_scaling": positions.layer_rope_scaling,
    "input_rotation": number_formats.input_rotation,
    "input_saturation": numerics.input_saturation,
    "layer_from": parts.layer_from,
    "layer_scale": parts.layer_scale,
    "linear_rounding": numerics.linear_rounding,
    "logit_cap_product": modules.logit_cap_product,
    "logit_clamp": modules.logit_clamp,
    "logit_rounding": modules.logit_rounding,
    "logit_soft_cap": modules.logit_soft_cap,
    "lost_experts": experts.lost_experts,
    "lost_part": parts.lost_part,
    "mean_rows": row_orders.mean_rows,
    "missing_layer": modules.missing_layer,
    "norm_epsilon": modules.norm_epsilon,
    "norm_group_width": norm_kinds.norm_group_width,
    "norm_mean": norm_kinds.norm_mean,
    "norm_offset": modules.norm_offset,
    "norm_parts": modules.norm_parts,
    "norm_place": wiring.norm_place,
    "norm_rounding": norm_kinds.norm_rounding,
    "open_gate": modules.open_gate,
    "operation": operation_edits.operation,
    "output_scale": modules.output_scale,
    "part_products": part_rounding.part_products,
    "part_rounding": part_rounding.part_rounding,
    "parameter_scale": head_parameters.parameter_scale,
    "qk_norm_order": positions.qk_norm_order,
    "rank_part": rank_parts.rank_part,
    "residual_from": wiring.residual_from,
    "residual_rounding": modules.residual_rounding,
    "rope_amplitude": positions.rope_amplitude,
    "rope_base": positions.rope_base,
    "rope_layout": positions.rope_layout,
    "rope_off": positions.rope_off,
    "rope_parameter": rope_types.rope_parameter,
    "rope_part": rotary_tables.rope_part,
    "rope_precision": positions.rope_precision,
    "rope_scaling": positions.rope_scaling,
    "rope_share": positions.rope_share,
    "rope_type": rope_types.rope_type,
    "rolled_heads": head_parameters.rolled_heads,
    "rotation_limit": rotary_tables.rotation_limit,
    "rotary_width": positions.rotary_width,
    "router_bias": router_choice.router_bias,
    "router_groups": routing.router_groups,
    "router_input": router_choice.router_input,
    "router_place": routing.router_place,
    "router_precision": routing.router_precision,
    "router_scores": routing.router_scores,
    "router_weights": routing.router_weights,
    "row_order": row_orders.row_order,
    "setting": modules.setting,
    "site_bound": sites.site_bound,
    "site_change": sites.site_change,
    "site_scale": sites.site_scale,
    "site_scales": sites.site_scales,
    "tied_head": modules.tied_head,
    "transposed": exchanged.transposed,
    "unweighted_norm": norm_kinds.unweighted_norm,
    "vocabulary_part": parts.vocabulary_part,
    "weight_layout": weight_layout.weight_layout,
    "weight_rounding": numerics.weight_rounding,
    "weight_saturation": number_formats.weight_saturation,
    "weights_from": exchanged.weights_from,
    "without_alibi": positions.without_alibi,
    "without_bias": modules.without_bias,
    "without_gate": modules.without_gate,
    "without_norm": modules.without_norm,
}
_MIXED = "weights_until"
"""Edit `[directory, tokens]`: the directory's weights up to a number of tokens of each response."""
_OF_LOGITS = frozenset(
    {
        "dry_penalty", "epsilon_cutoff", "frequency_penalty", "logit_bias", "logit_clamp",
        "logit_soft_cap", "min_tokens", "no_repeat_ngram", "padded_vocabulary", "part_frequency",
        "part_presence", "part_repetition", "presence_penalty", "recent_repetition",
        "repetition_penalty", "top_n_sigma", "typical_p", "uniform_share",
        "vocabulary_part", "vocabulary_shards",
    }
)  # fmt: skip
"""Edits that change logits alone, whatever computed them."""
_ATTENTION = {each.name for each in fields(AttentionEdits)} - {"kept", "places"}
_PROCESSORS = {each.name for each in fields(ProcessorEdits)}


class WhatIf:
    """The edits of one model.

    Args:
        model: a causal language model of transformers.
        others: loads the tensors of other checkpoints.
    """

    def __init__(self, model: Any, others: numerics.OtherCheckpoints) -> None:
        self._model = model
        self._edits = {
            **_EDITS,
            "other_weights": others.edit(),
            "update_format": others.update_format,
            "update_moved": others.update_moved,
            "update_part": others.update_part,
            "update_scale": others.update_scale,
        }
        self._mixed: _MixedWeights | None = None
        self._places = Places()
        self.phases: Phases | None = None
        """The edits of a phase; sequences are then scored along the path of generation."""
        self.processors = ProcessorEdits()
        """The edits of inputs and logits, which the engine applies."""
        self.trunk: str | None = None
        """The edits that change the trunk, next to one that changes logits alone."""

    @contextmanager
    def altered(self, edits: Sequence[Edit]) -> Iterator[None]:
        """Compute with edits inside the block.

        Raises:
            InapplicableError: if an edit does not fit the model, also when it runs.
        """
        unknown = [name for name, _ in edits if name not in self._known()]
        if unknown:
            raise InapplicableError(f"there is no edit {unknown[0]!r}")
        try:
            attention = dict(_chosen(edits, _ATTENTION))
            mixed = dict(edits).get(_MIXED)
            if mixed is not None:
                self._mixed = _MixedWeights(self._other_weights(mixed[0]), int(mixed[1]))
                attention["kept"] = self._mixed.kept
            self.processors = ProcessorEdits(**_chosen(edits, _PROCESSORS))
            self.phases = self._phases(edits, attention)
            self.trunk = _trunk_edits(edits)
            with self._computing(edits, attention):
                yield
        except InapplicableError:
            raise
        except Exception as error:
            what = " ".join(str(error).split())[:200]
            raise InapplicableError(f"the model does not allow {edits[-1][0]}: {what}") from error
        finally:
            self.processors, self._mixed, self.phases = ProcessorEdits(), None, None
            self.trunk = None

    @contextmanager
    def _computing(self, edits: Sequence[Edit], attention: Mapping[str, Any]) -> Iterator[None]:
        """Compute with edits of modules, and with all edits of attention."""
        with ExitStack() as stack:
            for name, value in edits:
                if name in self._edits:
                    stack.enter_context(self._edits[name](self._model, value))
            if attention:
                changed = AttentionEdits(**attention, places=self._places)
                stack.enter_context(edited_attention(self._model, changed))
            yield

    def _phases(self, edits: Sequence[Edit], attention: Mapping[str, Any]) -> Phases | None:
        def computing(inner: Sequence[Edit]) -> AbstractContextManager[None]:
            both = {**attention, **_chosen(inner, _ATTENTION)} if inner else {}
            return self._computing(inner, both)

        found = Phases.of(edits, computing, self._places)
        if found is None:
            return None
        inner = {name for name, _ in (*found.prompt, *found.response)}
        moved = [name for name in (*POSITIONS, "masked_tokens") if getattr(self.processors, name)]
        others = inner - {*self._edits, *_ATTENTION} | inner & {"open_prompt"}
        if others or moved or self._mixed is not None or attention.get("open_prompt"):
            raise InapplicableError("these edits act in whole sequences only")
        return found

    def _other_weights(self, folder: str) -> Callable[[], AbstractContextManager[None]]:
        everything = {"from": folder, "only": ""}
        return lambda: self._edits["other_weights"](self._model, everything)

    def hidden(
        self, run: Callable[[], Tensor], responses: Sequence[Response], ids_BL: Tensor
    ) -> Tensor:
        """The trunk's output for sequences that are padded on the right.

        Args:
            run: computes it with the model's present weights.
            responses: the rows.
            ids_BL: their tokens.
        """
        self._places.ends_B = torch.tensor([len(each.prompt_ids) for each in responses])
        return run() if self._mixed is None else self._mixed.hidden(run, responses, ids_BL)

    def logits(self, head: Callable[[Tensor], Tensor], hidden_NH: Tensor, rows_N: Tensor) -> Tensor:
        """The logits of rows of the flattened output of `hidden`."""
        logits_NV = head(hidden_NH)
        return (
            logits_NV
            if self._mixed is None
            else self._mixed.logits(head, hidden_NH, rows_N, logits_NV)
        )

    def _known(self) -> set[str]:
        return {*self._edits, *_ATTENTION, *_PROCESSORS, *PHASES, _MIXED}


@dataclass
class _MixedWeights:
    """Weights that change after some tokens of each response; the key-value cache stays.

    After 0 tokens: keys and values of the prompt are older than the weights, as in a prefix cache
    that a weight update does not clear.
    """

    other: Callable[[], AbstractContextManager[None]]
    """Computes with the older weights inside a block."""
    tokens: int
    kept: KeptCache = field(default_factory=KeptCache)

    def hidden(
        self, run: Callable[[], Tensor], responses: Sequence[Response], ids_BL: Tensor
    ) -> Tensor:
        """Two passes: one with the older weights, and one that reads its keys and values."""
        ends = [[len(each.prompt_ids) - 1 + self.tokens] for each in responses]
        places_BL = torch.arange(ids_BL.shape[1])[None] < torch.tensor(ends)
        self.kept.places_BL = None
        with self.other():
            older_BLH = run()
        self.kept.places_BL = places_BL.to(older_BLH.device)
        newer_BLH = run()
        return torch.where(self.kept.places_BL[..., None], older_BLH, newer_BLH)

    def logits(
        self, head: Callable[[Tensor], Tensor], hidden_NH: Tensor, rows_N: Tensor, newer_NV: Tensor
    ) -> Tensor:
        """The older head's logits at the places of the older weights."""
        if not self.tokens or self.kept.places_BL is None:
            return newer_NV
        with self.other():
            older_NV = head(hidden_NH)
        return torch.where(self.kept.places_BL.flatten()[rows_N, None], older_NV, newer_NV)


def _trunk_edits(edits: Sequence[Edit]) -> str | None:
    """The edits without those of logits; None if there are none of logits."""
    others = [edit for edit in edits if edit[0] not in _OF_LOGITS]
    is_kept = len(others) < len(edits) and all(name != _MIXED for name, _ in others)
    return json.dumps(others) if is_kept else None


def _chosen(edits: Sequence[Edit], names: set[str]) -> Mapping[str, Any]:
    return {name: value for name, value in edits if name in names}
