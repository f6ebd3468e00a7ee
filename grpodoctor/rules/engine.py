"""Runs the rules over a run, step by step, and keeps what they found.

Live and offline share this code: a finding depends on the steps before it and on nothing else, so
that the first k steps of a log give what the live run gave at its k-th.

What becomes of a rule at a step:

- one of its inputs was never read: *skipped*, with the way to have it recorded;
- one of its inputs is `NotApplicable`: *not applicable*, and no sighting;
- its inputs were read before but not at this step (held-out evaluation every ten steps): not
  examined, which is neither a sighting nor the absence of one;
- otherwise it is *examined*; a rule with a `cadence` is so at every so many such steps.

`persistence` sightings in a row raise a finding. Its onset is the first of them, or the step since
which its readings show the same, but never before the end of the rule's finding before. Its
severity is the mildest of the last `persistence` sightings and never falls. `clearance`
examinations in a row without a sighting resolve it. A rule that fires again soon after must stay
quiet twice as long before the next resolution, so that noise around a threshold ends as one long
finding.

When a run goes back to an earlier step, findings whose onset lies at or after that step are
dropped and all streaks begin anew; findings from before stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grpodoctor.frameworks.logging_advice import how_to_log
from grpodoctor.rules.base import SEVERITIES, Finding, Need, Rule, Severity, Sighting
from grpodoctor.runs.chart import WINDOW, Chart
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import NotApplicable

RESOLVED_KEPT = 100
"""Resolved findings remembered; older ones stand in the run's journal."""

_OTHERS_TOLD = 3
"""Alternatives of an input that are named before the rest is counted, the input itself included."""
_UNMAPPED_KEPT = 1000
"""Unknown metric names remembered: a log may invent a new one at every step."""

_SYMPTOMS = ("MIS", "GRP", "OPT", "CLP", "KLD", "ENT", "REW")
"""Families whose findings often follow from another one's, the later the further down the chain:
experts that flip make a sampler disagree, one that disagrees clips tokens, clipped tokens change
entropy, and the reward shows it last.
"""

_LONGEST_CLEARANCE = WINDOW
"""Bound of the growing clearance: what a rule can see at all."""


@dataclass(frozen=True, slots=True)
class Change:
    """A finding that began, grew worse or ended."""

    kind: Literal["raised", "escalated", "resolved"]
    finding: Finding
    step: int
    """The step at which it became known: later than the onset, or than the last sighting."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule that could not look."""

    code: str
    missing: tuple[str, ...]
    """The metrics it would need; of alternatives the best."""
    how: str
    """How to have them recorded."""


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """A rule that has no meaning in this run."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known about a run.

    Every rule stands in one of the first four at most; in none if all its findings are resolved
    and too old to be kept.
    """

    findings: tuple[Finding, ...]
    """Active and resolved, gravest first, then by onset, then causes before symptoms."""
    skipped: tuple[Skipped, ...]
    not_applicable: tuple[Inapplicable, ...]
    quiet: tuple[str, ...]
    """Codes of the rules that looked and saw nothing."""
    unmapped: tuple[str, ...]
    """Names in the log that the vocabulary does not know."""


@dataclass(slots=True)
class _Case:
    """What the engine remembers of one rule."""

    rule: Rule
    needs: tuple[tuple[str, ...], ...]
    names: frozenset[str]
    """All of them: of a step that has none of these there is nothing to look at."""
    recent: deque[int]
    """Ranks of the latest sightings of the unbroken row, `persistence` of them at most."""
    examined: bool = False
    why: str | None = None
    """Why the rule did not apply when it was last looked at."""
    onset: int = -1
    clear: int = 0
    finding: Finding | None = None
    """The active finding."""
    resolved_at: int = -1
    """Examinations seen when the last finding was resolved; -1 if none was."""
    examinations: int = 0
    over_step: int = -1
    """Last step of that finding."""
    due: int = 1
    """Steps with all inputs until the rule is next examined."""
    clearance: int = 0


def _case(rule: Rule) -> _Case:
    needs = tuple(_alternatives(need) for need in rule.inputs)
    names = frozenset(name for need in needs for name in need)
    return _Case(rule, needs, names, deque(maxlen=rule.persistence), clearance=rule.clearance)


