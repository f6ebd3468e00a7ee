"""No correction.

Formula
    The weight is 1: the sampler is treated as the learner.

Settings
    None.

Effect on metrics
    None. The mismatch/* metrics show whether a correction is needed.

Other implementations
    TRL corrects by default, with mis_sequence and a cap of 3.

Do not combine with
    A sampler with a precision other than the learner's, unless the loss is anchored on the sampler.

Source
    None.
"""

from __future__ import annotations

from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs


def none(_inputs: CorrectionInputs) -> None:
    """Treat the sampler as the learner."""
