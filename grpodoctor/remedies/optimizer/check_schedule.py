"""Check of the learning-rate schedule."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckSchedule(Remedy):
    """Give the run a learning-rate schedule that is as long as the run.

    What it does:
        A schedule that ends before the run leaves a rate of zero. A constant rate, or a schedule
        made for the real number of optimizer steps, lets the weights change again.

    When it applies:
        The learning rate has fallen to zero, and the run goes on.

    What it costs:
        A restart from the checkpoint at the fall. The steps since then have changed nothing.

    What it overlaps:
        A higher peak rate does not help: zero times any peak is zero.

    How it is judged:
        By a person: the logged rate is above zero after the restart, and the reward moves again.

    References:
        Adam, arXiv 1412.6980.
    """

    id = "check-schedule"
    title = "Make the learning-rate schedule as long as the run"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("reward/mean", "up")
    paper = "Adam, arXiv 1412.6980"
    how = (
        "Stop the run: its weights have not changed since the rate reached zero. Count the "
        "optimizer steps of the whole run: batches times updates per batch. Give the scheduler "
        "this number or use a constant rate, and print the rate of the first and the last step."
    )
