"""A pretrained critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class WarmUpCritic(Remedy):
    """Train the critic for 50 steps before the policy moves.

    What it does:
        An untrained critic is a random baseline: its advantages are noise, and its errors move the
        policy. 50 steps on observed returns, with a fixed policy, make it useful. A lambda of 1 in
        its targets keeps the reward of a long response from vanishing.

    When it applies:
        The run has a critic whose explained variance is near 0 or below.

    What it costs:
        50 steps without progress of the policy.

    What it overlaps:
        Group baselines, which need no critic.

    How it is judged:
        By a person, after the restart: explained variance is clearly above 0 when the policy starts
        to move.

    References:
        VAPO, arXiv 2504.05118 (11 points on AIME without it, 60 with it).
    """

    id = "warm-up-critic"
    title = "Pretrain the critic"
    applicability = "suggest"
    in_flight = False
    slots = ("advantage",)
    target = Criterion("critic/explained_variance", "up")
    paper = "VAPO, arXiv 2504.05118"
    how = (
        "Restart with 50 steps of critic pretraining and lambda 1 for the critic, or drop the "
        "critic and use group baselines (advantage estimator grpo)."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"critic_pretraining": 50}
