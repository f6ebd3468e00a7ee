"""Ending a run that only burns time."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class StopTraining(Remedy):
    """Stop the run and return to a checkpoint from before the finding.

    What it does:
        Some states are not left again: weights that are no longer finite, a policy that has
        unlearned its task and finds no reward to climb back by. More steps only overwrite
        checkpoints.

    What it costs:
        The steps since that checkpoint, which were lost already.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: the resumed run does not show the finding again. Change its cause first, or it
        will.

    References:
        OPT: Open Pre-trained Transformer Language Models, arXiv 2205.01068, section 2.5 (restarting
        from before a divergence with a lower learning rate).
    """

    id = "stop-training"
    title = "Stop, and go back to the last good checkpoint"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Watch("reward/mean", "up")
    paper = "OPT, arXiv 2205.01068"
    how = (
        "Stop the run. Resume from the last checkpoint before the onset step of the finding, "
        "with the cause changed (learning rate, reward, engine), and keep the newer "
        "checkpoints aside."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}
