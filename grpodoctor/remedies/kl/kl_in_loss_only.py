"""One KL penalty instead of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class KlInLossOnly(Remedy):
    """Switch the KL penalty in the reward off, and keep the one in the loss.

    What it does:
        Leaves one pull toward the reference, whose strength is its coefficient. The penalty in the
        reward is normalized with the rewards of the group, so its strength depends on their spread.

    When it applies:
        The config has a KL penalty in the reward and one in the loss.

    What it costs:
        The policy may move farther from the reference. If that is too far, raise the coefficient
        that is left.

    What it overlaps:
        `kl-penalty` and `smaller-kl-penalty`, which change the coefficient in the loss.

    How it is judged:
        By a person, after the restart: the reward rises faster, and the divergence from the
        reference stays bounded.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.1 (GRPO moves the KL from the reward to the
        loss).
    """

    id = "kl-in-loss-only"
    title = "Switch the KL penalty in the reward off"
    applicability = "suggest"
    in_flight = False
    slots = ("kl",)
    target = Criterion("reward/mean", "up")
    guards = (Criterion("kl/reference/k3", "up", 2.0, slack=0.1),)
    paper = "DeepSeekMath, arXiv 2402.03300"
    how = "Set the coefficient of the KL penalty in the reward to 0, and keep the one in the loss."
    restart_with: ClassVar[Mapping[str, Setting]] = {"no_kl_in_reward": True}
