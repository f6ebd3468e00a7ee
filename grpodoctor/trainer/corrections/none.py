"""No correction."""

from __future__ import annotations

from grpodoctor.trainer.corrections.base import CorrectionInputs


def none(_inputs: CorrectionInputs) -> None:
    """Take the sampler for the learner."""
