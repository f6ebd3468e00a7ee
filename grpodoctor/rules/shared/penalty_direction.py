"""Whether a larger KL penalty would pull the policy back, as far as the run shows it."""

from __future__ import annotations

from grpodoctor.rules.shared.health.run_health import RECENT, has_improved
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series

_ESTIMATORS = ("k1", "k2", "k3")


def penalty_drives_away(chart: Chart) -> bool:
    """Whether the KL grows under a penalty while the outcome does not.

    Such a penalty may have the wrong sign: a larger coefficient then drives the policy away faster.
    """
    coefficient = chart.knobs.get("kl_coefficient")
    if not isinstance(coefficient, int | float) or coefficient == 0:
        return False
    grows = any(_has_grown(chart.series(f"kl/reference/{estimator}")) for estimator in _ESTIMATORS)
    return grows and has_improved(chart) is False


def _has_grown(series: Series) -> bool:
    start = series.start
    return start is not None and series.level(RECENT) > 2 * start.level
