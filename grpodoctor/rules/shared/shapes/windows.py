"""The steps that a share in a summary is about."""

from __future__ import annotations

from grpodoctor.rules.shared.health.run_health import typical_readings
from grpodoctor.runs.series import Series


def in_steps(series: Series, readings: int) -> str:
    """The steps of the latest readings in words, such as "(steps 26-45)".

    Args:
        series: the metric that was read.
        readings: how many of its latest readings make the share.
    """
    steps = series.steps(readings)
    return f"(steps {steps[0]}-{steps[-1]})" if len(steps) > 1 else f"(step {steps[-1]})"


def in_typical_steps(series: Series, readings: int) -> str:
    """The same for `typical_share`, which reads more where a batch has few groups."""
    return in_steps(series, typical_readings(series, readings))
