"""The diagnosis of a run: its verdict, its problems with their causes, and the coverage."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpodoctor.frameworks.objective import suggested_objectives
from grpodoctor.monitor.advice import Advice
from grpodoctor.monitor.diagnosis.costs import Cost, CostTracker
from grpodoctor.monitor.diagnosis.coverage import Coverage, coverage_of
from grpodoctor.monitor.diagnosis.first_action import (
    NO_WAY_BACK,
    STOP,
    WayBack,
    first_action_of,
    first_remedy,
)
from grpodoctor.monitor.diagnosis.missing_reward import missing_reward, unread_keys
from grpodoctor.monitor.diagnosis.past_faults import first_named
from grpodoctor.monitor.diagnosis.problems import (
    ONSET_SLACK,
    Problem,
    RunContext,
    is_alarm,
    problems_of,
)
from grpodoctor.monitor.diagnosis.verdict import RunEvidence, Verdict, faults_of, verdict_of
from grpodoctor.monitor.level_change import QUARTERS, LevelChange, level_change_of
from grpodoctor.monitor.saved_checkpoints import saved_checkpoints
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.rules.base import Finding, Rule
from grpodoctor.rules.engine import Engine
from grpodoctor.rules.reward.no_rise import NoRise
from grpodoctor.rules.shared.distillation import is_distilled
from grpodoctor.rules.shared.groups.alike_groups import has_copied_responses
from grpodoctor.rules.shared.groups.equal_responses import explores_no_more
from grpodoctor.rules.shared.health.run_health import (
    has_lost_outcome,
    has_stalled_without_signal,
    is_near_ceiling,
    is_solved,
    is_stuck,
    lacks_signal,
    outcome_metric,
)
from grpodoctor.rules.shared.health.whole_run import rises_over_run
from grpodoctor.rules.shared.outcome.flat_outcome import (
    flat_levels,
    is_above_start,
    median_noise,
    outcome_rose,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.reading.read_notes import MIN_READINGS
from grpodoctor.runs.series import BASELINE, Series
from grpodoctor.vocabulary.conditions import Condition

_OUTCOMES = ("reward/mean", "accuracy/train")
"""A run counts as examined only if one of these metrics was read."""

_HELD_OUT = ("reward/heldout", "accuracy/heldout")

_NOUNS: Mapping[str, str] = {
    "reward/mean": "reward",
    "accuracy/train": "accuracy",
    "reward/heldout": "held-out reward",
    "accuracy/heldout": "held-out accuracy",
}

_CURED_BY_LEARNING: frozenset[Condition] = frozenset(
    {"truncation", "zero-rewards", "equal-rewards"}
)
"""Conditions of an untrained policy that training itself ends."""

_NO_GRADIENT: frozenset[Condition] = frozenset(
    {"equal-rewards", "zero-rewards", "zero-gradient", "entropy-loss", "diversity-loss"}
)
"""Conditions that end the learning of a run while no group varies."""

_NEVER_EXCUSED: frozenset[Condition] = frozenset({"wrong-reference", "reference-drift"})
"""Conditions whose critical findings a risen reward does not excuse: text that looks random."""

_OUTCOME_THEN = " went from "
"""What the clause of a summary contains that states the outcome at that time."""

_FEWEST_EQUAL = 3
"""Readings from which a constant outcome is stated."""

_CURED_BY = 2 / 3
"""Part of the run after which such a condition stays away; one that ends later may come back."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a run, how sure that is, and what could not be looked at."""

    verdict: Verdict = field(default_factory=lambda: Verdict("not examined", "no step was read."))
    problems: tuple[Problem, ...] = ()
    """The most important first; each has its symptoms."""
    coverage: Coverage = field(default_factory=Coverage)
    way_back: WayBack = NO_WAY_BACK
    """The checkpoint to return to, if one is needed."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings: each cause followed by its symptoms."""
        return tuple(finding for problem in self.problems for finding in problem.findings)

    @property
    def counted(self) -> tuple[Finding, ...]:
        """The findings that make a run fail: the active ones that success does not explain.

        A log that is not judged has none.
        """
        solved = self.verdict.kind == "solved"
        if self.verdict.kind == "not examined":
            return ()
        return tuple(
            finding
            for problem in self.problems
            if not (solved and problem.condition == "solved")
            for finding in problem.findings
            if finding.active
        )

    def to_json(self) -> dict[str, Any]:
        """The parts of the report that hold the diagnosis."""
        return {
            "verdict": self.verdict.to_json(),
            "causes": [problem.to_json() for problem in self.problems],
            "coverage": self.coverage.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """How a run was read, as far as the diagnosis depends on it."""

    steps: int
    first_step: int | None
    gpus: int | None = None
    unmapped: tuple[str, ...] = ()
    """Keys of the log that map to no metric."""
    components: tuple[str, ...] = ()
    """Keys of the reward's components, if no key holds the reward."""
    checkpoints: tuple[int, ...] = ()
    """Steps whose checkpoint the journal notes."""
    crash: str = ""
    """The error with which the log ends, without a full stop; empty if there is none."""


def diagnose(
    engine: Engine,
    rules: Sequence[Rule],
    costs: CostTracker,
    reading: Reading,
    advice: Mapping[str, Advice],
) -> Diagnosis:
    """Turn the findings of an engine into a diagnosis.

    Args:
        engine: the engine that examined the run.
        rules: the rules that it ran.
        costs: what each step of the run cost.
        reading: how the run was read.
        advice: the remedies of all findings, resolved for the run.
    """
    results, chart = engine.diagnosis(), engine.chart
    by_code = {rule.code: rule for rule in rules}
    rose = outcome_rose(chart)
    findings = _after_rise(results.findings, by_code, chart) if rose else results.findings
    findings = tuple(_without_way_back(finding, reading.first_step) for finding in findings)
    problems = problems_of(findings, _run_context(chart, by_code, results.quiet, costs, reading))
    found = {finding.code for finding in results.findings}
    defective = {defect.code for defect in results.defects} - found
    coverage = coverage_of(
        chart,
        rules,
        results.skipped,
        results.not_applicable,
        defective,
        examined=found.union(results.quiet),
    )
    readings = max(len(chart.series(name)) for name in _OUTCOMES)
    no_rise = _no_rise(results.findings)
    change, noise = _change_and_noise(chart)
    evidence = RunEvidence(
        steps=reading.steps,
        readings=readings,
        coverage=coverage,
        progress=_progress(chart),
        noise=noise,
        fall=_fall(chart, change, noise),
        rose=rose,
        span=None if reading.first_step is None else chart.step - reading.first_step + 1,
        why_not_judged="" if readings else _why_not_judged(chart, reading, results.findings),
        unread_keys=unread_keys(reading.unmapped),
        missing_reward=missing_reward(chart.names(), reading.unmapped, reading.components),
        opening=(reading.first_step or 0) + ONSET_SLACK * _stride(chart, reading),
        slack=ONSET_SLACK * _stride(chart, reading),
        no_rise=no_rise,
        no_rise_action=first_remedy(no_rise, advice) if no_rise else "",
        constant=constant_outcome(chart),
        crash=reading.crash,
    )
    way_back = _way_back(problems, evidence, chart, reading)
    first_action = first_action_of(problems[0], advice, way_back) if problems else ""
    verdict = verdict_of(problems, evidence, first_action)
    return Diagnosis(verdict, problems, coverage, way_back)


def constant_outcome(chart: Chart) -> str:
    """That the reward or the accuracy had the same value in all readings; empty if none had.

    The chart keeps the latest readings of a long run, so only those of a short one are all there.
    """
    for metric in _OUTCOMES:
        series = chart.series(metric)
        values = {value for _, value in series}
        if len(values) == 1 and _FEWEST_EQUAL <= len(series) < MIN_READINGS:
            return f"the {_NOUNS[metric]} is {values.pop():.3g} in all of them"
    return ""


def _way_back(
    problems: Sequence[Problem], evidence: RunEvidence, chart: Chart, reading: Reading
) -> WayBack:
    """From before which step a checkpoint is good: before every alarm that the verdict names."""
    faults = faults_of(problems)
    named = None
    if faults and faults[0] is problems[0]:
        named = first_named(faults[0], faults[1:], opening=evidence.opening, slack=evidence.slack)
    saved = saved_checkpoints(chart, reading.first_step, reading.checkpoints)
    return WayBack(named, saved, reading.first_step or 0)


def _without_way_back(finding: Finding, first_step: int | None) -> Finding:
    """A finding without the advice to return to a checkpoint from before the log's first step."""
    if first_step is None or finding.onset_step > first_step:
        return finding
    others = tuple(remedy for remedy in finding.remedies if remedy != STOP)
    return replace(finding, remedies=others) if others else finding


def _run_context(
    chart: Chart,
    rules: Mapping[str, Rule],
    quiet: Iterable[str],
    costs: CostTracker,
    reading: Reading,
) -> RunContext:
    """What problems depend on besides their findings."""

    def cost_of(finding: Finding) -> Cost:
        last = None if finding.active else finding.last_step
        return costs.cost(finding.onset_step, last, gpus=reading.gpus)

    return RunContext(
        rules=rules,
        quiet=frozenset(quiet),
        solved=is_solved(chart),
        stride=_stride(chart, reading),
        cost_of=cost_of,
        is_treated=lambda finding: _is_treated(finding, chart),
        level_before=lambda metric, step: _level_before(chart.series(metric), step),
    )


def _level_before(series: Series, step: int) -> float | None:
    """The median of the ten readings up to a step; None if the window has none of them."""
    readings = [value for at, value in series if at <= step][-BASELINE:]
    return statistics.median(readings) if readings else None


def _after_rise(
    findings: tuple[Finding, ...], rules: Mapping[str, Rule], chart: Chart
) -> tuple[Finding, ...]:
    """The findings of a run whose outcome rose; it excuses some, unless the rise was lost."""
    if has_lost_outcome(chart) or is_stuck(chart):
        return findings
    cured_by = chart.step * _CURED_BY
    spared = _NO_GRADIENT if _has_stopped_learning(chart) else frozenset()
    return tuple(_judged_by_outcome(finding, rules, cured_by, spared) for finding in findings)


def _has_stopped_learning(chart: Chart) -> bool:
    """Whether hardly any group or response varies, although the reward is below its ceiling.

    What the reward gained before does not show that the run still learns.
    """
    outcome = chart.series(outcome_metric(chart) or "")
    if is_solved(chart) or is_near_ceiling(outcome):
        return False
    if lacks_signal(chart) or has_stalled_without_signal(chart):
        return True
    return explores_no_more(chart) or has_copied_responses(chart)


def _judged_by_outcome(
    finding: Finding,
    rules: Mapping[str, Rule],
    cured_by: float,
    spared: frozenset[Condition],
) -> Finding:
    """A finding about a run whose outcome has risen and has kept what it gained.

    Many policies begin with responses that are too long or with groups that are all-incorrect, and
    learn to do without: a warning of it that is over did no lasting harm to such a run.

    Args:
        finding: what a rule found.
        rules: all rules by code.
        cured_by: step by which a condition that learning ends must be over.
        spared: conditions whose active findings stay as they are.
    """
    rule = rules.get(finding.code)
    if rule is None or (finding.active and rule.condition in spared) or finding.weighs_outcome:
        return finding
    is_over = not finding.active and finding.severity == "warning" and finding.last_step <= cured_by
    is_excused = rule.judged_by_outcome and not (
        finding.severity == "critical" and rule.condition in _NEVER_EXCUSED
    )
    if is_excused or (is_over and rule.condition in _CURED_BY_LEARNING):
        return replace(finding, severity="info", summary=_without_outcome(finding.summary))
    return finding


def _without_outcome(summary: str) -> str:
    """A summary without the outcome at the time of the finding, which has risen since."""
    clauses = [each for each in summary.rstrip(".").split("; ") if _OUTCOME_THEN not in each]
    return f"{'; '.join(clauses)}." if clauses else summary


def _is_treated(finding: Finding, chart: Chart) -> bool:
    """Whether a setting that a remedy of the finding changes has changed since its onset."""
    before = chart.knobs_at(finding.onset_step)
    changed = {name for name, value in chart.knobs.items() if before.get(name) != value}
    return bool(changed) and any(
        not changed.isdisjoint(remedy_of(remedy).change(before)) for remedy in finding.remedies
    )


def _why_not_judged(chart: Chart, reading: Reading, findings: Sequence[Finding]) -> str:
    """Why a run without readings of a reward is not judged, if the log shows it.

    An active fault of a distillation, such as responses that all run to the limit, needs no reward.
    """
    if is_distilled(chart):
        if any(finding.active and is_alarm(finding) for finding in findings):
            return ""
        return "this run distills from a teacher and has no reward to judge."
    if any(name.startswith("reward/") for name in chart.names()):
        return ""  # components of a reward whose total is logged under an unknown key
    return other_training(reading.unmapped)


def other_training(keys: Sequence[str]) -> str:
    """Why a log without a reward is not judged; empty if its kind is not recognized."""
    return next((f"this is {log}." for log in suggested_objectives(keys)), "")


def _stride(chart: Chart, reading: Reading) -> float:
    """Steps from one row of the log to the next."""
    if reading.first_step is None or reading.steps < 2:
        return 1.0
    return max(1.0, (chart.step - reading.first_step) / (reading.steps - 1))


def _no_rise(findings: Sequence[Finding]) -> Finding | None:
    """The note on an outcome that has not risen, which a verdict of flat states."""
    return next((each for each in findings if each.code == NoRise.code and each.active), None)


def _progress(chart: Chart) -> str:
    """How the outcome moved, after the measure that rose if the outcome did not."""
    moved = {name: _movement(chart, name) for name in (*_OUTCOMES, *_HELD_OUT)}
    outcome = next((name for name in _OUTCOMES if moved[name]), None)
    if outcome is None:
        return ""
    shown = [outcome]
    if not _has_risen(chart.series(outcome)):
        rising = (name for name, text in moved.items() if text and _has_risen(chart.series(name)))
        shown = [*list(rising)[:1], outcome]
    training = "training " if len(shown) > 1 and shown[0] in _HELD_OUT else ""
    nouns = {name: training + noun if name in _OUTCOMES else noun for name, noun in _NOUNS.items()}
    return ", ".join(f"{nouns[name]} {moved[name]}" for name in shown)


def _fall(chart: Chart, change: LevelChange | None, noise: float | None) -> str:
    """From where to where the outcome fell by more than its noise; empty if it did not."""
    outcome = _shown_outcome(chart)
    if outcome is None or change is None or noise is None or change.now - change.start >= -noise:
        return ""
    return f"{_NOUNS[outcome]} fell from {change.start:.3g} to {change.now:.3g}"


def _shown_outcome(chart: Chart) -> str | None:
    """The outcome whose course the verdict states."""
    return next((name for name in _OUTCOMES if _movement(chart, name)), None)


def _change_and_noise(chart: Chart) -> tuple[LevelChange | None, float | None]:
    """How far the outcome that the verdict states moved, and its noise; None if that is no bound.

    The noise is no bound of a rise that exceeds it.
    """
    outcome = _shown_outcome(chart)
    level_change = level_change_of(chart, outcome) if outcome else None
    if outcome is None or level_change is None:
        return None, None
    series = chart.series(outcome)
    levels = flat_levels(series)
    is_same = (levels.start, levels.now) == (level_change.start, level_change.now)
    noise = levels.noise if is_same else median_noise(series)
    is_bound = level_change.basis != QUARTERS or is_same
    change = level_change.now - level_change.start
    return level_change, noise if is_bound and change <= noise else None


def _has_risen(series: Series) -> bool:
    return is_above_start(series) or rises_over_run(series)


def _movement(chart: Chart, metric: str) -> str:
    """From the first to the latest level; empty before there is a starting value."""
    level_change = level_change_of(chart, metric)
    if level_change is None or chart.series(metric).start is None:
        return ""
    basis = f" ({level_change.basis})" if level_change.basis == QUARTERS else ""
    return f"{level_change.start:.3g} → {level_change.now:.3g}{basis}"
