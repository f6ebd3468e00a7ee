"""Check of the advantages."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckAdvantages(Remedy):
    """Check the advantages of one batch, row by row and rank by rank.

    What it does:
        Finds the place at which rewards and advantages part: rows out of order after a gather,
        wrong group ids, a group that is spread over two ranks, or a rank that skips the baseline.

    When it applies:
        The recorded advantages contradict the method of the configuration.

    What it costs:
        An hour of your time.

    What it overlaps:
        Nothing. Settings do not repair rows that are in the wrong place.

    How it is judged:
        By a person: the advantages of every group sum to zero, and equal rewards of a group have
        equal advantages.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.
    """

    id = "check-advantages"
    title = "Check the advantages against the rewards"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("groups/uncentred_rate", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "DeepSeekMath, arXiv 2402.03300"
    how = (
        "On every rank, print group id, reward and advantage of one batch where the loss reads "
        "them. Subtract the mean reward of each group by hand. Look for groups that are spread "
        "over ranks, and for rows whose order changed between scoring and the loss."
    )
