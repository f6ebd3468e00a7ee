"""SAPO: a smooth gate instead of the hard clip.

Formula
    -f(r) A per token, r = new / old, f(r) = (4 / tau) sigmoid(tau (r - 1)), tau depends on the sign
    of A. The gradient of r A is weighted by 4 p (1 - p), p = sigmoid(tau (r - 1)): 1 at r = 1, less
    on both sides.

Denominator
    sequence-mean in the paper.

Settings
    tau_positive 1, tau_negative 1.05. A larger tau closes the gate sooner; near 0 there is no gate.
    The gate should close at least as soon for A < 0, because such updates raise many other logits.

Effect on metrics
    clip/gate_mean stays close to 1 in a healthy run. There is no clip rate.

Other implementations
    TRL and verl agree. AReaL takes the mean over tokens.

Do not combine with
    A clip or dual clip: the gate bounds every ratio. Corrections act on a different ratio and work
    with this loss.

Source
    arXiv 2511.20347.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig

_MAX_LOG_RATIO = 20.0
"""Closes the gate at any precision while the ratio stays finite."""


class Sapo(LossConfig):
    """SAPO: a soft gate instead of the clip."""

    kind: Literal["sapo"] = "sapo"
    aggregation: Aggregation = "sequence-mean"
    tau_positive: float = Field(1.0, ge=0.01, le=100)
    """Steepness of the gate for A > 0; near 0 there is no gate."""
    tau_negative: float = Field(1.05, ge=0.01, le=100)
    """Steepness of the gate for A <= 0; the paper's runs need it at least as steep."""


def sapo(inputs: LossInputs[Sapo]) -> LossTerms:
    """-f(r) A with a sigmoid gate f."""
    import torch

    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    tau_BT = torch.where(advantages_BT > 0, settings.tau_positive, settings.tau_negative)
    ratio_BT = inputs.log_ratio().clamp(max=_MAX_LOG_RATIO).exp()
    open_BT = torch.sigmoid(tau_BT * (ratio_BT - 1))
    gate_BT = (4 * open_BT * (1 - open_BT)).detach()
    return LossTerms(-4 / tau_BT * open_BT * advantages_BT, gate_BT=gate_BT)
