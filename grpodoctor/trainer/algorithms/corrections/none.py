"""No correction.

Formula
    The weight is 1: the sampler is taken for the learner.

Settings
    None.

Effect on metrics
    Nothing; the mismatch/* readings tell whether it is good enough.

Other implementations
    TRL corrects by default, with mis_sequence and a cap of 3.

Do not combine with
    An engine of another precision, unless the loss is anchored on the sampler.

Source
    None.
"""

from __future__ import annotations

from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs


def none(_inputs: CorrectionInputs) -> None:
    """Take the sampler for the learner."""
