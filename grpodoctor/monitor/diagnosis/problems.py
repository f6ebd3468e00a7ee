"""Problems: the most likely cause of a set of findings, with its symptoms folded under it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.monitor.diagnosis.causal_table import (
    CONFIRM,
    mechanism,
    path_between,
)
from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.plausibility import (
    SPIKE_SLACK,
    Circumstances,
    condition_began,
    is_plausible,
    problem_began,
)
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

_HOLDS_WITH_EFFECT: frozenset[Condition] = frozenset({"entropy-rise"})
"""Conditions of the policy that last as long as what they do to its responses: what began earlier
and lasted longer is not their effect."""

_OF_THE_BATCH: frozenset[Condition] = frozenset(
    {
        "expert-mismatch",
        "engine-mismatch",
        "off-policy",
        "wrong-old-logprobs",
        "large-kl",
        "clipped-tokens",
    }
)
"""Conditions that are measured in each batch: a resolved one does not explain an active one. Its
damage to the policy lasts, and stays explained."""


_WRONG_RATIOS: tuple[Condition, Condition] = ("wrong-old-logprobs", "oversized-updates")
"""Wrong ratios look like large updates, in the batches that have them: what is left without them
are large updates."""

_ONLY_IF_SHOWN: frozenset[Condition] = frozenset({"environment-change"})
"""Conditions that no rule looks for: a path leads through one only if a finding shows it."""

_AT_BEST = 0.9
"""Part of its best level at which a reward has not fallen yet, and will not rise much."""

SETTINGS = "CFG"
"""Family of the rules that judge settings and not what the run shows."""


def is_alarm(finding: Finding) -> bool:
    """Whether a finding is a fault: at least a warning."""
    return SEVERITIES.index(finding.severity) >= SEVERITIES.index(_LEAST_SEVERE_CAUSE)


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
class TreatedCause:
    """A resolved finding that explains one that is still active."""

    finding: Finding
    because: str = ""
    """Why it leads to the active finding; empty if both show the same condition."""

    def to_json(self) -> dict[str, Any]:
        """The `origin` of a cause."""
        return {
            "code": self.finding.code,
            "name": self.finding.name,
            "onset_step": self.finding.onset_step,
            "last_step": self.finding.last_step,
            "because": self.because,
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding that no other active one explains, with the findings that it explains."""

    cause: Finding
    condition: Condition
    cost: Cost
    symptoms: tuple[Symptom, ...] = ()
    confirm: str = ""
    """What would confirm or exclude the cause, in one sentence."""
    origin: TreatedCause | None = None
    """The treated finding that an active cause follows from; it heads a separate problem."""
    is_treated: bool = False
    """Whether the cause has ended after a change that one of its remedies makes."""
    eased_from: int | None = None
    """The onset of the earlier finding that the present one continues; None if there is none."""

    @property
    def since(self) -> int:
        """The step at which the condition began that describes the run now."""
        return self.present.onset_step if self.eased_from is None else self.eased_from

    @property
    def severity(self) -> Severity:
        """The highest severity among cause and symptoms."""
        return max((each.severity for each in self.findings), key=SEVERITIES.index)

    @property
    def present(self) -> Finding:
        """What describes the run now: the cause, or the worst alarm that outlasts it."""
        return _present(self.cause, self.symptoms)

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
            "origin": self.origin.to_json() if self.origin else None,
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
    is_treated: Callable[[Finding], bool] = lambda _: False
    """Whether a setting that a remedy of the finding changes was changed since its onset."""
    level_before: Callable[[str, int], float | None] = lambda *_: None
    """The level of a metric before a step; None if the chart does not reach back to it."""

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
        return finding.condition or condition, *rule.explains


def problems_of(findings: Sequence[Finding], context: RunContext) -> tuple[Problem, ...]:
    """Group findings by their most likely cause.

    The cause of a finding is the one with the fewest causal links, then the most severe, then the
    latest before it: a recent change is more likely the cause than a permanent state. A spike that
    is over comes after all others.

    A cause that was treated is past: an alarm that outlives it heads a problem, and the cause is
    its origin.

    Returns:
        Problems ordered by what to look at first: active, severe, observed rather than concluded
        from a setting, with an alarm that lasts, not outlasted by an earlier cause, with many
        symptoms, early.
    """
    causes = _direct_causes(findings, context)
    origins = _cut_from_treated(causes, findings, context)
    symptoms: dict[int, list[Symptom]] = {}
    for index in causes:
        path = _path(findings[causes[index]], findings[index], context, findings) or ()
        symptoms.setdefault(_root(index, causes), []).append(Symptom(findings[index], path))
    problems = [
        _problem(
            finding,
            tuple(symptoms.get(index, ())),
            _origin(origins.get(index), finding, context, findings),
            context,
            findings,
        )
        for index, finding in enumerate(findings)
        if index not in causes
    ]
    return tuple(sorted(problems, key=lambda problem: _rank(problem, problems)))


