"""What-if edits of a computation, and the causes that they stand for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from grpodoctor.errors import EngineError
from grpodoctor.support.files.regular_files import read_regular

Edit = tuple[str, str]
"""Name, and value as JSON."""
Edits = tuple[Edit, ...]
Kind = Literal["number", "integer", "choice"]
_MOST_VALUES = 64
_WITH_ATTRIBUTE = frozenset(
    {
        "adapter_part", "bias_scale", "bounded_cache", "cache_scale", "dry_penalty",
        "expert_scale", "expert_sum", "experts_from", "function_name", "input_rotation",
        "layer_from", "layer_pattern",
        "layer_rope_base", "layer_rope_like", "layer_rope_scaling", "layer_scale", "layer_window",
        "lost_experts", "lost_part", "mean_rows", "norm_place", "operation", "output_scale",
        "parameter_scale",
        "part_frequency", "part_presence", "part_products", "part_repetition", "part_rounding",
        "position_jump", "recent_repetition", "residual_from", "row_order",
        "rank_part", "rolled_heads", "rope_amplitude", "rope_parameter", "rope_part", "setting",
        "site_bound", "site_change", "site_scale", "site_scales", "transposed", "vocabulary_part",
        "weight_layout", "weight_saturation", "weights_from", "weights_until",
    }
)  # fmt: skip
"""Edits whose values are pairs of a name and a number."""
OTHER_WEIGHTS = "other_weights"
"""Name of the edit that takes tensors of another checkpoint."""
UPDATE_FORMAT, UPDATE_MOVED = "update_format", "update_moved"
UPDATE_PART, UPDATE_SCALE = "update_part", "update_scale"
UPDATE_EDITS = frozenset(
    {UPDATE_FORMAT, UPDATE_MOVED, UPDATE_PART, UPDATE_SCALE, OTHER_WEIGHTS, "weights_until"}
)
"""Edits with the weights of another checkpoint, of which a setup has one at most."""
GENERATED, IN_PROMPT, IN_RESPONSE = "generated", "in_prompt", "in_response"
IN_PREFIX = "in_prefix"
"""Edits that score along the path of generation, with another edit in one of its phases."""
TENSORS = "tensors"
"""Name of the entry that lists the names of the model's tensors."""


@dataclass(frozen=True, slots=True)
class EditFamily:
    """An edit with the values to try first."""

    name: str
    values: tuple[Any, ...]
    kind: Kind
    now: float | None = None
    """The value of a number that changes nothing; None if unknown."""
    attribute: str = ""
    """The attribute that `setting` sets, the pattern or the kind of layers of an edit of layers,
    the part of the model that an edit changes, or the token of `logit_bias`; the values belong to
    it."""
    inner: EditFamily | None = None
    """The edit that acts in one phase only, if `name` is a phase; the values belong to it."""

    def edit(self, value: Any) -> Edit:
        """The edit with a value."""
        if self.inner is not None:
            name, content = self.inner.edit(value)
            return self.name, json.dumps([name, json.loads(content)])
        if self.name == "logit_bias" and self.kind == "number":
            return self.name, json.dumps([[int(self.attribute), value]])
        whole = [self.attribute, value] if self.attribute else value
        return self.name, json.dumps(whole)


def in_phase(phase: str, family: EditFamily, values: Sequence[Any] = ()) -> EditFamily:
    """The edits of a family while the prompt is read, or while the response is generated."""
    return replace(family, name=phase, values=tuple(values) or family.values, inner=family)


def inner_edit(edit: Edit) -> Edit | None:
    """The edit that acts in one phase, if this is one of a phase."""
    if edit[0] not in (IN_PROMPT, IN_PREFIX, IN_RESPONSE):
        return None
    name, value = json.loads(edit[1])
    return str(name), json.dumps(value)


def as_json(edits: Iterable[Edit]) -> str:
    """Edits as a `ScoreJob` carries them; empty without edits."""
    parts = [[name, json.loads(value)] for name, value in edits]
    return json.dumps(parts, sort_keys=True) if parts else ""


def parse_families(path: Path) -> tuple[EditFamily, ...]:
    """The edits that an engine listed.

    Raises:
        EngineError: if the file is not what the contract says.
    """
    try:
        listed = json.loads(read_regular(path))
        edits = [entry for entry in listed if entry["name"] != TENSORS]
        families = [family for entry in edits for family in _families(entry)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path) from error
    return tuple(families)


def parse_tensors(path: Path) -> tuple[str, ...]:
    """The tensors that an engine listed.

    Raises:
        EngineError: if the file is not what the contract says.
    """
    try:
        listed = json.loads(read_regular(path))
        return tuple(
            str(n) for entry in listed if entry["name"] == TENSORS for n in entry["values"]
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> EngineError:
    return EngineError(
        "the list of the engine's what-if edits is damaged",
        where=str(path),
        remedy="delete the file and probe again",
    )


def _families(entry: Mapping[str, Any]) -> list[EditFamily]:
    name, values, kind = str(entry["name"]), list(entry["values"])[:_MOST_VALUES], entry["kind"]
    if kind not in ("number", "integer", "choice"):
        raise ValueError(f"unknown kind {kind!r}")
    now = entry.get("now")
    now = float(now) if isinstance(now, int | float) else None
    if name not in _WITH_ATTRIBUTE:
        return [EditFamily(name, tuple(values), kind, now)]
    attributes = dict.fromkeys(str(value[0]) for value in values)
    return [
        EditFamily(name, tuple(v for a, v in values if a == attribute), kind, now, attribute)
        for attribute in attributes
    ]


def shown(value: Any) -> str:
    """A value in a sentence."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return str(value).replace("/", " per ")
