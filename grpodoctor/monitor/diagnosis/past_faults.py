"""What went wrong in a run before its present fault, in sentences without a full stop."""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.monitor.diagnosis.problems import SETTINGS, Problem, is_alarm
from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.rules.reward.reward_collapse import RewardCollapse

_FALLS = frozenset({RewardCollapse.code})
"""Rules that report a lasting fall of the outcome."""

EARLIER = "earlier"
"""How the sentence begins that names what went wrong before the verdict's fault."""


def past_cause(problem: Problem) -> list[str]:
    """The cause of a fault, if it is over."""
    if problem.present is not problem.cause:
        return [f"caused by {_past(problem.cause, problem.cause.last_step)}"]
    if problem.origin is not None:
        return [f"it followed {_past(problem.origin.finding, problem.origin.finding.last_step)}"]
    return []


def first_named(
    problem: Problem, others: Sequence[Problem], *, opening: float, slack: float
) -> int:
    """The step of the earliest alarm that a verdict names; see `earlier` for the arguments."""
    if problem.present is not problem.cause:
        return min(problem.since, problem.cause.onset_step)
    if problem.origin is not None:
        return min(problem.since, problem.origin.finding.onset_step)
    event = _earlier_alarm(problem, others, opening=opening, slack=slack)
    return problem.since if event is None else min(problem.since, event.onset_step)


def earlier(
    problem: Problem, others: Sequence[Problem], *, opening: float, slack: float
) -> list[str]:
    """What went wrong before the onset that the verdict states.

    An alarm that has no known link to the verdict's fault may still have led to it. One that was
    there from the start is a state and no event, and says nothing about what came first.

    Args:
        problem: the verdict's fault.
        others: the other faults.
        opening: the last step whose conditions may have been there from the start.
        slack: steps by which the onsets of two findings may be off.
    """
    event = _earlier_alarm(problem, others, opening=opening, slack=slack)
    if event is None:
        return []
    if event.code == problem.present.code:
        return [f"{EARLIER}: the same {_steps(event.onset_step, event.last_step)}"]
    return [f"{EARLIER}: {event.code} {event.name}, since step {event.onset_step}"]


def _earlier_alarm(
    problem: Problem, others: Sequence[Problem], *, opening: float, slack: float
) -> Finding | None:
    """The alarm that `earlier` names."""
    latest = problem.since - slack
    same = [
        each
        for each in problem.findings
        if is_alarm(each) and each.code == problem.present.code and each.last_step < latest
    ]
    if same:
        return min(same, key=lambda each: each.onset_step)
    events = [
        each.cause
        for each in others
        if each.cause.active
        and is_alarm(each.cause)
        and not each.cause.code.startswith(SETTINGS)
        and opening < each.since < latest
    ]
    by_weight = sorted(events, key=lambda each: (-SEVERITIES.index(each.severity), each.onset_step))
    return by_weight[0] if by_weight else None


def notable_past(problem: Problem, resolved: Sequence[Problem]) -> list[str]:
    """The most severe resolved fault that was treated, or that lasted and was worse than this one.

    It is left out if it is named as the origin of the present one.
    """
    origin = problem.origin.finding if problem.origin else None
    rank = SEVERITIES.index(problem.severity)
    notable = [
        each
        for each in resolved
        if each.is_treated or (SEVERITIES.index(each.severity) > rank and _came_back(each))
    ]
    notable = [each for each in notable if each.cause is not origin]
    if not notable:
        return []
    worst = max(notable, key=lambda each: SEVERITIES.index(each.severity))
    return [f"resolved: {past_problem(worst)}"]


def _came_back(problem: Problem) -> bool:
    """Whether the cause of a problem was an alarm more than once."""
    same = (each for each in problem.findings if each.code == problem.cause.code)
    return sum(map(is_alarm, same)) > 1


def lost_before(resolved: Sequence[Problem]) -> list[str]:
    """The longest fall of the outcome that is over: the policy that solves the task came after it.

    A run may have been broken and learned again, which its last steps do not show.
    """
    falls = [
        (finding.last_step - finding.onset_step, finding, problem.cause)
        for problem in resolved
        for finding in problem.findings
        if is_alarm(finding) and finding.code in _FALLS
    ]
    if not falls:
        return []
    _, longest, cause = max(falls, key=lambda each: each[0])
    why = "" if cause is longest else f", caused by {cause.code} {cause.name}"
    return [f"resolved: {_past(longest, longest.last_step)}{why}"]


def past_problem(problem: Problem) -> str:
    """The cause of a resolved problem, with the steps from its onset to the last symptom."""
    last = max(finding.last_step for finding in problem.findings if is_alarm(finding))
    return _past(problem.cause, last)


def _past(finding: Finding, last: int) -> str:
    """A resolved finding with its steps."""
    return f"{finding.code} {finding.name} {_steps(finding.onset_step, last)}"


def _steps(first: int, last: int) -> str:
    return f"at step {first}" if first == last else f"at steps {first} to {last}"
