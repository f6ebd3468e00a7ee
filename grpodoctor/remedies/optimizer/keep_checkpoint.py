"""End of a run that has solved its prompts."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class KeepCheckpoint(Remedy):
    """Stop a solved run and keep its current checkpoint.

    What it does:
        If nearly every response earns the full reward, nearly all advantages are zero and further
        steps change the policy by noise and by penalties only. The run has reached its goal.

    What it costs:
        Nothing that the same prompts can still teach.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: held-out evaluation of this checkpoint is at least as good as that of the
        earlier ones. If it is not, keep the best one instead.

    References:
        DAPO, arXiv 2503.14476, section 3.2 (prompts that every response solves give no gradient).
    """

    id = "keep-checkpoint"
    title = "Solved: stop, and keep this checkpoint"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("reward/heldout", "up")
    paper = "DAPO, arXiv 2503.14476, section 3.2"
    how = (
        "Stop the run and keep this checkpoint. Compare its held-out evaluation with that of "
        "earlier checkpoints before you use it."
    )
