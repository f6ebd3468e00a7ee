"""Prompts that are not solved every time."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class HarderPrompts(Remedy):
    """Replace prompts that are always solved by harder ones.

    What it does:
        A prompt that every response solves has no variance in its reward and teaches nothing. A
        harder one, solved some of the time, does.

    What it costs:
        New data, and a curve of training accuracy that cannot be compared with the old one.

    What it overlaps:
        Dynamic sampling, which skips the easy prompts but still pays for sampling them.

    How it is judged:
        By a person, after the restart: fewer groups are all correct, held-out accuracy rises.

    References:
        Polaris 2025, A Post-training Recipe for Scaling RL on Advanced Reasoning Models (dropping
        easy prompts); DAPO, arXiv 2503.14476, section 3.2.
    """

    id = "harder-prompts"
    title = "Train on harder prompts"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Watch("groups/all_correct_rate", "down")
    paper = "Polaris 2025"
    how = (
        "Sample eight responses per prompt with the present policy, drop the prompts that are "
        "solved every time, and add harder ones until most are solved between a quarter and "
        "three quarters of the time."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}
