"""Prompts that are solved at least sometimes."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class EasierPrompts(Remedy):
    """Add prompts that the policy solves some of the time.

    What it does:
        A prompt that no response solves has no variance in its reward and teaches nothing, however
        long one samples. The policy has to meet success before it can be reinforced.

    What it costs:
        New data, or a supervised warm start on worked solutions.

    What it overlaps:
        Dynamic sampling, which cannot fill a batch from prompts that are never solved.

    How it is judged:
        By a person, after the restart: fewer groups are all incorrect, the reward rises.

    References:
        Bengio et al. 2009, Curriculum Learning; DAPO, arXiv 2503.14476, section 3.2.
    """

    id = "easier-prompts"
    title = "Train on easier prompts"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Watch("groups/all_incorrect_rate", "down")
    paper = "Bengio et al. 2009, Curriculum Learning"
    how = (
        "First make sure that the reward accepts a right answer (recheck-reward). Then mix in "
        "easier prompts, give partial credit, or warm-start on worked solutions, until at "
        "least a quarter of the prompts are solved by some response of their group."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}
