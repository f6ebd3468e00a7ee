"""Judges the mismatch of a run from its own records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpodoctor.probe.run_mismatch.recorded_tokens import read_recorded_tokens
from grpodoctor.probe.run_mismatch.signatures import SOUND_KL, UNKNOWN, LikelyCause, likely_causes
from grpodoctor.probe.run_mismatch.trend import StepMismatch, Trend, mismatch_of, trend_of
from grpodoctor.rules.base import Severity

WARNING_KL = 2 * SOUND_KL
"""Nats per token: twice the largest value of sound runs."""
CRITICAL_KL = 0.015
"""Nats per token above which prime-rl does not accept a model."""
_GROWTH = 3.0
"""Growth over the steps that is a warning in itself: weights that are no longer delivered."""


@dataclass(frozen=True, slots=True)
class RunMismatch:
    """The mismatch of the last steps of a run."""

    run: str
    frameworks: tuple[str, ...]
    steps: tuple[StepMismatch, ...]
    trend: Trend
    causes: tuple[LikelyCause, ...]
    """Possible causes at the last step, the most specific first."""
    damaged: int

    @property
    def severity(self) -> Severity:
        """By the last step's KL, and by growth."""
        latest = self.steps[-1].kl_k3
        if latest > CRITICAL_KL:
            return "critical"
        return "warning" if latest > WARNING_KL or self.is_growing else "info"

    @property
    def is_growing(self) -> bool:
        """Whether the KL rises to more than that of sound runs."""
        trend = self.trend
        grown = trend.last > _GROWTH * trend.first and trend.last > SOUND_KL
        return trend.direction == "rises" and grown

    def to_json(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "run": self.run,
            "frameworks": list(self.frameworks),
            "severity": self.severity,
            "steps": [asdict(step) for step in self.steps],
            "trend": asdict(self.trend),
            "causes": [asdict(cause) for cause in self.causes],
            "damaged": self.damaged,
        }


_UNDELIVERED = LikelyCause(
    "the sampler no longer receives the learner's weights",
    "The KL grows with the steps, as it does while one side stays behind.",
    "Compare the checksums of the sampler's and the learner's weights after a sync.",
)


def measure_run(run: Path, steps: int) -> RunMismatch:
    """Measure the last steps of a run.

    Raises:
        RunError: if the run does not hold both sides' log-probabilities.
    """
    recorded = read_recorded_tokens(run, steps)
    figures = tuple(mismatch_of(tokens) for tokens in recorded.steps)
    result = RunMismatch(
        str(run), recorded.frameworks, figures, trend_of(figures),
        likely_causes(recorded.steps[-1]), recorded.damaged,
    )  # fmt: skip
    if not result.is_growing:
        return result
    causes = (_UNDELIVERED, *(each for each in result.causes if each.cause != UNKNOWN))
    return RunMismatch(
        result.run, result.frameworks, result.steps, result.trend, causes, result.damaged
    )
