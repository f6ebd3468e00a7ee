"""Check of the reward function."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class RecheckReward(Remedy):
    """Check by hand what the reward function rewards.

    What it does:
        A reward that is always 0, always 1, or rises while held-out accuracy falls says more about
        the reward function than about the policy: a parser that rejects correct answers, components
        that cancel, or a criterion that a response can meet without solving the task.

    When it applies:
        The reward is constant, or rises while held-out accuracy falls.

    What it costs:
        An hour of your time. No other remedy helps while the reward is wrong.

    What it overlaps:
        Nothing. Check the reward before you apply any other remedy.

    How it is judged:
        By a person: the share of responses on which the reward and a reader disagree. Afterward,
        held-out accuracy rises together with the reward.

    References:
        Gao et al. 2022, Scaling Laws for Reward Model Overoptimization, arXiv 2210.10760.
    """

    id = "recheck-reward"
    title = "Test the reward function with known right and wrong answers"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("accuracy/heldout", "up")
    paper = "Gao et al. 2022, arXiv 2210.10760"
    alternatives = ("reweight-rewards", "gdpo", "drop-failed-rollouts")
    how = (
        "Print twenty responses with the highest and twenty with the lowest reward, each with its "
        "components and the reference answer. Grade them by eye. Call the reward function on a "
        "known correct and a known incorrect answer."
    )
    command = "grpodoctor preflight --prompts FILE --reward FILE.py:FUNCTION"
