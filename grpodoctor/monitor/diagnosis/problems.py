"""Problems: the most likely cause of a set of findings, with its symptoms folded under it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpodoctor.monitor.diagnosis.causal_table import (
    CONFIRM,
    mechanism,
    path_between,
)
from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.rules.base import SEVERITIES, Finding, Rule, Severity
from grpodoctor.vocabulary.conditions import Condition

ONSET_SLACK = 10
"""Logged steps by which a cause may be dated after its effect: rules judge levels of ten readings,
so an onset is not known better than that."""

_LEAST_SEVERE_CAUSE: Severity = "warning"

_UNRELATED: frozenset[Condition] = frozenset({"expected", "other"})
"""Conditions that two findings may share without being about the same thing."""

_ENDS_AT_ONCE: frozenset[Condition] = frozenset({"truncation", "no-end-token"})
"""Conditions whose effect ends with them, because they change single responses and not the policy:
a resolved one does not explain an alarm that lasts."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A finding that another one explains."""

    finding: Finding
    path: tuple[Condition, ...]
    """The conditions from the finding that explains it, a cause or another symptom."""

    @property
    def because(self) -> str:
        """Why the cause leads to the symptom; empty if both show the same condition."""
        return mechanism(self.path) if len(self.path) > 1 else ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding that nothing else explains, with the findings that it explains."""

    cause: Finding
    condition: Condition
    cost: Cost
    symptoms: tuple[Symptom, ...] = ()
    confirm: str = ""
    """What would confirm or exclude the cause, in one sentence."""

    @property
    def severity(self) -> Severity:
        """The highest severity among cause and symptoms."""
        return max((each.severity for each in self.findings), key=SEVERITIES.index)

    @property
    def active(self) -> bool:
        """Whether the cause or a symptom is active."""
        return any(finding.active for finding in self.findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The cause and its symptoms."""
        return (self.cause, *(symptom.finding for symptom in self.symptoms))

    def to_json(self) -> dict[str, Any]:
        """One entry of `causes`."""
        return {
            "code": self.cause.code,
            "name": self.cause.name,
            "condition": self.condition,
            "severity": self.severity,
            "active": self.active,
            "onset_step": self.cause.onset_step,
            "cost": self.cost.to_json(),
            "confirm": self.confirm,
            "symptoms": [
                {
                    "code": symptom.finding.code,
                    "onset_step": symptom.finding.onset_step,
                    "path": list(symptom.path),
                    "because": symptom.because,
                }
                for symptom in self.symptoms
            ],
        }


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the search for causes knows about the run besides its findings."""

    rules: Mapping[str, Rule]
    """The rules that were selected, by code."""
    quiet: Collection[str] = ()
    """Codes of the rules that ran and found nothing."""
    solved: bool = False
    """Whether the training prompts are solved."""
    stride: float = 1.0
    """Steps from one row of the log to the next."""
    cost_of: Callable[[Finding], Cost] = lambda finding: Cost(
        finding.last_step - finding.onset_step
    )

    def condition(self, finding: Finding) -> Condition:
        """The condition that a finding shows."""
        return self.causes(finding)[0]

    def causes(self, finding: Finding) -> tuple[Condition, ...]:
        """The condition that a finding shows, and the conditions that its rule lists as effects."""
        rule = self.rules.get(finding.code)
        if rule is None:
            return ("other",)
        is_premature = rule.condition == "solved" and not self.solved
        # Some prompts that are always solved are no success, but they carry no gradient.
        condition: Condition = "equal-rewards" if is_premature else rule.condition
        return condition, *rule.explains


def problems_of(findings: Sequence[Finding], context: RunContext) -> tuple[Problem, ...]:
    """Group findings by their most likely cause.

    The cause of a finding is the one with the fewest causal links, then the most severe, then the
    latest before it: a recent change is more likely the cause than a permanent state.

    Returns:
        Problems ordered by what to look at first: active, severe, with many symptoms, early.
    """
    causes = _direct_causes(findings, context)
    symptoms: dict[int, list[Symptom]] = {}
    for index in causes:
        path = _path(findings[causes[index]], findings[index], context, findings) or ()
        symptoms.setdefault(_root(index, causes), []).append(Symptom(findings[index], path))
    problems = [
        _problem(finding, tuple(symptoms.get(index, ())), context)
        for index, finding in enumerate(findings)
        if index not in causes
    ]
    return tuple(sorted(problems, key=_rank))


def _problem(cause: Finding, symptoms: tuple[Symptom, ...], context: RunContext) -> Problem:
    rule, condition = context.rules.get(cause.code), context.condition(cause)
    confirm = (rule.confirm if rule else "") or CONFIRM.get(condition, "")
    ordered = sorted(
        symptoms,
        key=lambda symptom: (
            not symptom.finding.active,
            -SEVERITIES.index(symptom.finding.severity),
            len(symptom.path),
            symptom.finding.onset_step,
        ),
    )
    return Problem(cause, condition, context.cost_of(cause), tuple(ordered), confirm)


def _rank(problem: Problem) -> tuple[bool, int, int, int, str]:
    weight = sum(SEVERITIES.index(finding.severity) for finding in problem.findings)
    return (
        not problem.active,
        -SEVERITIES.index(problem.severity),
        -weight,
        problem.cause.onset_step,
        problem.cause.code,
    )


def _direct_causes(findings: Sequence[Finding], context: RunContext) -> dict[int, int]:
    """The index of each explained finding's cause, by the index of the finding."""
    causes: dict[int, int] = {}
    for index, finding in enumerate(findings):
        candidates = [
            (len(path), -SEVERITIES.index(other.severity), -other.onset_step, place)
            for place, other in enumerate(findings)
            if place != index
            and _may_explain(other, finding, context)
            and (path := _path(other, finding, context, findings)) is not None
        ]
        for *_, place in sorted(candidates):
            if _root(place, causes) != index:
                causes[index] = place
                break
    return causes


