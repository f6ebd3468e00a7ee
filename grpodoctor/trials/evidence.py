"""What the runs of the trials show about each rule and each remedy."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.trials.results import RunResult, of_arm
from grpodoctor.trials.statistics import Difference, Share, holm, paired_difference
from grpodoctor.trials.trial import CONTROL, DISEASE, Treated, Trial


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """How a rule did on the diseased runs and on the controls of a trial."""

    trial: str
    code: str
    fired: Share
    """Diseased runs in which it fired as a warning or as critical."""
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
    """Mean outcome of the controls."""
    untreated: float | None
    """Mean outcome of the diseased runs."""
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
        remedies=tuple(
            _remedy_evidence(trial, treated, arms[treated.name], arms[DISEASE], well)
            for treated in trial.remedies
        ),
        others=tuple(_others(trial, sick)),
        failed=tuple(
            f"{each.spec.title}: {each.reason}"
            for arm in arms.values()
            for each in arm.values()
            if each.status == "failed"
        ),
        seeds=max((len(arm) for arm in arms.values()), default=0),
    )


def _rule_evidence(
    trial: Trial, code: str, sick: Sequence[RunResult], well: Sequence[RunResult]
) -> RuleEvidence:
    alarms = [each.alarm([code]) for each in sick]
    return RuleEvidence(
        trial=trial.name,
        code=code,
        fired=Share(sum(alarm is not None for alarm in alarms), len(sick)),
        false_alarms=Share(sum(each.alarm([code]) is not None for each in well), len(well)),
        delays=tuple(alarm.step - trial.onset for alarm in alarms if alarm is not None),
    )


def _remedy_evidence(
    trial: Trial,
    treated: Treated,
    with_remedy: dict[int, RunResult],
    without: dict[int, RunResult],
    well: Sequence[RunResult],
) -> RemedyEvidence:
    seeds = sorted(with_remedy.keys() & without.keys())
    pairs = [(with_remedy[seed], without[seed]) for seed in seeds]
    target = remedy_of(treated.remedy).target.metric
    return RemedyEvidence(
        trial=trial.name,
        remedy=treated.remedy,
        variant=treated.variant,
        control=_mean(each.outcome() for each in well),
        untreated=_mean(each.outcome() for each in without.values()),
        treated=_mean(each.outcome() for each in with_remedy.values()),
        gain=_gain((one.outcome(), other.outcome()) for one, other in pairs),
        matched_gain=_gain(_at_equal_cost(one, other) for one, other in pairs),
        adjusted_p=None,
        target=target,
        target_untreated=_mean((each.levels or {}).get(target) for each in without.values()),
        target_treated=_mean((each.levels or {}).get(target) for each in with_remedy.values()),
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
