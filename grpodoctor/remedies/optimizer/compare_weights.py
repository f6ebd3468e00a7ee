"""Comparison of the weights before and after one update."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CompareWeights(Remedy):
    """Compare the weights before and after one update.

    What it does:
        Decides between two causes that look the same in a log without readings of the weights.
        Equal weights: the updates are lost. Weights that differ by about the learning rate: the
        updates reach the policy, and the rewards give them no direction.

    When it applies:
        Reward, entropy, length and gradient norm are level from the first step on.

    What it costs:
        Two saved checkpoints, one step apart.

    What it overlaps:
        An attached run records `optimizer/changed_weight_rate` at every step, which is the same
        comparison.

    How it is judged:
        By a person. With equal weights, look at the optimizer: parameters that are copies of those
        of the model, frozen layers, bf16 rounding, a schedule at 0. With other weights, test the
        reward function, and print the prompts as the model receives them.

    References:
        Kingma and Ba 2015, arXiv 1412.6980, section 2.1: a step of Adam changes a weight by about
        the learning rate at most.
    """

    id = "compare-weights"
    title = "Compare the weights before and after one update"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("optimizer/changed_weight_rate", "up")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "Kingma and Ba 2015, arXiv 1412.6980"
    how = (
        "Save the weights before and after one optimizer step and count those that differ. If next "
        "to none do, the updates are lost: check which parameters the optimizer holds, whether "
        "they are frozen, and their precision. If most differ, the updates arrive: test the reward "
        "function, and print prompts and rewards of one batch as the trainer uses them."
    )
