"""Larger groups."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class LargerGroups(Remedy):
    """Restart with eight responses per prompt.

    What it does:
        Compares each response with the others of its group: the group's mean reward is the baseline
        that is subtracted from its reward.

    When it applies:
        The group has one response, or so few that its mean is noise.

    What it costs:
        Eight times the sampling for the same number of prompts, or the same sampling with an eighth
        of the prompts.

    What it overlaps:
        A critic, which estimates the baseline instead of sampling it.

    How it is judged:
        By a person, after the restart: the mean advantage is zero, and the reward rises sooner.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.
    """

    id = "larger-groups"
    title = "Restart with several responses per prompt"
    applicability = "suggest"
    in_flight = False
    needs_memory = True
    slots = ("advantage",)
    target = Criterion("reward/mean", "up")
    paper = "arXiv 2402.03300"
    how = (
        "Restart with eight responses per prompt, and with fewer prompts per batch if memory or "
        "time does not allow as many responses."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `group_size` to eight if it is known to be smaller."""
        size = knobs.get("group_size")
        return {"group_size": 8} if isinstance(size, int) and size < 8 else {}
