"""GMPO: the geometric mean of a response's clipped ratios, which is less sensitive to outliers.

Formula
    -A times the geometric mean over the response's tokens of min(r^s, clip(r^s))^s, r = new / old
    and s the sign of A. In logarithms, log r is capped at +log_clip for A > 0 and at -log_clip from
    below for A < 0. All unclipped tokens of a response share one factor; a clipped token has no
    gradient.

Denominator
    sequence-mean only: each token carries its response's term.

Settings
    log_clip 0.4, so r is between 0.670 and 1.492. Because of the min, the lower bound of the
    paper's clip never applies, so a single width is enough.

Effect on metrics
    ratio/max is smaller. Clip rates count tokens.

Other implementations
    verl's geo_mean has two widths and uses the lower one for A < 0, where the paper's equation uses
    the reciprocal of the upper one; they agree for equal widths. verl also counts responses without
    any loss token. TRL's experimental GMPOTrainer agrees.

Do not combine with
    Corrections that weight single tokens, as for gspo; GSPO, which aggregates the same ratios.

Source
    arXiv 2507.20673.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.algorithms.losses.settings import LossConfig

if TYPE_CHECKING:
    from torch import Tensor


class Gmpo(LossConfig):
    """GMPO: the geometric mean of clipped ratios."""

    one_term_per_response: ClassVar[bool] = True

    kind: Literal["gmpo"] = "gmpo"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    log_clip: float = Field(0.4, gt=0, le=5)
    """Bound on the log-ratio of a token in the direction that the advantage rewards."""


def gmpo(inputs: LossInputs[Gmpo]) -> LossTerms:
    """-A times the geometric mean of ratios, each capped in the direction that A rewards."""
    capped_BT, low_BT, high_BT = capped_log_ratio(inputs, inputs.settings.log_clip)
    mean_B1 = inputs.response_mean(capped_BT.where(inputs.mask_BT, 0.0))
    return LossTerms(-inputs.advantages_BT * mean_B1.exp(), low_BT, high_BT)


def capped_log_ratio(inputs: LossInputs[Any], width: float) -> tuple[Tensor, Tensor, Tensor]:
    """log(new / old) bounded by `width` in the direction that the advantage rewards, shape (B, T).

    Returns:
        The bounded log-ratio and the flags of `clip_flags`: bounded from below, from above.
    """
    log_ratio_BT = inputs.log_ratio()
    low_BT, high_BT = clip_flags(log_ratio_BT, inputs.advantages_BT, -width, width)
    return log_ratio_BT.where(~low_BT, -width).where(~high_BT, width), low_BT, high_BT
