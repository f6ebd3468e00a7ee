"""The settings of corrections."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from grpodoctor.trainer.algorithms.registry import check_variant
from grpodoctor.trainer.section import Section


class CorrectionConfig(Section):
    """Correction of the mismatch between the engine that samples and the learner."""

    kind: str = "none"
    """A registered correction."""
    cap: float = Field(2.0, ge=1, le=100)
    """Cap of the importance weight: `tis` lowers what is above, the others leave it out."""
    floor: float = Field(0.0, ge=0, le=1)
    """Weights below it are left out by `mis`, `icepop` and `geo_mask`; 0 leaves out none."""
    of_response: Literal["product", "geometric-mean"] = "product"
    """What `tis_sequence` and `mis_sequence` take for a response's weight.

    The geometric mean of its tokens' weights, as in ms-swift, is no importance weight.
    """
    denominator: Literal["all", "kept"] = "all"
    """Whether tokens that are left out count in the loss's denominator, as in the papers.

    `kept` is verl's: the fewer tokens are kept, the more each of them weighs.
    """

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        check_variant("corrections", kind)
        return kind
