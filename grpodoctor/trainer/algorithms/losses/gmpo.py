"""GMPO: the geometric mean of a response's clipped ratios, which outliers move less.

Formula
    -A times the geometric mean over the response's tokens of min(r^s, clip(r^s))^s, r = new / old
    and s the sign of A: in logarithms, log r is capped at +log_clip where A > 0, and at -log_clip
    from below where A < 0. All live tokens of a response share one factor; a capped one has none.

Denominator
    sequence-mean, and no other: the response's term is given to each of its tokens.

Settings
    log_clip 0.4, so that r lies in 0.670 .. 1.492. The lower bound of the paper's clip never binds
    under its min, so one width says it all.

Moves
    A narrower ratio/max; clip rates, of tokens.

Elsewhere
    verl's geo_mean has two widths, of which the lower serves A < 0, where the paper's equation uses
    the reciprocal of the upper: the same for equal widths. It counts responses without any loss
    token as well. TRL's experimental GMPOTrainer agrees.

Not with
    Corrections that weigh single tokens, as in gspo; GSPO, which aggregates the same ratios anew.

Source
    arXiv 2507.20673.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.config.loss_settings import Gmpo


def gmpo(inputs: LossInputs[Gmpo]) -> LossTerms:
    """-A times the geometric mean of ratios, each capped in the direction A rewards."""
    capped_BT, low_BT, high_BT = capped_log_ratio(inputs, inputs.settings.log_clip)
    mean_B1 = inputs.response_mean(torch.where(inputs.mask_BT, capped_BT, 0.0))
    return LossTerms(-inputs.advantages_BT * torch.exp(mean_B1), low_BT, high_BT)


def capped_log_ratio(inputs: LossInputs[Any], width: float) -> tuple[Tensor, Tensor, Tensor]:
    """log(new / old) held to `width` in the direction that the advantage rewards, shape (B, T).

    Returns:
        With it the flags of `clip_flags`: where it was held from below, and where from above.
    """
    log_ratio_BT = inputs.log_ratio()
    low_BT, high_BT = clip_flags(log_ratio_BT, inputs.advantages_BT, -width, width)
    capped_BT = torch.where(high_BT, width, torch.where(low_BT, -width, log_ratio_BT))
    return capped_BT, low_BT, high_BT
