"""The `reweighting` section, shared by all token reweightings."""

from __future__ import annotations

from pydantic import Field

from grpodoctor.trainer.config_section import ConfigSection


class ReweightingConfig(ConfigSection):
    """Weights of single tokens within their response's advantage; all equal by default."""

    alpha: float | None = Field(None, ge=0, le=1)
    """Advantage reweighting: how much less the rarest tokens count; 0.2 alone, 0.3 with Lopti."""
    lopti_threshold: float | None = Field(None, gt=0, lt=1)
    """Lopti: tokens with a lower probability are trained in a separate, first pass."""
    forking_share: float | None = Field(None, gt=0, le=1)
    """Train only this fraction of a batch's tokens, those of highest entropy; 0.2 in the paper."""

    @property
    def active(self) -> tuple[str, ...]:
        """The registered reweightings that these settings switch on."""
        settings = {
            "advantage_reweighting": self.alpha,
            "forking_tokens": self.forking_share,
            "lopti": self.lopti_threshold,
        }
        return tuple(name for name, setting in settings.items() if setting is not None)

    @property
    def passes(self) -> int:
        """Passes over a batch, each with all its updates."""
        return 1 if self.lopti_threshold is None else 2
