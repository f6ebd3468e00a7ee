"""RSPO: GMPO with less weight on tokens whose mixture-of-experts routing has shifted.

Formula
    g = exp(-mean over layers and experts of |log gate - log old gate|), over the experts that the
    old policy activated, where gate is the router's probability among all experts. g is floored at
    shift_floor and has no gradient. The loss is -A times the geometric mean over the response's
    tokens of g r, with r = new / old clipped as in gmpo. A clipped token has no gradient.

Denominator
    sequence-mean only: each token carries its response's term.

Settings
    log_clip 0.4 as in gmpo. shift_floor 0.8, the value in third-party code; the value of the
    paper's runs is not verified.

Effect on metrics
    Clip rates count tokens, as for gmpo, with fewer bursts. experts/churn_update is high where the
    shift is large. At the first update of a batch g is 1 and the loss equals gmpo.

Other implementations
    No library is known to implement it. The first version of the paper multiplies the clipped ratio
    by g, as this code does. The abstract of the second version says that ratios are rescaled before
    they are clipped; a shifted token would then be clipped later on the high side and earlier on
    the low side. RSPO scales ratios; some descriptions wrongly say router logits.

Do not combine with
    A dense model, which has no routers. Routing replay and gspo, which address the same problem:
    with replay the experts are fixed, and only the drift of the gates is left for g. GMPO's bounds
    are already included. Corrections that weight single tokens, as for gspo.

Source
    arXiv 2510.23027, version 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from grpodoctor.errors import ModelError
from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.sequence_level.gmpo import capped_log_ratio
from grpodoctor.trainer.algorithms.losses.settings import LossConfig


class Rspo(LossConfig):
    """RSPO: GMPO, scaled down where the routers shifted."""

    one_term_per_response: ClassVar[bool] = True
    needs_router_shift: ClassVar[bool] = True

    kind: Literal["rspo"] = "rspo"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    log_clip: float = Field(0.4, gt=0, le=5)
    """Bound on the log-ratio of a token in the direction that the advantage rewards."""
    shift_floor: float = Field(0.8, gt=0, le=1)
    """Smallest weight of a token's ratio, for any router shift; 1 gives GMPO."""


def rspo(inputs: LossInputs[Rspo]) -> LossTerms:
    """GMPO's geometric mean, with each token's ratio scaled by its router shift.

    Raises:
        ModelError: if the router shift was not measured.
    """
    if inputs.router_shift_BT is None:
        raise ModelError(
            "rspo needs a mixture-of-experts model with recorded routers",
            where="loss.kind",
            remedy="use gmpo for a dense model",
        )
    capped_BT, low_BT, high_BT = capped_log_ratio(inputs, inputs.settings.log_clip)
    log_shift_BT = inputs.router_shift_BT.detach().clamp(min=inputs.settings.shift_floor).log()
    mean_B1 = inputs.response_mean((capped_BT + log_shift_BT).where(inputs.mask_BT, 0.0))
    return LossTerms(-inputs.advantages_BT * mean_B1.exp(), low_BT, high_BT)
