"""Runs the rules over a run, step by step, and keeps their findings.

Live and offline runs share this code. A finding depends only on the steps before it, so the first k
steps of a log give the findings that the live run gave at step k.

At each step, a rule is in one of these states:

- *skipped*: one of its inputs was never logged; the diagnosis names the setting that logs it;
- *not applicable*: one of its inputs is `NotApplicable`; this counts as no sighting;
- not examined: its inputs were logged before, but not at this step (held-out evaluation every ten
  steps), or the rule found that they do not suffice; this counts neither as a sighting nor as its
  absence;
- *examined* otherwise; a rule with a `cadence` is examined at every `cadence`-th such step. In a
  long run, a rule that judges levels is examined at every second one while it sees nothing.

`persistence` consecutive sightings raise a finding. Its onset is the first of them, or the earlier
step at which the rule dates the condition, but never before the end of the rule's previous finding.
Its severity is the mildest of the last `persistence` sightings and never decreases. `clearance`
consecutive examinations without a sighting resolve it. If a rule fires again soon after that, its
clearance doubles, so that noise around a threshold gives one long finding. Fifty examinations
without a sighting of its severity end it as well; a milder finding follows. A rule that sees that
the condition is certainly over, or milder than it looked, has its finding end at once.

A finding *continues* the previous finding of its rule if the rule dates it into that one: the
condition never ended. It takes the place of the previous finding and has its onset. If a setting
has changed since the end of the previous finding, both stay: what returns after a treatment is a
new finding.

Sightings of an expected state, such as a loss that is zero by construction, give a note. Where a
fault of the same rule follows, the note ends and the fault is a finding with an onset of its own.

A rule that raises an exception is reported as a defect with its code, and the other rules continue.

When a run rewinds to an earlier step, findings with an onset at or after that step are dropped, and
all counts of consecutive sightings restart. Earlier findings stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from grpodoctor.rules.base import (
    NOT_LOGGED,
    RECOVERED,
    SEVERITIES,
    UNDECIDED,
    Finding,
    NotLogged,
    Rule,
    RuleResult,
    Severity,
    Sighting,
)
from grpodoctor.rules.diagnosis import Change, Defect, Diagnosis, Inapplicable, Skipped
from grpodoctor.rules.finding_order import change_order, finding_rank
from grpodoctor.rules.rule_state import EXPECTED, RuleState, initial_state
from grpodoctor.rules.shared.entropy_bonus import bonus_first
from grpodoctor.rules.shared.missing_metrics import how_to_enable
from grpodoctor.rules.shared.penalty_direction import penalty_drives_away
from grpodoctor.runs.chart import MOST_LAYOUTS, Chart
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.runs.series import WINDOW
from grpodoctor.support.safe_text import clean_text
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.plain_names import in_plain_words
from grpodoctor.vocabulary.values import NotApplicable

RESOLVED_KEPT = 100
"""Resolved findings kept in memory; older ones remain in the run's journal."""

_LONGEST_ERROR = 200
"""Characters of a defect's message."""
_UNMAPPED_KEPT = 1000
"""Unknown metric names kept; a log may contain a new name at every step."""

_HOW_TO_FIND_THE_CONFIG = "pass the run's config with --run-config FILE"

_LONGEST_CLEARANCE = WINDOW
"""Upper bound of the doubled clearance: the window that a rule sees."""

_LONG_RUN = 2 * WINDOW
"""Examinations from which a rule that judges levels is examined at every second step while it sees
nothing. All rules together take a seventh less time; a level is seen one step later, and one that
lasts only for the rule's persistence may be missed (`tests/benchmarks/bench_rules.py`)."""

_EASED_AFTER = 50
"""Examinations without a sighting of a finding's severity, after which the finding no longer
describes the run: five times the readings of a level."""


_Examination = tuple[RuleState, str | None]
"""A rule that is examined whenever a step has a certain set of readings, and why it does not apply
at such a step; None if it does. A plain tuple: the loop over all rules unpacks it three times as
fast as a named one."""