def _alternatives(need: Need) -> tuple[str, ...]:
    return (need,) if isinstance(need, str) else need


class Engine:
    """The rules at work on one run.

    Args:
        rules: the rules to run.
        manifest: the run's manifest, for its knobs.
    """

    def __init__(self, rules: Sequence[Rule], manifest: Manifest | None = None) -> None:
        self.chart = Chart(manifest or Manifest())
        self._cases = [_case(rule) for rule in rules]
        self._resolved: deque[Finding] = deque(maxlen=RESOLVED_KEPT)
        self._fired: set[str] = set()
        self._seen: set[str] = set()
        self._unmapped: dict[str, None] = {}

    def observe(self, record: StepRecord) -> list[Change]:
        """Take a step and return what changed by it: the gravest first, what is over last."""
        changes = self._rewind(record.step) if record.step <= self.chart.step else []
        self.chart.observe(record)
        self._note_names(record)
        for case in self._cases:
            if not case.names.isdisjoint(record.values):
                changes.extend(self._examine(case))
        return sorted(changes, key=lambda each: (each.kind == "resolved", *_rank(each.finding)))

    def _note_names(self, record: StepRecord) -> None:
        fresh = record.values.keys() - self._seen
        for name in sorted(fresh):
            if metric_of(name) is not None:
                self._seen.add(name)
            elif len(self._unmapped) < _UNMAPPED_KEPT:
                self._unmapped[name] = None

    def _rewind(self, step: int) -> list[Change]:
        dropped = []
        for case in self._cases:
            case.recent.clear()
            case.clear = 0
            case.over_step = min(case.over_step, step - 1)
            if case.finding is not None and case.finding.onset_step >= step:
                dropped.append(Change("resolved", case.finding.resolved(), step))
                case.finding = None
        kept = [each for each in self._resolved if each.onset_step < step]
        self._resolved = deque(kept, maxlen=RESOLVED_KEPT)
        active = (case.finding.code for case in self._cases if case.finding is not None)
        self._fired = {*active, *(each.code for each in kept)}
        return dropped

    def _examine(self, case: _Case) -> Iterator[Change]:
        state = self._inputs(case)
        if state == "missing":
            return
        case.due -= 1
        if case.due > 0:
            return
        case.due = case.rule.cadence
        if state == "ready":
            verdict = case.rule.examine(self.chart)
            case.why = verdict.why if isinstance(verdict, NotApplicable) else None
            case.examined = case.examined or case.why is None
        else:
            verdict = None
        case.examinations += 1
        if isinstance(verdict, Sighting):
            yield from self._sighted(case, verdict)
        else:
            yield from self._unsighted(case)

    def _inputs(self, case: _Case) -> Literal["ready", "missing", "inapplicable"]:
        """Whether the inputs stand at this step; sets `case.why` where one does not apply."""
        state: Literal["ready", "missing"] = "ready"
        for names in case.needs:
            if any(map(self.chart.is_fresh, names)):
                continue
            why = self._why_inapplicable(names)
            if why is None:
                state = "missing"
            elif not case.rule.judges_applicability:
                case.why = why
                return "inapplicable"
        return state

    def _why_inapplicable(self, names: tuple[str, ...]) -> str | None:
        for name in names:
            reading = self.chart.readings.get(name)
            if isinstance(reading, NotApplicable):
                return reading.why
        return None

    def _sighted(self, case: _Case, sighting: Sighting) -> Iterator[Change]:
        if not case.recent:
            since = sighting.since() if sighting.since else self.chart.step
            case.onset = min(max(since, case.over_step + 1), self.chart.step)
        case.recent.append(SEVERITIES.index(sighting.severity))
        case.clear = 0
        whole = len(case.recent) == case.rule.persistence
        # A row that was broken and began anew is no persistence: it prolongs and never escalates.
        persisted = SEVERITIES[min(case.recent)] if whole else SEVERITIES[0]
        if case.finding is not None:
            yield from self._continue(case, case.finding, sighting, persisted)
        elif whole:
            yield self._raise(case, sighting, persisted)

    def _raise(self, case: _Case, sighting: Sighting, severity: Severity) -> Change:
        rule = case.rule
        again = case.resolved_at >= 0 and case.examinations - case.resolved_at <= WINDOW
        case.clearance = min(2 * case.clearance, _LONGEST_CLEARANCE) if again else rule.clearance
        remedies = rule.remedies if sighting.remedies is None else sighting.remedies
        case.finding = Finding(
            code=rule.code,
            name=rule.name,
            severity=severity,
            onset_step=case.onset,
            last_step=self.chart.step,
            active=True,
            summary=sighting.summary,
            evidence=sighting.evidence,
            remedies=remedies,
            references=rule.references,
        )
        self._fired.add(rule.code)
        return Change("raised", case.finding, self.chart.step)

    def _continue(
        self, case: _Case, finding: Finding, sighting: Sighting, persisted: Severity
    ) -> Iterator[Change]:
        ranks = SEVERITIES.index
        severity = max(finding.severity, persisted, key=ranks)
        finding_now = replace(finding, last_step=self.chart.step, severity=severity)
        if sighting.severity == severity:
            # The words must fit the severity: a milder sighting only prolongs a grave finding, and
            # a graver one has to persist first.
            remedies = case.rule.remedies if sighting.remedies is None else sighting.remedies
            finding_now = replace(
                finding_now,
                summary=sighting.summary,
                evidence=sighting.evidence,
                remedies=remedies,
            )
        case.finding = finding_now
        if severity != finding.severity:
            yield Change("escalated", finding_now, self.chart.step)

    def _unsighted(self, case: _Case) -> Iterator[Change]:
        case.recent.clear()
        if case.finding is None:
            return
        case.clear += 1
        if case.clear >= case.clearance:
            over = case.finding.resolved()
            case.finding, case.resolved_at = None, case.examinations
            case.over_step = over.last_step
            self._resolved.append(over)
            yield Change("resolved", over, self.chart.step)

    def diagnosis(self) -> Diagnosis:
        """What is known after the steps observed so far."""
        active = [case.finding for case in self._cases if case.finding is not None]
        findings = sorted([*active, *self._resolved], key=_rank)
        idle = [case for case in self._cases if case.rule.code not in self._fired]
        return Diagnosis(
            findings=tuple(findings),
            skipped=tuple(self._skipped(case) for case in idle if self._is_skipped(case)),
            not_applicable=tuple(
                Inapplicable(case.rule.code, case.why) for case in idle if case.why is not None
            ),
            quiet=tuple(case.rule.code for case in idle if case.examined and case.why is None),
            unmapped=tuple(self._unmapped),
        )

    def _is_skipped(self, case: _Case) -> bool:
        return case.why is None and not case.examined

    def _skipped(self, case: _Case) -> Skipped:
        unread = [names for names in case.needs if not any(map(self._was_read, names))]
        # Each was read, but never at the same step: all of them are wanted together.
        unmet = unread or list(case.needs)
        return Skipped(
            code=case.rule.code,
            missing=tuple(names[0] for names in unmet),
            how="; ".join(dict.fromkeys(self._how(names) for names in unmet)),
        )

    def _how(self, names: tuple[str, ...]) -> str:
        """How to have one of these metrics recorded, in the words of the run's own framework."""
        metric = metric_of(names[0])
        advice = metric.how if metric is not None and metric.how else f"record {names[0]}"
        more = [*names[1:_OTHERS_TOLD], f"{len(names) - _OTHERS_TOLD} others"]
        told = names[1:] if len(names) <= _OTHERS_TOLD + 1 else more
        others = f" ({' or '.join(told)} will do)" if told else ""
        key = how_to_log(self.chart.manifest.framework, names)
        return f"{advice}{others}" + (f"; {key}" if key else "")

    def _was_read(self, name: str) -> bool:
        return len(self.chart.series(name)) > 0


def _rank(finding: Finding) -> tuple[int, int, int, str]:
    """The order in which findings are told."""
    family = finding.code[:3]
    symptom = _SYMPTOMS.index(family) + 1 if family in _SYMPTOMS else 0
    return -SEVERITIES.index(finding.severity), finding.onset_step, symptom, finding.code
