"""IcePop: token-level masking with a band on both sides, made for mixtures of experts.

Formula
    As mis_token, with a floor: w where floor <= w <= cap, else 0.

Settings
    floor 0.5 and cap 5; they must be given, since the section's own defaults leave the floor
    open, which makes it mis_token.

Effect on metrics
    correction/capped_rate; optimizer/grad_norm and the tails of the mismatch stay flat.

Other implementations
    slime, OpenRLHF and NeMo-RL agree; verl writes it as a threshold "0.5_5.0" of rollout_is, not
    of rollout_rs. The paper counts dropped tokens in the denominator, as is done here.

Do not combine with
    Another correction, a loss anchored on the sampler, or the one-term losses gspo and gmpo.

Source
    Ring-1T, arXiv 2510.18855.
"""

from __future__ import annotations

from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs
from grpodoctor.trainer.algorithms.corrections.mis_token import mis_token


def icepop(inputs: CorrectionInputs) -> Corrected:
    """Learner / sampler per token, zero outside the band."""
    return mis_token(inputs)
