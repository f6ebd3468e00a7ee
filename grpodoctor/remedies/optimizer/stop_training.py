"""Stop of a run that cannot recover."""

from __future__ import annotations

from grpodoctor.remedies.base import ONSET, Criterion, Remedy


class StopTraining(Remedy):
    """Stop the run and return to a checkpoint from before the finding.

    What it does:
        A run cannot recover from some states: NaN in the weights, or a policy that no longer solves
        the task and so receives no reward. Further steps only overwrite checkpoints.

    When it applies:
        The run cannot recover: NaN in the weights, or a policy that no longer solves the task. A
        solved run needs `keep-checkpoint`.

    What it costs:
        The steps since that checkpoint, which were already lost.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: the resumed run does not show the finding again. Fix the cause before you
        resume, or the finding returns.

    References:
        OPT: Open Pre-trained Transformer Language Models, arXiv 2205.01068, section 2.5 (restarting
        from before a divergence with a lower learning rate).
    """

    id = "stop-training"
    title = "Stop, and return to the last good checkpoint"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("reward/mean", "up")
    paper = "OPT, arXiv 2205.01068"
    alternatives = ("check-resume",)
    how = (
        f"Stop the run, and resume from the last checkpoint before {ONSET}. Change its cause "
        "(learning rate, reward, engine), and keep the newer checkpoints in another place."
    )
