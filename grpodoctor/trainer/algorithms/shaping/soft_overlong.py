"""Soft overlong punishment: a ramp before the length limit, added to the reward.

Formula
    weight times: 0 up to limit - buffer tokens, then (limit - buffer - length) / buffer, -1 at the
    limit and beyond. With `only_correct`, the reward of an incorrect response is unchanged.

Denominator
    None: it is part of the reward, recorded as the component `overlong` without its weight.

Settings
    overlong.kind = "soft-punishment", or "mask-and-soft-punishment" for the mask too.
    overlong.buffer is the width of the ramp in tokens: 4096 before 20480 in DAPO. overlong.weight
    is 1 for DAPO's rewards of -1 and 1. Rewards of 0 and 1 have half their spread: 0.5 gives the
    same standardized advantages. overlong.only_correct is off in DAPO and on in ScaleRL.

Effect on metrics
    length/truncated_rate and length/p95 fall. Two incorrect responses of different length get
    different rewards unless only correct ones are punished, so fewer groups lack variance.

Other implementations
    TRL's get_soft_overlong_punishment is the same. verl and ms-swift have no floor of -1, which
    makes no difference if generation ends at the limit.

Do not combine with
    stop_properly, another value of the same setting. Together with the mask, as in the ladder of
    DAPO's Table 1, truncated responses only shift the mean of their group; responses that end
    within the ramp still learn from the punishment.

Source
    DAPO, arXiv 2503.14476, Eq. 13; on correct responses only ScaleRL, arXiv 2510.13786, Eq. 9.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.config_section import ConfigSection


class OverlongConfig(ConfigSection):
    """Handling of responses that reach the length limit."""

    kind: Literal[
        "none", "mask", "soft-punishment", "mask-and-soft-punishment", "stop-properly"
    ] = "none"
    """`mask` excludes truncated responses from the loss, `soft-punishment` (DAPO Eq. 13) lowers the
    reward before the limit, and `stop-properly` scales the reward of truncated responses."""
    buffer: int = Field(4, ge=1)
    """Width of the soft punishment's ramp before the limit, in tokens."""
    weight: float = Field(1.0, gt=0, le=100)
    """Weight of the soft punishment: 1 for rewards of -1 and 1, as in DAPO, 0.5 for 0 and 1."""
    only_correct: bool = False
    """Apply the soft punishment only to correct responses (ScaleRL)."""
    truncated_factor: float = Field(0.0, ge=0, le=1)
    """Factor of `stop-properly` on the reward of a truncated response."""

    @property
    def masks(self) -> bool:
        """Whether truncated responses are excluded from the loss."""
        return self.kind in ("mask", "mask-and-soft-punishment")

    @property
    def punishes(self) -> bool:
        """Whether the soft punishment is part of the reward."""
        return self.kind in ("soft-punishment", "mask-and-soft-punishment")


def soft_overlong(length: int, limit: int, buffer: int) -> float:
    """0 up to `limit - buffer` tokens, then falling linearly to -1 at the limit."""
    return max(-1.0, min(0.0, (limit - buffer - length) / buffer))
