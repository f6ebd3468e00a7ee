"""What the rules report in healthy runs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.trials.evidence.statistics import LEVEL
from grpodoctor.trials.healthy_runs import HEALTHY
from grpodoctor.trials.results import RunResult, of_arm
from grpodoctor.trials.trial import CONTROL


@dataclass(frozen=True, slots=True)
class HealthyArm:
    """The alarms in the runs of a task with the settings of a variant.

    A rule that fires in a run counts once, with the highest severity that it reached.
    """

    name: str
    runs: int
    steps: int
    """Steps of all runs."""
    warnings: int
    criticals: int
    accuracy: float | None
    """Mean held-out accuracy at the end."""


@dataclass(frozen=True, slots=True)
class HealthyEvidence:
    """The alarms in all healthy runs."""

    arms: tuple[HealthyArm, ...]
    alarms: tuple[tuple[str, int], ...]
    """Rules that fired, with the number of runs."""
    failed: tuple[str, ...]
    """Runs without a result, with the reason. If there are any, the table is incomplete."""

    @property
    def seeds(self) -> int:
        """Seeds of the arm that has the fewest."""
        return min((arm.runs for arm in self.arms), default=0)

    @property
    def total(self) -> HealthyArm:
        """The sums over all arms."""
        return HealthyArm(
            "all",
            sum(arm.runs for arm in self.arms),
            sum(arm.steps for arm in self.arms),
            sum(arm.warnings for arm in self.arms),
            sum(arm.criticals for arm in self.arms),
            None,
        )


def healthy_evidence_of(results: Sequence[RunResult]) -> HealthyEvidence:
    """The alarms in the healthy runs among some results."""
    ours = [each for each in results if each.spec.trial == HEALTHY.name]
    done = [each for each in ours if each.status == "done"]
    codes = Counter(alarm.code for each in done for alarm in each.alarms if alarm.is_loud)
    return HealthyEvidence(
        arms=tuple(_arm(name, done) for name in HEALTHY.arms),
        alarms=tuple(sorted(codes.items(), key=lambda item: (-item[1], item[0]))),
        failed=tuple(
            f"{each.spec.title}: {each.reason}" for each in ours if each.status == "failed"
        ),
    )


def controls_of(results: Sequence[RunResult]) -> HealthyArm:
    """The alarms of the whole catalogue in the controls of trials, each distinct run once."""
    controls = {
        each.spec.fingerprint: each
        for each in results
        if each.status == "done" and each.spec.arm == CONTROL
    }
    return _counted("controls", list(controls.values()))


def _arm(name: str, done: Sequence[RunResult]) -> HealthyArm:
    return _counted(name, list(of_arm(done, HEALTHY.name, name).values()))


def _counted(name: str, runs: Sequence[RunResult]) -> HealthyArm:
    severities = Counter(alarm.severity for each in runs for alarm in each.alarms)
    outcomes = [value for each in runs if (value := each.outcome()) is not None]
    return HealthyArm(
        name=name,
        runs=len(runs),
        steps=sum(each.spec.steps for each in runs),
        warnings=severities["warning"],
        criticals=severities["critical"],
        accuracy=statistics.fmean(outcomes) if outcomes else None,
    )


def rate_interval(events: int, steps: int) -> tuple[float, float]:
    """Exact Poisson interval of the events in 1,000 steps."""
    from scipy.stats import chi2

    tail = (1 - LEVEL) / 2
    low = float(chi2.ppf(tail, 2 * events)) / 2 if events else 0.0
    high = float(chi2.ppf(1 - tail, 2 * events + 2)) / 2
    return 1000 * low / steps, 1000 * high / steps