def _root(index: int, causes: Mapping[int, int]) -> int:
    while index in causes:
        index = causes[index]
    return index


def _may_explain(cause: Finding, effect: Finding, context: RunContext) -> bool:
    """Whether a finding is severe enough, early enough and lasted long enough to explain another.

    A fault that is only worth a note does not explain an alarm. Success does, whenever it came:
    entropy falls and groups thin out while a run approaches it.
    """
    floor = SEVERITIES.index(_LEAST_SEVERE_CAUSE)
    is_mild = SEVERITIES.index(cause.severity) < floor <= SEVERITIES.index(effect.severity)
    if is_mild and context.condition(cause) != "solved":
        return False
    if context.condition(cause) == "solved":
        return cause.active
    if cause.code == effect.code:
        return True
    if context.condition(cause) == context.condition(effect):
        return cause.onset_step <= effect.last_step and effect.onset_step <= cause.last_step
    if context.condition(cause) in _ENDS_AT_ONCE and effect.active and not cause.active:
        return False
    slack = ONSET_SLACK * context.stride
    lasted = cause.active or cause.last_step >= effect.onset_step - slack
    return lasted and cause.onset_step <= effect.onset_step + slack


def _path(
    cause: Finding, effect: Finding, context: RunContext, findings: Iterable[Finding]
) -> tuple[Condition, ...] | None:
    wanted = context.condition(effect)
    if context.condition(cause) == wanted:
        is_one = cause.code == effect.code or wanted not in _UNRELATED
        return (wanted,) if is_one and _is_stronger(cause, effect) else None
    excluded = _excluded_conditions(context, findings)
    return path_between(context.causes(cause), wanted, lambda condition: condition not in excluded)


def _is_stronger(one: Finding, other: Finding) -> bool:
    """Whether the first of two findings with the same condition stands for both."""
    return _strength(one) < _strength(other)


def _strength(finding: Finding) -> tuple[bool, int, int, str]:
    severity = SEVERITIES.index(finding.severity)
    return not finding.active, -severity, finding.onset_step, finding.code


def _excluded_conditions(context: RunContext, findings: Iterable[Finding]) -> set[Condition]:
    """Conditions that a rule looked for and did not find: no causal path leads through them."""
    found = {context.condition(finding) for finding in findings}
    quiet = {context.rules[code].condition for code in context.quiet if code in context.rules}
    return quiet - found
