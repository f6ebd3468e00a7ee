"""What the runs of the trials show about each rule and each remedy."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.rules.base import SEVERITIES, Severity
from grpodoctor.trials.evidence.statistics import LEVEL, Difference, Share, holm, paired_difference
from grpodoctor.trials.results import RunResult, of_arm
from grpodoctor.trials.trial import CONTROL, DISEASE, Treated, Trial

Effect = Literal["helps", "harms", "not shown", "no interval"]
"""Whether the interval of a gain is above zero, below zero or contains it."""


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """How a rule did on the diseased runs and on the controls of a trial."""

    trial: str
    code: str
    severity: Severity | None
    """The highest severity in the diseased runs; None if it never fired."""
    fired: Share
    """Diseased runs in which it fired as a warning or as critical; for a rule that only notes,
    those in which it did."""
    false_alarms: Share
    """The same in the controls."""
    delays: tuple[int, ...]
    """Steps from the onset of the disease to the report, for each run in which it fired."""

    @property
    def median_delay(self) -> float | None:
        """None if it never fired."""
        return statistics.median(self.delays) if self.delays else None


@dataclass(frozen=True, slots=True)
class RemedyEvidence:
    """The outcome with a remedy and without, in runs paired by seed."""

    trial: str
    remedy: str
    variant: str
    control: float | None
    """Mean outcome of the controls, all three over the seeds of the pairs."""
    untreated: float | None
    treated: float | None
    gain: Difference | None
    """Outcome treated minus untreated; None without a pair."""
    matched_gain: Difference | None
    """The same at equal cost: both runs are evaluated within the cost of the cheaper one."""
    adjusted_p: float | None
    """The p-value, corrected for the number of remedies in the table."""
    target: str
    """The metric that the remedy should move."""
    target_untreated: float | None
    target_treated: float | None

    @property
    def helps(self) -> bool:
        """Whether the interval of the gain is above zero."""
        return self.gain is not None and self.gain.low is not None and self.gain.low > 0

    @property
    def harms(self) -> bool:
        """Whether the interval of the gain is below zero."""
        return self.gain is not None and self.gain.high is not None and self.gain.high < 0

    @property
    def is_certain(self) -> bool:
        """Whether the effect remains after the correction for the number of remedies."""
        return self.adjusted_p is not None and self.adjusted_p <= 1 - LEVEL

    @property
    def effect(self) -> Effect:
        """The reading of the interval."""
        if self.gain is None or self.gain.low is None:
            return "no interval"
        return "helps" if self.helps else "harms" if self.harms else "not shown"


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """All evidence of one trial."""

    trial: Trial
    rules: tuple[RuleEvidence, ...]
    remedies: tuple[RemedyEvidence, ...]
    others: tuple[tuple[str, int], ...]
    """Other rules that fired in the diseased runs, with the number of runs."""
    failed: tuple[str, ...]
    """Runs without a result, with the reason. If there are any, the table is incomplete."""
    seeds: int
    """Seeds of the arm that has the fewest."""


def evidence_of(trials: Iterable[Trial], results: Sequence[RunResult]) -> list[TrialEvidence]:
    """The evidence of several trials; p-values are corrected over all their remedies."""
    found = [_evidence_of(trial, results) for trial in trials]
    p_values = [
        each.gain.p
        for one in found
        for each in one.remedies
        if each.gain is not None and each.gain.p is not None
    ]
    adjusted = iter(holm(p_values))
    return [
        replace(one, remedies=tuple(_adjusted(each, adjusted) for each in one.remedies))
        for one in found
    ]


def _adjusted(evidence: RemedyEvidence, adjusted: Iterator[float]) -> RemedyEvidence:
    if evidence.gain is None or evidence.gain.p is None:
        return evidence
    return replace(evidence, adjusted_p=next(adjusted))


def _evidence_of(trial: Trial, results: Sequence[RunResult]) -> TrialEvidence:
    arms = {arm: of_arm(results, trial.name, arm) for arm in trial.arms}
    sick = [each for each in arms[DISEASE].values() if each.status == "done"]
    well = [each for each in arms[CONTROL].values() if each.status == "done"]
    return TrialEvidence(
        trial=trial,
        rules=tuple(_rule_evidence(trial, code, sick, well) for code in trial.rules),
        remedies=tuple(_remedy_evidence(trial, treated, arms) for treated in trial.remedies),
        others=tuple(_others(trial, sick)),
        failed=tuple(
            f"{each.spec.title}: {each.reason}"
            for arm in arms.values()
            for each in arm.values()
            if each.status == "failed"
        ),
        seeds=min(len(arm) for arm in arms.values()),
    )


def _rule_evidence(
    trial: Trial, code: str, sick: Sequence[RunResult], well: Sequence[RunResult]
) -> RuleEvidence:
    severities = [alarm.severity for each in sick for alarm in each.alarms if alarm.code == code]
    severity = max(severities, key=SEVERITIES.index, default=None)
    least: Severity = "info" if severity == "info" else "warning"
    alarms = [each.alarm([code], least) for each in sick]
    false_alarms = sum(each.alarm([code], least) is not None for each in well)
    return RuleEvidence(
        trial=trial.name,
        code=code,
        severity=severity,
        fired=Share(sum(alarm is not None for alarm in alarms), len(sick)),
        false_alarms=Share(false_alarms, len(well)),
        delays=tuple(alarm.step - trial.onset for alarm in alarms if alarm is not None),
    )


def _remedy_evidence(
    trial: Trial, treated: Treated, arms: Mapping[str, Mapping[int, RunResult]]
) -> RemedyEvidence:
    """The evidence of a remedy from the seeds that have a diseased and a treated run."""
    with_remedy, without, well = arms[treated.name], arms[DISEASE], arms[CONTROL]
    seeds = [
        seed
        for seed in sorted(with_remedy.keys() & without.keys())
        if with_remedy[seed].outcome() is not None and without[seed].outcome() is not None
    ]
    pairs = [(with_remedy[seed], without[seed]) for seed in seeds]
    target = remedy_of(treated.remedy).target.metric
    return RemedyEvidence(
        trial=trial.name,
        remedy=treated.remedy,
        variant=treated.variant,
        control=_mean(well[seed].outcome() for seed in seeds if seed in well),
        untreated=_mean(other.outcome() for _, other in pairs),
        treated=_mean(one.outcome() for one, _ in pairs),
        gain=_gain((one.outcome(), other.outcome()) for one, other in pairs),
        matched_gain=_gain(_at_equal_cost(one, other) for one, other in pairs),
        adjusted_p=None,
        target=target,
        target_untreated=_mean((other.levels or {}).get(target) for _, other in pairs),
        target_treated=_mean((one.levels or {}).get(target) for one, _ in pairs),
    )


def _at_equal_cost(one: RunResult, other: RunResult) -> tuple[float | None, float | None]:
    budget = min(one.passes, other.passes)
    return one.outcome(budget), other.outcome(budget)


def _gain(pairs: Iterable[tuple[float | None, float | None]]) -> Difference | None:
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return paired_difference([one for one, _ in known], [other for _, other in known])


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _others(trial: Trial, sick: Sequence[RunResult]) -> list[tuple[str, int]]:
    counts = Counter(
        alarm.code
        for each in sick
        for alarm in each.alarms
        if alarm.is_loud and alarm.code not in trial.rules
    )
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
