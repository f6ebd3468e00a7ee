"""The evidence of several trials and of the healthy runs, together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grpodoctor.trials.evidence.healthy_evidence import (
    HealthyArm,
    HealthyEvidence,
    controls_of,
    healthy_evidence_of,
)
from grpodoctor.trials.evidence.trial_evidence import TrialEvidence, evidence_of
from grpodoctor.trials.healthy_runs import HEALTHY
from grpodoctor.trials.results import RunResult
from grpodoctor.trials.trial import DISEASE, Experiment, Trial


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a set of runs shows."""

    trials: tuple[TrialEvidence, ...] = ()
    healthy: HealthyEvidence | None = None
    """None if no healthy run is in the set."""
    controls: HealthyArm | None = None
    """The distinct controls of the trials; None without a trial."""

    @property
    def failed(self) -> list[str]:
        """Runs without a result, with the reason."""
        trials = [line for each in self.trials for line in each.failed]
        return [*trials, *(self.healthy.failed if self.healthy else ())]


def collected(experiments: Iterable[Experiment], results: Sequence[RunResult]) -> Evidence:
    """The evidence of experiments that have runs among the results.

    Trials share controls, so a trial counts only if its disease was trained.
    """
    trained = {each.spec.trial for each in results if each.spec.arm == DISEASE or _is_healthy(each)}
    named = {each.spec.trial for each in results}
    experiments = list(experiments)
    has_controls = any(isinstance(each, Trial) and each.name in named for each in experiments)
    chosen = [each for each in experiments if each.name in trained]
    trials = [each for each in chosen if isinstance(each, Trial)]
    return Evidence(
        tuple(evidence_of(trials, results)),
        healthy_evidence_of(results) if HEALTHY in chosen else None,
        controls_of(results) if has_controls else None,
    )


def _is_healthy(result: RunResult) -> bool:
    return result.spec.trial == HEALTHY.name
