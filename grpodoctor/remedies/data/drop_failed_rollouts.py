"""Rollouts that failed without fault of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class DropFailedRollouts(Remedy):
    """Leave out rollouts that a tool or the environment ended, instead of scoring them 0.

    What it does:
        A sandbox that times out, a tool that is down or an aborted request gives a reward of 0,
        although the policy did nothing wrong. The policy learns to avoid tools. Such rollouts have
        no reward: they belong neither in the loss nor in the group's mean.

    When it applies:
        Tools or environments fail in more than a few percent of the rollouts, or rollouts are
        aborted.

    What it costs:
        Smaller groups. Failures that the policy causes, such as invalid calls, must still count.

    What it overlaps:
        Overlong masking, which leaves out truncated responses.

    How it is judged:
        By a person, after the restart: the failure share is logged separately, and tool use no
        longer falls.

    References:
        SkyRL-Agent and verl agent loops (aborted rollouts); TRL 1.16 (a reward of None leaves a
        response out).
    """

    id = "drop-failed-rollouts"
    title = "Leave failed rollouts out of the loss"
    applicability = "suggest"
    in_flight = False
    slots = ("reward",)
    target = Criterion("reward/mean", "up")
    paper = "TRL 1.16, rewards of None"
    how = (
        "Return no reward (None, or a mask) for rollouts that ended by a tool error, a timeout of"
        " the environment or an abort, and retry them. Log their share. Keep the reward of "
        "invalid calls, which the policy causes."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"drop_failed_rollouts": True}
