"""RSPO: GMPO whose tokens count less where the routers of a mixture of experts have moved.

Formula
    g = exp(-mean over layers and experts of |log gate - log old gate|), over the experts that the
    old policy activated, gate being a router's probability among all experts; floored by
    shift_floor, without gradient. Then -A times the geometric mean over the response's tokens of
    g r, r = new / old clipped as in gmpo. A clipped token has no gradient.

Denominator
    sequence-mean, and no other: the response's term is given to each of its tokens.

Settings
    log_clip 0.4 as in gmpo. shift_floor 0.8: the value that others' code has; what the paper's
    runs used is not verified.

Moves
    clip rates, of tokens, as in gmpo, with fewer bursts; experts/churn_update where the shift is
    large. At the first update of a batch g is 1 and the loss is gmpo's.

Elsewhere
    No library is known to implement it. The first version of the paper multiplies the clipped
    ratio by g, which is done here; the abstract of the second says that ratios are rescaled before
    they are clipped, so that a moved token would be clipped later on the high side and earlier on
    the low one. It scales ratios, not the routers' logits, as has been written of it.

Not with
    A dense model, which has no routers. Routing replay and gspo, which answer the same disease:
    replay fixes which experts work and leaves this factor what their gates drift. GMPO's bounds are
    in it already. Corrections that weigh single tokens, as in gspo.

Source
    arXiv 2510.23027, version 1.
"""

from __future__ import annotations

import torch

from grpodoctor.errors import ModelError
from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.gmpo import capped_log_ratio
from grpodoctor.trainer.config.loss_settings import Rspo


def rspo(inputs: LossInputs[Rspo]) -> LossTerms:
    """GMPO's geometric mean, each token's ratio scaled by how little its routing moved.

    Raises:
        ModelError: if nobody measured the shift of the routers.
    """
    if inputs.router_shift_BT is None:
        raise ModelError(
            "rspo needs a mixture of experts whose routers are watched",
            where="loss.kind",
            remedy="use gmpo for a dense model",
        )
    capped_BT, low_BT, high_BT = capped_log_ratio(inputs, inputs.settings.log_clip)
    log_shift_BT = inputs.router_shift_BT.detach().clamp(min=inputs.settings.shift_floor).log()
    scaled_BT = torch.where(inputs.mask_BT, capped_BT + log_shift_BT, 0.0)
    mean_B1 = inputs.response_mean(scaled_BT)
    return LossTerms(-inputs.advantages_BT * torch.exp(mean_B1), low_BT, high_BT)
