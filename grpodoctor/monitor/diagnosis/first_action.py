"""What to do first about a problem, and which checkpoint to return to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from grpodoctor.monitor.advice import Advice, usable
from grpodoctor.monitor.diagnosis.problems import Problem
from grpodoctor.monitor.diagnosis.verdict import lower_first
from grpodoctor.monitor.saved_checkpoints import SavedCheckpoints
from grpodoctor.remedies.base import ONSET
from grpodoctor.rules.base import Finding

STOP = "stop-training"
"""The remedy of findings in which the policy itself may be lost."""

_RETURN, _RESTART = "Return to", "Restart from"
"""How the first action begins if the policy is lost."""


@dataclass(frozen=True, slots=True)
class WayBack:
    """From before which step a checkpoint is good."""

    latest: int | None = None
    """The earliest alarm that the verdict names; None if that is the problem's own onset."""
    saved: SavedCheckpoints = field(default_factory=SavedCheckpoints)
    first_step: int = 0
    """The first step that was read; no checkpoint is from before it."""

    def step(self, onset: int) -> int:
        """The step of the first alarm, whose checkpoint may be damaged.

        Args:
            onset: the onset of the problem.
        """
        return onset if self.latest is None else min(onset, self.latest)

    def named_in(self, instruction: str, finding: Finding) -> str:
        """An instruction with that step, and with the checkpoint to take."""
        onset = finding.onset_step
        step = self.step(onset)
        return instruction.replace(ONSET, f"step {step}{self.saved.remark(step, onset)}")


NO_WAY_BACK = WayBack()


def first_action_of(
    problem: Problem, advice: Mapping[str, Advice], way_back: WayBack = NO_WAY_BACK
) -> str:
    """What to do first about a problem.

    If its cause is over and has ruined the policy, the remedy of the cause alone helps no more.
    Without a remedy that is left to try, it is the test of the cause.

    Args:
        problem: the problem.
        advice: the remedies by id, resolved for the run.
        way_back: which checkpoint is good.
    """
    action, present = first_remedy(problem.cause, advice, way_back), problem.present
    if problem.cause.active and problem.severity == "critical" and action:
        # Its effects show that the policy is lost, even if the cause by itself does not.
        action = first_remedy(replace(problem.cause, severity="critical"), advice, way_back)
    if not action and not problem.cause.active:
        action = first_remedy(present, advice, way_back)  # a past cause, only worth a note
        return action or problem.confirm.rstrip(".")
    if not action:
        return problem.confirm.rstrip(".")
    if present is problem.cause or not _is_lost(present, advice):
        return action
    return _after_return(min(problem.cause.onset_step, present.onset_step), action, way_back)


def first_remedy(
    finding: Finding, advice: Mapping[str, Advice], way_back: WayBack = NO_WAY_BACK
) -> str:
    """What to do first about a finding: its first remedy, with its condition if unknown.

    A policy that is lost does not come back by itself, so a remedy of the cause needs an earlier
    checkpoint.
    """
    remedies = usable(finding.remedies, advice)
    if not remedies or not remedies[0].is_open:
        return ""
    title = remedies[0].conditional_title
    return (
        _after_return(finding.onset_step, title, way_back) if _is_lost(finding, advice) else title
    )


def _is_lost(finding: Finding, advice: Mapping[str, Advice]) -> bool:
    """Whether a finding shows a policy that does not come back by itself."""
    further = [remedy.id for remedy in usable(finding.remedies, advice)[1:]]
    return finding.severity == "critical" and STOP in further


def _after_return(onset: int, action: str, way_back: WayBack) -> str:
    """An action that needs a checkpoint from before the first alarm."""
    step = way_back.step(onset)
    if step <= way_back.first_step or action.startswith((_RETURN, _RESTART)):
        return action
    last, first = way_back.saved.before(step), way_back.saved.first_before(onset)
    then = f"then {lower_first(action)}"
    if last is None:
        return f"{_RETURN} a checkpoint from before step {step}, {then}"
    if last:
        return f"{_RETURN} the last checkpoint saved before step {step} (step {last}), {then}"
    if first:
        why = f"none was saved before the alarm at step {step}, so test it first"
        return f"{_RETURN} the checkpoint of step {first} ({why}), {then}"
    return f"{_RESTART} the initial model (no checkpoint was saved before step {step}), {then}"
