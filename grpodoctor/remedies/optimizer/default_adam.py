"""The usual settings of Adam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class DefaultAdam(Remedy):
    """Set Adam's betas and epsilon to the values of its paper.

    What it does:
        Averages gradients over about 10 steps and their squares over about 1,000, so that a single
        large gradient cannot make a step of unbounded size, and a small one still moves weights by
        about the learning rate.

    When it applies:
        The config has a beta1 above the root of beta2, or an epsilon of 0.01 or more.

    What it costs:
        A restart: the state of the optimizer does not fit the new averages.

    What it overlaps:
        `smaller-updates` and `raise-learning-rate`, which change the same steps by their size.

    How it is judged:
        By a person, after the restart: the reward rises, and the gradient norm has no spikes.

    References:
        Adam, arXiv 1412.6980, algorithm 1.
    """

    id = "default-adam"
    title = "Use Adam's usual betas and epsilon"
    applicability = "suggest"
    in_flight = False
    slots = ("step-size",)
    target = Criterion("reward/mean", "up")
    guards = (Criterion("optimizer/grad_norm", "up", 2.0, slack=0.1),)
    paper = "Adam, arXiv 1412.6980"
    how = "Set beta1 to 0.9, beta2 to 0.999 and epsilon to 1e-8."
    restart_with: ClassVar[Mapping[str, Setting]] = {"default_adam": True}