def _cut_from_treated(
    causes: dict[int, int], findings: Sequence[Finding], context: RunContext
) -> Mapping[int, Finding]:
    """Remove the links of active alarms to causes that were treated and have ended.

    Returns:
        The cause that explains each of these alarms, by the index of the alarm.
    """
    origins: dict[int, Finding] = {}
    for index, finding in enumerate(findings):
        chain = [findings[place] for place in _chain(index, causes)]
        is_lasting_alarm = finding.active and is_alarm(finding)
        if not chain or not is_lasting_alarm or any(cause.active for cause in chain):
            continue
        if context.is_treated(chain[-1]):
            origins[index] = chain[0]
    for index in origins:
        del causes[index]
    return origins


def _chain(index: int, causes: Mapping[int, int]) -> Iterator[int]:
    """The cause of a finding, the cause of that cause, and so on."""
    while index in causes:
        index = causes[index]
        yield index


def _origin(
    cause: Finding | None, effect: Finding, context: RunContext, findings: Sequence[Finding]
) -> TreatedCause | None:
    """The treated cause of a finding with its mechanism; None if it has none."""
    if cause is None:
        return None
    path = _path(cause, effect, context, findings) or ()
    return TreatedCause(cause, Symptom(effect, path).because)


def _problem(
    cause: Finding,
    symptoms: tuple[Symptom, ...],
    origin: TreatedCause | None,
    context: RunContext,
    findings: Sequence[Finding],
) -> Problem:
    rule, condition = context.rules.get(cause.code), context.condition(cause)
    confirm = (rule.confirm if rule else "") or CONFIRM.get(condition, "")
    if cause.severity == "info" and not cause.remedies:
        confirm = ""  # what is expected needs no test
    ordered = sorted(
        symptoms,
        key=lambda symptom: (
            *(not symptom.finding.active, -SEVERITIES.index(symptom.finding.severity)),
            *(len(symptom.path), symptom.finding.onset_step),
        ),
    )
    present = _present(cause, ordered)
    since = condition_began(present, findings, context.stride)
    if present.active:
        alarms = [each for each in (cause, *(one.finding for one in symptoms)) if is_alarm(each)]
        since = min(since, problem_began(present, alarms, context.stride))
    return Problem(
        cause=cause,
        condition=condition,
        cost=context.cost_of(replace(present, onset_step=since)),
        eased_from=since if since < present.onset_step else None,
        symptoms=tuple(ordered),
        confirm=confirm,
        origin=origin,
        is_treated=not cause.active and context.is_treated(cause),
    )


def _present(cause: Finding, symptoms: Iterable[Symptom]) -> Finding:
    lasting = () if cause.active else (each.finding for each in symptoms if each.finding.active)
    return next(filter(is_alarm, lasting), cause)


def _rank(
    problem: Problem, problems: Sequence[Problem]
) -> tuple[bool, int, bool, bool, bool, int, int, str]:
    weight = sum(SEVERITIES.index(finding.severity) for finding in problem.findings)
    return (
        not problem.active,
        -SEVERITIES.index(problem.severity),
        _is_unobserved(problem),
        not any(finding.active and is_alarm(finding) for finding in problem.findings),
        not problem.cause.active and any(_outlasts(other, problem) for other in problems),
        -weight,
        problem.cause.onset_step,
        problem.cause.code,
    )


def _is_unobserved(problem: Problem) -> bool:
    """Whether nothing in the readings shows the effect of a setting.

    A setting that may do harm comes after a fault that the run shows, unless it explains one.
    """
    return not any(is_alarm(finding) and not _is_setting(finding) for finding in problem.findings)


def _is_setting(finding: Finding) -> bool:
    return finding.code.startswith(SETTINGS)


def _outlasts(one: Problem, other: Problem) -> bool:
    """Whether a cause was there before another one and still is, when the other has ended."""
    is_longer = one.cause.onset_step <= other.cause.onset_step
    return one.cause.active and is_longer and one.severity == other.severity


def _direct_causes(findings: Sequence[Finding], context: RunContext) -> dict[int, int]:
    """The index of each explained finding's cause, by the index of the finding."""
    causes: dict[int, int] = {}
    for index, finding in enumerate(findings):
        candidates = [
            (
                len(path),
                _is_past_spike(other, context),
                -SEVERITIES.index(other.severity),
                -other.onset_step,
                place,
            )
            for place, other in enumerate(findings)
            if place != index
            and _may_explain(
                other, finding, context, condition_began(other, findings, context.stride)
            )
            and (path := _path(other, finding, context, findings)) is not None
        ]
        for *_, place in sorted(candidates):
            if _root(place, causes) != index:
                causes[index] = place
                break
    return causes


def _is_past_spike(finding: Finding, context: RunContext) -> bool:
    """Whether a finding is a spike that is over: a cause that lasts is the likelier one."""
    return not finding.active and context.condition(finding) == "gradient-spike"


def _root(index: int, causes: Mapping[int, int]) -> int:
    return next(reversed([index, *_chain(index, causes)]))


