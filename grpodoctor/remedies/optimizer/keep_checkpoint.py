"""A run that has reached its goal."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class KeepCheckpoint(Remedy):
    """Stop the run and keep this checkpoint: the task is solved.

    What it does:
        When nearly all responses are correct, groups have no variance, the gradient vanishes, and
        further steps change the policy only by noise and penalties. Success is not a failure: the
        checkpoint is the result.

    When it applies:
        The reward is at its maximum, and held-out accuracy confirms it.

    What it costs:
        Nothing. To go further, continue with harder prompts.

    What it overlaps:
        Harder prompts, with which the run can go on.

    How it is judged:
        By a person: held-out accuracy of the checkpoint.

    References:
        DAPO, arXiv 2503.14476, section 3.2 (what solved prompts contribute).
    """

    id = "keep-checkpoint"
    title = "Solved: stop, and keep this checkpoint"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("accuracy/heldout", "up")
    paper = "DAPO, arXiv 2503.14476"
    alternatives = ("harder-prompts",)
    how = (
        "Evaluate this checkpoint on held-out prompts and keep it. Stop the run, or continue with"
        " harder prompts (harder-prompts)."
    )
