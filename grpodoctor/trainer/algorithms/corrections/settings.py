"""The `correction` section, shared by all corrections."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from grpodoctor.trainer.algorithms.names import check_variant
from grpodoctor.trainer.config_section import ConfigSection


class CorrectionConfig(ConfigSection):
    """Correction of the mismatch between sampling engine and learner."""

    kind: str = "none"
    """Name of a registered correction."""
    cap: float = Field(2.0, ge=1, le=100)
    """Largest importance weight: `tis` truncates larger ones, the others mask them. For
    `error_mask`, the largest mean of exp(|log weight|) over a response."""
    floor: float = Field(0.0, ge=0, le=1)
    """`mis`, `icepop` and `geo_mask` mask smaller weights; 0 masks none."""
    of_response: Literal["product", "geometric-mean"] = "product"
    """A response's weight in `tis_sequence` and `mis_sequence`.

    The geometric mean of the token weights, as in ms-swift, is not an importance weight.
    """
    denominator: Literal["all", "kept"] = "all"
    """Whether masked tokens count in the loss's denominator, as in the papers.

    `kept` is verl's: the fewer tokens are kept, the more each of them weighs.
    """

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        check_variant("corrections", kind)
        return kind