class Engine:
    """Examines one run by a set of rules.

    Args:
        rules: the rules to examine.
        manifest: the run's manifest, for its knobs.
    """

    def __init__(self, rules: Sequence[Rule], manifest: Manifest | None = None) -> None:
        self.chart = Chart(manifest or Manifest())
        self._states = [initial_state(rule) for rule in rules]
        self._config_states = [state for state in self._states if state.rule.reads_config]
        self._resolved: deque[Finding] = deque(maxlen=RESOLVED_KEPT)
        self._fired: set[str] = set()
        self._unmapped: dict[str, None] = {}
        self._known_names: set[str] = set()
        self._plans: dict[tuple[object, ...], tuple[_Examination, ...]] = {}
        """The rules to examine, by the readings that a step has."""
        self._defects: dict[str, Defect] = {}
        self._config_read = False
        """Whether the rules about the configuration have been examined."""

    def observe(self, record: StepRecord) -> list[Change]:
        """Take a step and return its changes: the most severe first, resolved findings last."""
        changes = self._rewind(record.step) if record.step <= self.chart.step else []
        self.chart.observe(record)
        for state in self._states_of_new_config():
            changes += self._examine_due([(state, None)])
        changes += self._examine_due(self._plan(record))
        if len(changes) > 1:
            raised = {change.finding.code for change in changes if change.kind == "raised"}
            changes.sort(key=lambda change: change_order(change, raised))
        return changes

    def _states_of_new_config(self) -> Sequence[RuleState]:
        """The rules about the configuration, at the first step and after a change of a knob.

        A finding whose fault is gone is examined at the following steps too, until it has been
        absent for its clearance: a knob that a trial switches on and off gives one long finding.
        """
        is_new = self.chart.knobs_changed_at == self.chart.step or not self._config_read
        self._config_read = True
        if not self.chart.config.found:
            return ()
        return [
            state
            for state in self._config_states
            if is_new or (state.clear_count and state.finding is not None)
        ]

    def _plan(self, record: StepRecord) -> tuple[_Examination, ...]:
        """The rules that this step has the inputs for.

        They depend only on which readings the step has, so the plan of an earlier step with the
        same readings is used again.
        """
        fresh, without = self.chart.fresh, []
        if not self.chart.is_complete:
            without = [
                (name, reading.why if isinstance(reading, NotApplicable) else "")
                for name, reading in record.values.items()
                if name not in fresh
            ]
        layout = (fresh, *without)
        plan = self._plans.get(layout)
        if plan is None:
            if len(self._plans) >= MOST_LAYOUTS:
                self._plans.clear()
            self._note_names(record)
            reasons = {name: why for name, why in without if why}
            broken = {name for name, why in without if not why}
            found = (self._examination(state, fresh, reasons, broken) for state in self._states)
            plan = tuple(each for each in found if each is not None)
            self._plans[layout] = plan
        return plan

    def _examination(
        self,
        state: RuleState,
        fresh: frozenset[str],
        reasons: Mapping[str, str],
        broken: set[str],
    ) -> _Examination | None:
        """How to examine a rule with these readings; None if it lacks an input."""
        if state.rule.handles_nonfinite and not broken.isdisjoint(state.inputs):
            return state, None
        if state.inputs.isdisjoint(fresh) and state.inputs.isdisjoint(reasons):
            return None
        why_inapplicable = None
        for names in state.needs:
            if not fresh.isdisjoint(names):
                continue
            why = next((reasons[name] for name in names if name in reasons), None)
            if why is None:
                return None
            if not state.rule.handles_not_applicable:
                why_inapplicable = why_inapplicable or why
        return state, why_inapplicable

    def _note_names(self, record: StepRecord) -> None:
        for name in sorted(record.values.keys() - self._known_names):
            if metric_of(name) is not None:
                self._known_names.add(name)
            elif len(self._unmapped) < _UNMAPPED_KEPT:
                self._unmapped[name] = None

    def _rewind(self, step: int) -> list[Change]:
        dropped = []
        self._config_read = False
        for state in self._states:
            state.recent.clear()
            state.clear_count = state.milder_count = 0
            state.severe_step = min(state.severe_step, step - 1)
            state.last_finding_end = min(state.last_finding_end, step - 1)
            if state.finding is not None and state.finding.onset_step >= step:
                dropped.append(Change("resolved", state.finding.resolved(), step))
                state.finding = None
        kept = [finding for finding in self._resolved if finding.onset_step < step]
        self._resolved = deque(kept, maxlen=RESOLVED_KEPT)
        active = (state.finding.code for state in self._states if state.finding is not None)
        self._fired = {*active, *(finding.code for finding in kept)}
        return dropped

    def _examine_due(self, examinations: Sequence[_Examination]) -> list[Change]:
        """Examine the rules that are due at this step.

        The usual case, in which a rule sees nothing and only counts change, is part of the loop: a
        call for each of fifty rules at each step would take longer.
        """
        chart, changes = self.chart, list[Change]()
        for state, why_inapplicable in examinations:
            if state.due > 1:
                state.due -= 1
                continue
            result: RuleResult = None
            if why_inapplicable is None:
                try:
                    result = state.examine(chart)
                except MemoryError:  # no fault of the rule; the report would lack a finding
                    raise
                except Exception as error:  # noqa: BLE001 - must not end the other rules
                    self._note_defect(state.rule, error)
                    result = NOT_LOGGED
                if result is None or result is RECOVERED:
                    if not state.is_idle and state.finding is None and not state.recent:
                        state.examined, state.why_inapplicable = True, None
                        state.is_idle = True
                    if state.is_idle:
                        stride = state.stride if state.examinations > _LONG_RUN else 1
                        state.examinations += stride  # those that are left out count
                        state.due = stride * state.cadence
                        continue
            state.is_idle = False
            changes += self._take_result(state, result, why_inapplicable)
        return changes

    def _take_result(
        self, state: RuleState, result: RuleResult, why_inapplicable: str | None
    ) -> Sequence[Change]:
        """What a result changes in the state of its rule and in its finding."""
        if result is None:
            state.why_inapplicable = why_inapplicable
            state.examined = state.examined or why_inapplicable is None
        elif isinstance(result, NotLogged):
            state.due = 1
            ends = result is UNDECIDED and state.finding is not None
            return tuple(self._add_absence(state)) if ends else ()
        elif result is RECOVERED:
            state.examined, state.why_inapplicable = True, None
            state.clear_count = max(state.clear_count, state.clearance - 1)
        else:
            state.why_inapplicable = result.why if isinstance(result, NotApplicable) else None
            state.examined = state.examined or state.why_inapplicable is None
        state.due = state.cadence
        state.examinations += 1
        if isinstance(result, Sighting):
            return tuple(self._add_sighting(state, result))
        return tuple(self._add_absence(state)) if state.recent or state.finding else ()

    def _note_defect(self, rule: Rule, error: Exception) -> None:
        """Count an exception of a rule as a defect; keep the first message."""
        known = self._defects.get(rule.code)
        if known is not None:
            self._defects[rule.code] = replace(known, count=known.count + 1)
            return
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        message = " ".join(clean_text(text)[:_LONGEST_ERROR].split())
        self._defects[rule.code] = Defect(rule.code, self.chart.step, message)

    def _add_sighting(self, state: RuleState, sighting: Sighting) -> Iterator[Change]:
        if not state.recent:
            began = self._began(state.rule, sighting)
            unchanged = self.chart.knobs_changed_at <= state.last_finding_end
            state.continues = unchanged and began <= state.last_finding_end
            state.onset = min(max(began, state.last_finding_end + 1), self.chart.step)
        state.follow(sighting, self.chart.step)
        state.clear_count = 0
        # After an interruption, sightings prolong a finding but escalate it only once they persist.
        rank = min(seen.rank for seen in state.recent) if state.is_persistent else 0
        severity = SEVERITIES[rank]
        if state.finding is None:
            if state.is_persistent:
                if state.continues:
                    self._reopen(state)
                yield self._raise(state, sighting, severity)
        elif state.is_note and sighting.condition != EXPECTED:
            if state.shows_fault:
                yield from self._replace_note(state, state.finding, sighting, severity)
        else:
            yield from self._continue(state, state.finding, sighting, severity)
            is_eased = sighting.ends_severer or state.milder_count >= _EASED_AFTER
            if is_eased and state.milder_count and state.is_persistent:
                yield from self._ease(state, state.finding, sighting, severity)

    def _replace_note(
        self, state: RuleState, note: Finding, sighting: Sighting, severity: Severity
    ) -> Iterator[Change]:
        """End a note on an expected state where a fault follows; the fault has a separate onset."""
        state.onset = state.recent[0].step
        yield self._resolve(state, replace(note, last_step=state.onset - 1))
        yield self._raise(state, sighting, severity)

    def _reopen(self, state: RuleState) -> None:
        """Let a finding begin where the previous one of its rule did: the condition never ended.

        Two periods without a gap between them read like a fault that was over.
        """
        for previous in reversed(self._resolved):
            if previous.code == state.rule.code and previous.last_step == state.last_finding_end:
                self._resolved.remove(previous)
                state.onset = previous.onset_step
                return

    def _began(self, rule: Rule, sighting: Sighting) -> int:
        """The step at which the rule dates the condition; this step if it cannot."""
        try:
            return sighting.find_onset() if sighting.find_onset else self.chart.step
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault in one rule must not end the others
            self._note_defect(rule, error)
            return self.chart.step

    def _raise(self, state: RuleState, sighting: Sighting, severity: Severity) -> Change:
        rule, state.milder_count, state.severe_step = state.rule, 0, self.chart.step
        again = state.resolved_at >= 0 and state.examinations - state.resolved_at <= WINDOW
        state.clearance = min(2 * state.clearance, _LONGEST_CLEARANCE) if again else rule.clearance
        state.finding = self._finding(rule, sighting, severity, state.onset)
        self._fired.add(rule.code)
        return Change("raised", state.finding, self.chart.step)

    def _finding(self, rule: Rule, sighting: Sighting, severity: Severity, onset: int) -> Finding:
        """The active finding that a sighting describes."""
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=severity,
            onset_step=onset,
            last_step=self.chart.step,
            active=True,
            summary=in_plain_words(sighting.summary),
            evidence=sighting.evidence,
            remedies=self._remedies(rule, sighting),
            references=rule.references,
            condition=sighting.condition,
            weighs_outcome=sighting.weighs_outcome,
        )

    def _ease(
        self, state: RuleState, finding: Finding, sighting: Sighting, severity: Severity
    ) -> Iterator[Change]:
        """End a severe finding whose condition lasts in a milder form, which is a new finding."""
        yield self._resolve(state, replace(finding, last_step=state.severe_step))
        state.onset, clearance = state.severe_step + 1, state.clearance
        yield self._raise(state, sighting, severity)
        state.clearance = clearance

    def _continue(
        self, state: RuleState, finding: Finding, sighting: Sighting, persistent: Severity
    ) -> Iterator[Change]:
        severity = max(finding.severity, persistent, key=SEVERITIES.index)
        state.milder_count += 1
        if SEVERITIES.index(sighting.severity) >= SEVERITIES.index(severity):
            state.milder_count, state.severe_step = 0, self.chart.step
        if sighting.severity == severity:
            updated = self._finding(state.rule, sighting, severity, finding.onset_step)
        else:
            # The summary must match the severity: a milder sighting prolongs a severe finding for a
            # while, and a more severe one has to persist first.
            updated = replace(finding, last_step=self.chart.step, severity=severity)
        state.finding = updated
        if severity != finding.severity:
            yield Change("escalated", updated, self.chart.step)

    def _add_absence(self, state: RuleState) -> Iterator[Change]:
        state.recent.clear()
        if state.finding is None:
            return
        state.clear_count += 1
        state.milder_count += 1
        if state.clear_count >= state.clearance:
            yield self._resolve(state, state.finding)

    def _resolve(self, state: RuleState, finding: Finding) -> Change:
        resolved = finding.resolved()
        state.finding, state.resolved_at = None, state.examinations
        state.last_finding_end = resolved.last_step
        self._resolved.append(resolved)
        return Change("resolved", resolved, self.chart.step)

    def diagnosis(self) -> Diagnosis:
        """The diagnosis after the steps observed so far."""
        active = [state.finding for state in self._states if state.finding is not None]
        silent = self._fired | self._defects.keys()
        idle = [state for state in self._states if state.rule.code not in silent]
        return Diagnosis(
            findings=tuple(sorted([*active, *self._resolved], key=finding_rank)),
            skipped=tuple(
                self._skipped(state)
                for state in idle
                if state.why_inapplicable is None and not state.examined
            ),
            not_applicable=tuple(
                Inapplicable(state.rule.code, state.why_inapplicable)
                for state in idle
                if state.why_inapplicable is not None and not state.rule.reads_config
            ),
            quiet=tuple(
                state.rule.code
                for state in idle
                if state.examined and state.why_inapplicable is None
            ),
            unmapped=tuple(self._unmapped),
            defects=tuple(self._defects[code] for code in sorted(self._defects)),
        )

    def _skipped(self, state: RuleState) -> Skipped:
        if state.rule.reads_config:
            return Skipped(state.rule.code, ("config",), _HOW_TO_FIND_THE_CONFIG)
        never_logged = [names for names in state.needs if not any(map(self._was_logged, names))]
        framework = self.chart.manifest.framework
        # If each was logged, but never at the same step, all of them are missing together.
        missing = never_logged or list(state.needs)
        parts = (part for names in missing for part in how_to_enable(names, framework).split("; "))
        return Skipped(
            code=state.rule.code,
            missing=tuple(names[0] for names in missing),
            how="; ".join(dict.fromkeys(parts)),
        )

    def _remedies(self, rule: Rule, sighting: Sighting) -> tuple[str, ...]:
        remedies = rule.remedies if sighting.remedies is None else sighting.remedies
        remedies = bonus_first(remedies, self.chart)
        if "kl-penalty" in remedies and penalty_drives_away(self.chart):
            return tuple(remedy for remedy in remedies if remedy != "kl-penalty")
        return remedies

    def _was_logged(self, name: str) -> bool:
        return len(self.chart.series(name)) > 0
