"""Whether the loss may include tokens of tools or an environment."""

from __future__ import annotations

from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart

_ENVIRONMENT_TOKENS = "optimizer/environment_token_rate"
EXCHANGES = {"environment/turns_mean": 1.5, "tools/calls_per_response": 0.1}
"""Metrics of agentic runs, and the level from which most batches have tokens of an environment."""


def may_include_environment(chart: Chart) -> bool:
    """Whether tools or an environment answer, and nothing shows that their tokens are masked.

    The sampler gives no log-probability to such tokens, or another one than the learner.
    """
    if len(chart.series(_ENVIRONMENT_TOKENS)):
        return False  # measured, see DAT001
    return any(
        chart.is_fresh(name) and chart.series(name).level(RECENT) >= least
        for name, least in EXCHANGES.items()
    )
