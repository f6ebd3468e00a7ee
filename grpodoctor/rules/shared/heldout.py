"""The held-out sets of a run."""

from __future__ import annotations

from grpodoctor.rules.shared.run_health import current_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.metrics import HELDOUT


def heldout_metrics(chart: Chart) -> list[str]:
    """The mean over all held-out sets, followed by the single sets if there are several.

    A rule judges each of them: a loss on one set may vanish in the mean of many.
    """
    mean = current_metric(chart, HELDOUT)
    sets = sorted(name for name in chart.names() if name.startswith(f"{mean}/set/"))
    return [mean, *(name for name in sets if len(sets) > 1 and chart.is_fresh(name))]