def _may_explain(cause: Finding, effect: Finding, context: RunContext, began: int) -> bool:
    """Whether a finding is severe enough, early enough and lasted long enough to explain another.

    A fault that is only worth a note does not explain an alarm. Success does, whenever it came:
    entropy falls and groups thin out while a run approaches it.

    Args:
        cause: the finding that may explain the other.
        effect: the finding to explain.
        context: what is known about the run.
        began: the step at which the condition of the cause began.
    """
    floor = SEVERITIES.index(_LEAST_SEVERE_CAUSE)
    is_mild = SEVERITIES.index(cause.severity) < floor <= SEVERITIES.index(effect.severity)
    if is_mild and context.condition(cause) != "solved":
        return _hits_at_once(cause, effect, context)
    if context.condition(cause) == "solved":
        return cause.active
    if cause.code == effect.code:
        return True
    if context.condition(cause) == context.condition(effect):
        return cause.onset_step <= effect.last_step and effect.onset_step <= cause.last_step
    if _is_setting(effect) and not _is_setting(cause):
        return False  # a setting is no effect of what the run shows
    if effect.active and not cause.active and _ends_with(context, cause, effect):
        return False
    slack = ONSET_SLACK * context.stride
    if (context.condition(cause), context.condition(effect)) == ("reward-loss", "held-out-loss"):
        return _is_one_fall(cause, effect, context)
    if context.condition(cause) in _HOLDS_WITH_EFFECT and _is_within(cause, effect, slack):
        return False
    lasted = cause.active or cause.last_step >= effect.onset_step - slack
    return lasted and began <= effect.onset_step + slack


def _is_one_fall(cause: Finding, effect: Finding, context: RunContext) -> bool:
    """Whether a lost reward and a lost held-out score are one fall of the policy.

    Each is dated by its own readings. Who optimizes a wrong reward raises it after the evaluations
    began to fall; here it was at its best then, and is lost now.
    """
    if not (cause.active and effect.active and is_alarm(effect) and cause.evidence):
        return False
    outcome = cause.evidence[0]
    level = context.level_before(outcome.metric, effect.onset_step)
    best = outcome.baseline
    return level is not None and best is not None and level >= _AT_BEST * best > 0


def _hits_at_once(cause: Finding, effect: Finding, context: RunContext) -> bool:
    """Whether a single gradient spike, which is only worth a note, came right before an alarm."""
    delay = effect.onset_step - cause.onset_step
    is_spike = context.condition(cause) == "gradient-spike"
    return is_spike and abs(delay) <= SPIKE_SLACK * context.stride


def _is_within(one: Finding, other: Finding, slack: float) -> bool:
    """Whether a finding began after another one, and was seen last long before it."""
    return one.onset_step > other.onset_step and one.last_step < other.last_step - slack


def _ends_with(context: RunContext, cause: Finding, effect: Finding) -> bool:
    """Whether an effect ends as soon as its cause does."""
    source, result = context.condition(cause), context.condition(effect)
    is_of_batch = source in _OF_THE_BATCH and result in _OF_THE_BATCH
    return is_of_batch or source in _ENDS_AT_ONCE or (source, result) == _WRONG_RATIOS


def _path(
    cause: Finding, effect: Finding, context: RunContext, findings: Iterable[Finding]
) -> tuple[Condition, ...] | None:
    wanted = context.condition(effect)
    if context.condition(cause) == wanted:
        is_one = cause.code == effect.code or wanted not in _UNRELATED
        return (wanted,) if is_one and _is_stronger(cause, effect, context) else None
    if _is_setting(cause):
        # That a setting does harm is a guess: each link after it must be one that a finding shows.
        shown = {context.condition(finding) for finding in findings if not _is_setting(finding)}
        return path_between(context.causes(cause), wanted, lambda condition: condition in shown)
    excluded, causes = _excluded_conditions(context, findings), context.causes(cause)
    path = path_between(causes, wanted, lambda condition: condition not in excluded)
    if path is None or wanted in causes[1:]:  # what a rule explains by itself needs no more
        return path
    return path if is_plausible(cause, effect, path, _circumstances(context, findings)) else None


def _circumstances(context: RunContext, findings: Iterable[Finding]) -> Circumstances:
    alarms = [(context.condition(finding), finding) for finding in findings if is_alarm(finding)]
    return Circumstances(alarms, context.level_before, context.stride)


def _is_stronger(one: Finding, other: Finding, context: RunContext) -> bool:
    """Whether the first of two findings with the same condition stands for both."""
    return _strength(one, context) < _strength(other, context)


def _strength(finding: Finding, context: RunContext) -> tuple[bool, int, bool, int, str]:
    """A rule about the condition stands for it before one that is about another condition."""
    severity, rule = SEVERITIES.index(finding.severity), context.rules.get(finding.code)
    is_aside = bool(rule and rule.condition != context.condition(finding))
    return not finding.active, -severity, is_aside, finding.onset_step, finding.code


def _excluded_conditions(context: RunContext, findings: Iterable[Finding]) -> set[Condition]:
    """Conditions that a rule looked for and did not find: no causal path leads through them."""
    found = {context.condition(finding) for finding in findings}
    quiet = {context.rules[code].condition for code in context.quiet if code in context.rules}
    return (quiet | _ONLY_IF_SHOWN) - found
