"""Weights of the reward components."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class ReweightRewards(Remedy):
    """Scale the reward components so that correctness decides.

    What it does:
        The gradient follows the component with the largest spread within a group, whatever its
        weight was meant to be. Scale the others down until correctness has the largest spread.

    When it applies:
        One component explains nearly all of the reward's variance, and it is not correctness; or
        two components cancel.

    What it costs:
        A new scale of the reward: curves before and after cannot be compared.

    What it overlaps:
        GDPO, which standardizes components and makes weights meaningless.

    How it is judged:
        By a person, after the restart: accuracy rises together with the reward.

    References:
        GDPO, arXiv 2601.05242, section 2 (what a sum of components hides).
    """

    id = "reweight-rewards"
    title = "Reweight the reward components"
    applicability = "suggest"
    in_flight = False
    slots = ("reward",)
    target = Criterion("accuracy/train", "up")
    more_targets = (Criterion("accuracy/heldout", "up"),)
    paper = "GDPO, arXiv 2601.05242"
    how = (
        "Print the standard deviation of each component within groups. Choose weights so that "
        "correctness has at least twice the spread of any other component, and give shaping "
        "components only to correct responses."
    )
