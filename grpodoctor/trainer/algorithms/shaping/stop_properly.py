"""Stop-properly penalty: scales the reward of truncated responses.

Formula
    truncated_factor times the reward of a truncated response; other rewards are unchanged. With a
    factor of 0, a response must end to be rewarded.

Denominator
    None: it is part of the reward. The difference is recorded as the component `overlong`.

Settings
    overlong.kind = "stop-properly"; overlong.truncated_factor 0, as in ProRL v2. 1 changes nothing.

Effect on metrics
    length/truncated_rate falls. groups/all_incorrect_rate rises where long correct responses were
    truncated after their answer.

Other implementations
    NeMo RL's stop_properly_penalty_coef is the factor.

Do not combine with
    Negative rewards: a factor below 1 then rewards truncation. The soft overlong punishment,
    another value of the same setting.

Source
    DLER, arXiv 2510.15110; the recipe ProRL v2, NeMo RL, docs/guides/prorlv2.md.
"""

from __future__ import annotations


def stop_properly(reward: float, truncated: bool, factor: float) -> float:
    """The amount to add to a reward."""
    return reward * (factor - 1) if truncated else 0.0
