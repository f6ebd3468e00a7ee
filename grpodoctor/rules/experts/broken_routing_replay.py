"""MOE005."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import extreme_layer, layer_number
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_COVERAGE, _AGREEMENT = "experts/replay_coverage", "experts/replay_agreement"
_FALLBACK = "experts/replay_fallback_rate"
_LATEST = 3


class BrokenRoutingReplay(Rule):
    """Replayed routes are missing, or the layers do not use them.

    What it sees:
        Expected routes that are missing (coverage), and stored routes that the layer did not follow
        (agreement). Both are exactly 1 in a working replay. The evidence names the worst layer.
        Where coverage is not logged, the rule takes the share of routes that fell back to the
        learner's own routing.

    Why it matters:
        No other metric shows it. The run continues as if replay were off, or uses the routes of
        another layer or token, which is worse than no replay. It is the most frequent fault of
        routing replay.

    Evidence it needs:
        `experts/replay_coverage` or `experts/replay_agreement`, counted in the layers themselves;
        or `experts/replay_fallback_rate`.

    Remedies:
        Find out where routes get lost, and leave responses without routes out of the loss.

    When it is wrong:
        Some frameworks expect a route for the last token of a response but store none, since that
        token predicts nothing. They report one missing route per response.

    References:
        Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers (R3),
        arXiv 2510.11370; vLLM pull request 39917 (preempted requests drop their routes);
        NeMo-RL pull request 3903 (routes of the wrong layer).
    """

    code: ClassVar[str] = "MOE005"
    name: ClassVar[str] = "broken-routing-replay"
    condition: ClassVar[Condition] = "expert-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("replay-ineffective",)
    summary: ClassVar[str] = "Replayed routes are missing, or the layers do not use them."
    inputs: ClassVar[tuple[Need, ...]] = ((_COVERAGE, _AGREEMENT, _FALLBACK),)
    remedies: ClassVar[tuple[str, ...]] = ("check-routing-replay",)
    references: ClassVar[tuple[str, ...]] = (
        "R3, arXiv 2510.11370",
        "github.com/vllm-project/vllm/pull/39917",
    )

    info_missing: float = 1e-3
    """Share of missing routes for `info`; none is missing in a working replay."""
    warning_missing: float = 0.01
    """Share for a warning: more than the ends of a few turns."""
    warning_unused: float = 1e-3
    """Share of unused routes for a warning; a layer uses either all of them or none."""
    critical_unused: float = 0.1
    """Share of unused routes that is critical. One of two layers that used its neighbor's routes
    ended a small run within five steps."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge agreement first, since an unused route is worse than a missing one."""
        judged = self._disagreement(chart) or self._missing_routes(chart)
        if judged is None:
            return None
        metric, severity, text = judged
        layer = None
        if metric != _FALLBACK:
            layer = extreme_layer(chart, metric, _LATEST, lowest=True)
        if layer is not None:
            level, overall = (chart.series(name).level(_LATEST) for name in (layer, metric))
            if overall - level > self.info_missing:
                text += f"; layer {layer_number(layer)} is the worst with {level:.1%}"
        evidence = cite_all(chart, _COVERAGE, _AGREEMENT, _FALLBACK, layer)
        return Sighting(severity, f"{text}.", evidence)

    def _disagreement(self, chart: Chart) -> tuple[str, Severity, str] | None:
        share = self._shortfall(chart, _AGREEMENT)
        if share < self.warning_unused:
            return None
        text = f"The layers used only {1 - share:.1%} of the replayed routes"
        return _AGREEMENT, "critical" if share >= self.critical_unused else "warning", text

    def _missing_routes(self, chart: Chart) -> tuple[str, Severity, str] | None:
        share, metric = self._shortfall(chart, _COVERAGE), _COVERAGE
        text = f"Only {1 - share:.1%} of the routes to replay were recorded"
        if not chart.is_fresh(_COVERAGE) and chart.is_fresh(_FALLBACK):
            share, metric = chart.series(_FALLBACK).level(_LATEST), _FALLBACK
            text = f"{share:.1%} of the routes to replay were missing and replaced by the learner's"
        if share < self.info_missing:
            return None
        return metric, "warning" if share >= self.warning_missing else "info", text

    def _shortfall(self, chart: Chart, metric: str) -> float:
        """How far the recent level is below 1."""
        series = chart.series(metric)
        if not chart.is_fresh(metric) or series.last >= 1:
            return 0.0
        return 1 - series.level(_LATEST)
