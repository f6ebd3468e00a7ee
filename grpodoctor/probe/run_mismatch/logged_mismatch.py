"""Judges the mismatch of a run from the figures in its log, where no tokens were recorded.

Most trainers log the mean mismatch of each step and save no log-probabilities per token. The means
show how large the mismatch is and how it develops; they do not show which tokens differ, so of the
causes only growth and jumps have a signature.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError
from grpodoctor.probe.run_mismatch.run_mismatch import (
    CRITICAL_KL,
    WARNING_KL,
    cause_of_growth,
    is_growing,
)
from grpodoctor.probe.run_mismatch.signatures import SOUND_KL, UNKNOWN, LikelyCause
from grpodoctor.probe.run_mismatch.trend import Trend, trend_of_values
from grpodoctor.rules.base import Severity
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.plain_names import plain_name
from grpodoctor.vocabulary.values import scalar

FIGURES = {
    "mismatch/kl_k3": "k3",
    "mismatch/kl_k1": "k1",
    "mismatch/logprob_diff_mean": "logprob_diff_mean",
    "mismatch/prob_diff_mean": "prob_diff_mean",
    "mismatch/prob_diff_max": "prob_diff_max",
    "mismatch/bias": "bias",
}
"""Metrics of a log and the names that `--accept` has for them."""

LEVELS: Mapping[str, tuple[float, float, float]] = {
    "mismatch/kl_k3": (SOUND_KL, WARNING_KL, CRITICAL_KL),
    "mismatch/kl_k1": (SOUND_KL, WARNING_KL, CRITICAL_KL),
    "mismatch/logprob_diff_mean": (0.02, 0.05, 0.15),
    "mismatch/prob_diff_mean": (0.0042, 0.02, 0.06),
}
"""What sound runs reach, what deserves a warning, and what is critical; the first of these metrics
that a log has decides. The levels of the KL are those for recorded tokens. Ordinary means of the
|log-probability difference| are .004 to .02, and collapsed runs reach .15 to .25. Ordinary
probability differences reach .0042, and small runs lose accuracy from .02 on (see
`rules/shared/mismatch_levels.py`)."""


@dataclass(frozen=True, slots=True)
class LoggedMismatch:
    """The mismatch of the last steps of a run, as it was logged."""

    run: str
    framework: str
    metric: str
    """The metric that decides."""
    steps: tuple[int, ...]
    figures: Mapping[str, tuple[float, ...]]
    """The values at these steps by metric; NaN where a step has none."""
    trend: Trend
    causes: tuple[LikelyCause, ...]
    recording: str
    """How the run would record both sides of every token, as an instruction."""

    @property
    def latest(self) -> float:
        """The value that decides, at the last step."""
        return self.figures[self.metric][-1]

    @property
    def severity(self) -> Severity:
        """By the last step's value, and by growth."""
        _, warning, critical = LEVELS[self.metric]
        if abs(self.latest) > critical:
            return "critical"
        return "warning" if abs(self.latest) > warning or self.is_growing else "info"

    @property
    def is_growing(self) -> bool:
        """Whether the mismatch rises or jumps to more than that of sound runs."""
        return is_growing(self.trend, LEVELS[self.metric][0])

    def to_json(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "run": self.run,
            "frameworks": [self.framework],
            "severity": self.severity,
            "metric": self.metric,
            "steps": [
                {"step": step, **{name: _finite(self.figures[name][row]) for name in self.figures}}
                for row, step in enumerate(self.steps)
            ],
            "trend": asdict(self.trend),
            "causes": [asdict(cause) for cause in self.causes],
            "recording": self.recording,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def logged_mismatch(run: Path, steps: int, recording: str) -> LoggedMismatch | None:
    """Judge the last steps whose mismatch was logged.

    Args:
        run: the run's directory, or its log.
        steps: maximum number of steps.
        recording: how the run would record both sides of every token.

    Returns:
        The mismatch; None if the run has no log that can be read, or the log has no mismatch.
    """
    try:
        opened = open_run(run)
        readings = _last_readings(opened.steps, steps)
    except RunError:
        return None
    metric = next((name for name in LEVELS if readings[name]), None)
    if metric is None:
        return None
    chosen = dict(readings[metric])
    others = {name: dict(values) for name, values in readings.items() if values}
    trend = trend_of_values([(step, abs(value)) for step, value in chosen.items()])
    figures = {
        name: tuple(others[name].get(step, math.nan) for step in chosen)
        for name in FIGURES
        if name in others
    }
    manifest = opened.manifest
    causes = _causes(metric, trend, abs(readings[metric][-1][1]), manifest)
    return LoggedMismatch(
        str(run), manifest.framework, metric, tuple(chosen), figures, trend, causes, recording
    )


def _last_readings(steps: Iterable[StepRecord], most: int) -> dict[str, deque[tuple[int, float]]]:
    """The last finite values of each metric with their steps."""
    readings: dict[str, deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=most))
    for record in steps:
        for name in FIGURES:
            reading = record.values.get(name)
            value = None if reading is None else scalar(reading)
            if value is None or not math.isfinite(value):
                continue
            kept = readings[name]
            while kept and kept[-1][0] >= record.step:  # the run went back
                kept.pop()
            kept.append((record.step, value))
    return readings


def _causes(
    metric: str, trend: Trend, latest: float, manifest: Manifest
) -> tuple[LikelyCause, ...]:
    """What the course and the size of the figure show."""
    noun, (sound, *_) = plain_name(metric), LEVELS[metric]
    if is_growing(trend, sound):
        return (cause_of_growth(trend, noun.removeprefix("the ")),)
    if latest <= sound:
        text = f"{_upper(noun)} is {latest:.2g}; sound pairs of engines reach {sound:g}."
        cause = "rounding in different kernels or precisions"
        return (LikelyCause("rounding", cause, text, "", is_fault=False),)
    text = f"{_upper(noun)} is {latest:.2g}. A mean over a step does not show which tokens differ."
    experiment = "Record both sides of every token, then repeat this command."
    model = manifest.model if _is_word(manifest.model) else "MODEL"
    command = f"grpodoctor probe --sampler vllm:{model} --learner transformers:{model}"
    note = "It compares the two engines without the run."
    return (LikelyCause("unknown", UNKNOWN, text, experiment, command=command, note=note),)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_word(model: str) -> bool:
    """Whether a name from a log can be part of a command without quotes."""
    return bool(model) and all(letter.isalnum() or letter in "._-/" for letter in model)
