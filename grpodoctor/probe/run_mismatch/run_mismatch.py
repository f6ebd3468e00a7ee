"""Judges the mismatch of a run from its own records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpodoctor.probe.run_mismatch.experiment_commands import with_command
from grpodoctor.probe.run_mismatch.recorded_tokens import (
    StepTokens,
    joined,
    read_recorded_tokens,
)
from grpodoctor.probe.run_mismatch.run_source import source_of
from grpodoctor.probe.run_mismatch.signatures import (
    MIN_TOKENS,
    SOUND_KL,
    LikelyCause,
    likely_causes,
)
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
    """Possible causes at the last step, the most specific first; over the last steps if the last
    has few tokens."""
    damaged: int
    """Entries and files of the dumps that could not be read."""
    incomplete: int = 0
    """Responses without the log-probabilities of both sides."""
    newest_step: int = 0
    """The last step of the dumps; the steps behind the last figures lack a side."""

    unusable: int = 0
    """Tokens that were left out, because a value is no log-probability."""
    empty: tuple[str, ...] = ()
    """Names of the dumps of 0 bytes."""

    @property
    def is_outdated(self) -> bool:
        """Whether the last steps of the run lack the log-probabilities of a side."""
        return self.newest_step > self.steps[-1].step

    @property
    def severity(self) -> Severity:
        """By the last step's KL, and by growth."""
        latest = self.steps[-1].kl_k3
        if latest > CRITICAL_KL:
            return "critical"
        return "warning" if latest > WARNING_KL or self.is_growing else "info"

    @property
    def is_growing(self) -> bool:
        """Whether the KL rises or jumps to more than that of sound runs."""
        return is_growing(self.trend, SOUND_KL)

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
            "incomplete": self.incomplete,
            "newest_step": self.newest_step,
            "unusable": self.unusable,
            "empty": list(self.empty),
        }


def is_growing(trend: Trend, sound: float) -> bool:
    """Whether a figure rises or jumps to more than that of sound runs."""
    grown = trend.last > _GROWTH * trend.first and trend.last > sound
    return trend.direction in ("rises", "jumps") and grown


def cause_of_growth(trend: Trend, noun: str, unit: str = "") -> LikelyCause:
    """The cause of a figure that grows with each update, or changes its level at one step.

    Args:
        trend: of the figure, which grows.
        noun: the figure, without an article.
        unit: its unit, after a space; may be empty.
    """
    if trend.direction == "rises":
        return LikelyCause(
            "undelivered-weights",
            "the sampler no longer receives the learner's weights",
            f"The {noun} grows from {trend.first:.2g} to {trend.last:.2g}{unit}, as it does while "
            "one side stays behind.",
            "Compare the checksums of the sampler's and the learner's weights after a sync.",
        )
    step = trend.jump_step
    return LikelyCause(
        "jump",
        f"sampler or learner changed at step {step} (sync, restart, settings)",
        f"The median of the {noun} is {trend.first:.2g}{unit} before step {step} and "
        f"{trend.last:.2g} since.",
        f"Look for a weight sync, a restart or a changed setting at step {step}.",
    )


def measure_run(run: Path, steps: int) -> RunMismatch:
    """Measure the last steps of a run.

    Raises:
        RunError: if the run does not hold both sides' log-probabilities.
    """
    recorded = read_recorded_tokens(run, steps)
    figures = tuple(mismatch_of(tokens) for tokens in recorded.steps)
    trend = trend_of(figures)
    last = _latest(recorded.steps, trend)
    source = source_of(run, tuple(figure.step for figure in figures), last.ids)
    since = last.step if trend.direction in ("rises", "falls") else trend.jump_step or 0
    causes = tuple(with_command(cause, source, since) for cause in _causes(last, trend))
    return RunMismatch(
        str(run), recorded.frameworks, figures, trend, causes, recorded.damaged,
        recorded.incomplete, recorded.newest_step, sum(each.nonfinite for each in recorded.steps),
        recorded.empty,
    )  # fmt: skip


def _latest(steps: tuple[StepTokens, ...], trend: Trend) -> StepTokens:
    """The tokens of the last step, with those before it as long as they are too few to compare.

    Steps before a jump are of another level. While the KL rises or falls, the last steps are
    those that resemble each other most.
    """
    parts: list[StepTokens] = []
    for tokens in reversed(steps):
        if sum(part.sampler_N.size for part in parts) >= MIN_TOKENS:
            break
        if trend.jump_step is not None and tokens.step < trend.jump_step:
            break
        parts.append(tokens)
    return joined(parts)


def _causes(last: StepTokens, trend: Trend) -> tuple[LikelyCause, ...]:
    """The causes of growth, then those of the last step's tokens."""
    causes = likely_causes(last)
    if not is_growing(trend, SOUND_KL):
        return causes
    grown = cause_of_growth(trend, "KL", " nats per token")
    return (grown, *(cause for cause in causes if cause.kind != "unknown"))
