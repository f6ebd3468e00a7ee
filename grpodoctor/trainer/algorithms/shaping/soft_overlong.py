"""Soft overlong punishment: a ramp before the length limit, added to the reward.

Formula
    0 up to limit - buffer tokens, then (limit - buffer - length) / buffer, -1 at the limit and
    beyond. With `only_correct`, the reward of an incorrect response is unchanged.

Denominator
    None: it is part of the reward, recorded as the component `overlong`.

Settings
    overlong.kind = "soft-punishment". overlong.buffer is the width of the ramp in tokens: 4096
    before 20480 in DAPO. overlong.only_correct is off in DAPO and on in ScaleRL.

Effect on metrics
    length/truncated_rate and length/p95 fall. Two incorrect responses of different length get
    different rewards unless only correct ones are punished, so fewer groups lack variance.

Other implementations
    TRL's get_soft_overlong_punishment is the same. verl and ms-swift have no floor of -1, which
    makes no difference if generation ends at the limit.

Do not combine with
    overlong.kind = "mask", another value of the same setting.

Source
    DAPO, arXiv 2503.14476, Eq. 13; on correct responses only ScaleRL, arXiv 2510.13786, Eq. 9.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.section import Section


class OverlongConfig(Section):
    """Handling of responses that reach the length limit."""

    kind: Literal["none", "mask", "soft-punishment"] = "none"
    """`mask` excludes them from the loss, `soft-punishment` (DAPO Eq. 13) lowers the reward."""
    buffer: int = Field(4, ge=1)
    """Width of the soft punishment's ramp before the limit, in tokens."""
    only_correct: bool = False
    """Apply the soft punishment only to correct responses (ScaleRL)."""


def soft_overlong(length: int, limit: int, buffer: int) -> float:
    """0 up to `limit - buffer` tokens, then falling linearly to -1 at the limit."""
    return max(-1.0, min(0.0, (limit - buffer - length) / buffer))
