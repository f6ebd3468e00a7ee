"""Settings that a run logs, for rules that compare what it shows with them."""

from __future__ import annotations

from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.knobs import LOGGED_KNOBS


def coefficient(chart: Chart, knob: str) -> float | None:
    """A number among the knobs, or its latest logged value; None if it is unknown."""
    setting = chart.knobs.get(knob)
    if isinstance(setting, int | float) and not isinstance(setting, bool):
        return float(setting)
    logged = chart.series(LOGGED_KNOBS[knob])
    return logged.level(RECENT) if len(logged) else None
