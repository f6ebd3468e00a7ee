"""MOE005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import extreme_layer, layer_of
from grpodoctor.runs.chart import Chart

_COVERAGE, _AGREEMENT = "experts/replay_coverage", "experts/replay_agreement"
_LATEST = 3


@dataclass(frozen=True)
class BrokenRoutingReplay(Rule):
    """The routing that should be replayed is missing or not obeyed.

    What it sees:
        Routes that are not there among those expected (coverage), and routes that are there while
        the layer sent the token elsewhere (agreement). Both are exactly 1 in a replay that works.
        The evidence names the layer that is worst.

    Why it matters:
        Nothing else shows it: the run goes on as if it had no replay, or with the routes of another
        layer or another token, which is worse than none. It is the most frequent fault of replays.

    Evidence it needs:
        `experts/replay_coverage` or `experts/replay_agreement`, counted in the layers themselves.

    Remedies:
        Find out where routes get lost, and leave responses without routes out of the loss.

    When it is wrong:
        A framework that leaves the last token of a response without a route, since it predicts
        nothing, and expects one all the same, shows one missing route a response.

    References:
        Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers (R3),
        arXiv 2510.11370; vLLM pull request 39917 (preempted requests drop their routes);
        NeMo-RL pull request 3903 (routes of the wrong layer).
    """

    code: ClassVar[str] = "MOE005"
    name: ClassVar[str] = "broken-routing-replay"
    former_names: ClassVar[tuple[str, ...]] = ("replay-ineffective",)
    summary: ClassVar[str] = "Routing that should be replayed is missing or not obeyed."
    inputs: ClassVar[tuple[Need, ...]] = ((_COVERAGE, _AGREEMENT),)
    remedies: ClassVar[tuple[str, ...]] = ("check-routing-replay",)
    references: ClassVar[tuple[str, ...]] = (
        "R3, arXiv 2510.11370",
        "github.com/vllm-project/vllm/pull/39917",
    )

    missing: float = 1e-3
    """Share of routes whose absence is worth a note; none is missing in a replay that works."""
    many: float = 0.01
    """Share that is a warning: more than the ends of a few turns."""
    disobeyed: float = 1e-3
    """Share of routes not obeyed that is a warning: a layer does what it is told or does not."""
    ruin: float = 0.1
    """Share not obeyed that is critical. One of two layers that took its neighbours' routes ended
    a small run within five steps."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge obedience first, since a route that is not obeyed is worse than none."""
        seen = self._disobeyed(chart) or self._missing(chart)
        if seen is None:
            return None
        metric, severity, text = seen
        layer = extreme_layer(chart, metric, _LATEST, lowest=True)
        if layer is not None:
            level, whole = (chart.series(name).level(_LATEST) for name in (layer, metric))
            if whole - level > self.missing:
                text += f"; layer {layer_of(layer)} is the worst with {level:.1%}"
        return Sighting(severity, text, cite_all(chart, _COVERAGE, _AGREEMENT, layer))

    def _disobeyed(self, chart: Chart) -> tuple[str, Severity, str] | None:
        share = self._short_of_one(chart, _AGREEMENT)
        if share < self.disobeyed:
            return None
        text = f"only {1 - share:.1%} of the replayed routes are what the layers then used"
        return _AGREEMENT, "critical" if share >= self.ruin else "warning", text

    def _missing(self, chart: Chart) -> tuple[str, Severity, str] | None:
        share = self._short_of_one(chart, _COVERAGE)
        if share < self.missing:
            return None
        text = f"only {1 - share:.1%} of the routes to be replayed are there"
        return _COVERAGE, "warning" if share >= self.many else "info", text

    def _short_of_one(self, chart: Chart, metric: str) -> float:
        series = chart.series(metric)
        if not chart.is_fresh(metric) or series.last >= 1:
            return 0.0
        return 1 - series.level(_LATEST)
