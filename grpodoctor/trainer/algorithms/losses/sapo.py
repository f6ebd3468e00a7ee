"""SAPO: a smooth gate in place of the hard clip.

Formula
    -f(r) A per token, r = new / old, f(r) = (4 / tau) sigmoid(tau (r - 1)), tau by the sign of A.
    The gradient of r A is weighed by 4 p (1 - p), p = sigmoid(tau (r - 1)): 1 at r = 1, less on
    both sides.

Denominator
    sequence-mean in the paper.

Settings
    tau_positive 1, tau_negative 1.05: a larger tau closes the gate sooner, and towards 0 there is
    no gate. Negatives should close at least as soon, since they raise many other logits.

Moves
    clip/gate_mean, which stays close to 1 in a healthy run; there is no clip rate.

Elsewhere
    TRL and verl agree. AReaL takes the mean over tokens.

Not with
    A clip or dual clip: the gate bounds every ratio. Corrections act on another ratio and fit.

Source
    arXiv 2511.20347.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.config.loss_settings import Sapo

_SHUT = 20.0
"""A log-ratio at which the gate is shut in any precision, and its ratio still a number."""


def sapo(inputs: LossInputs[Sapo]) -> LossTerms:
    """-f(r) A with a sigmoid gate f."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    tau_BT = torch.where(advantages_BT > 0, settings.tau_positive, settings.tau_negative)
    ratio_BT = torch.exp(inputs.log_ratio().clamp(max=_SHUT))
    open_BT = torch.sigmoid(tau_BT * (ratio_BT - 1))
    gate_BT = (4 * open_BT * (1 - open_BT)).detach()
    return LossTerms(-4 / tau_BT * open_BT * advantages_BT, gate_BT=gate_BT)
