"""Differences of log-probabilities that stay finite where a policy blocks a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Bound on a token's log-ratio, as in verl: e^20 is far beyond every published bound on a ratio. A
token beyond it has no gradient."""
LOWEST_LOGPROB = -1e4
"""Stands for -inf, the log-probability of a blocked token, whose differences are NaN."""


def bounded_log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """log(p / q) of log-probabilities log p and log q, within ±20."""
    log_ratio = numerator.clamp(min=LOWEST_LOGPROB) - denominator.clamp(min=LOWEST_LOGPROB)
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
