"""IcePop: token masking with a lower and an upper bound, designed for mixtures of experts.

Formula
    As mis_token, with a floor: w if floor <= w <= cap, otherwise 0.

Settings
    floor 0.5 and cap 5. Set both: the default floor of the `correction` section is 0, and with it
    this correction equals mis_token.

Effect on metrics
    correction/capped_rate rises. optimizer/grad_norm and the tails of the mismatch stay flat.

Other implementations
    slime, OpenRLHF and NeMo-RL agree. verl calls it the threshold "0.5_5.0" of rollout_is, not of
    rollout_rs. The paper counts masked tokens in the denominator, and so does this code.

Do not combine with
    Another correction, a loss anchored on the sampler, or a loss with one term per response
    (gspo, gmpo).

Source
    Ring-1T, arXiv 2510.18855.
"""

from __future__ import annotations

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs
from grpodoctor.trainer.algorithms.corrections.mis_token import mis_token


def icepop(inputs: CorrectionInputs) -> Corrected:
    """Learner / sampler per token, zero outside the bounds."""
    return mis_token(inputs)
