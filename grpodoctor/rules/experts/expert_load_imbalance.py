"""MOE003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import extreme_layer, layer_of
from grpodoctor.runs.chart import Chart

_LOAD = "experts/load_max_over_mean"
_ENTROPY = "experts/router_entropy"
_LATEST = 5
"""Readings that make the level: routers are looked at every few steps only."""


@dataclass(frozen=True)
class ExpertLoadImbalance(Rule):
    """The load of the experts concentrates on few of them as the run goes on.

    What it sees:
        The busiest expert's tokens over the mean of all experts, beyond the run's own start: on
        average over the layers, or in a single layer.

    Why it matters:
        Experts without tokens learn nothing and are lost to the model, and the busy ones set the
        time of each step where experts are spread over devices. Nothing in a policy gradient turns
        it back.

    Evidence it needs:
        `experts/load_max_over_mean`, better for each layer too, for more than twenty readings.

    Remedies:
        Balance or freeze the routers, from a checkpoint before it began; a lower learning rate
        slows it.

    When it is wrong:
        The load depends on what the tokens are: a run whose prompts or lengths change has another
        one. A narrow task is served by few experts from the start, which is why it is compared
        with the start and not with 1. In a model with few experts the ratio cannot exceed their
        number over those a token activates.

    References:
        Switch Transformers, arXiv 2101.03961, section 2.2; verl pull request 6853, which logs the
        violation of the balance.
    """

    code: ClassVar[str] = "MOE003"
    name: ClassVar[str] = "expert-load-imbalance"
    former_names: ClassVar[tuple[str, ...]] = ("expert-load-concentrates",)
    summary: ClassVar[str] = "Few experts take more and more of the tokens."
    inputs: ClassVar[tuple[Need, ...]] = (_LOAD,)
    remedies: ClassVar[tuple[str, ...]] = ("balance-experts", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = ("Switch Transformers, arXiv 2101.03961",)

    growth: float = 1.3
    """Times the start's excess over an even load. Levels of healthy small runs stay below 1.05, a
    run ruined by its learning rate reaches 1.1."""
    growth_of_layer: float = 1.8
    """The same in a single layer, of which there are many."""
    least: float = 2.0
    """Least load that matters: below it the busiest expert has less than twice its share."""
    spreads: float = 6.0
    """Growth in spreads of the start."""
    readings: int = 15
    """Fewest readings: a start and some that are not of it."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the mean of the layers, then the worst of them."""
        if len(chart.series(_LOAD)) < self.readings:
            return None
        layer = extreme_layer(chart, _LOAD, _LATEST)
        for name, growth in ((_LOAD, self.growth), (layer, self.growth_of_layer)):
            if name is not None and self._has_grown(chart, name, growth):
                return self._sighting(chart, name, layer)
        return None

    def _has_grown(self, chart: Chart, name: str, growth: float) -> bool:
        series, start = chart.series(name), chart.baseline(name)
        if start is None:
            return False
        bar = max(
            1 + growth * (start.level - 1), start.level + self.spreads * start.spread, self.least
        )
        return series.last >= bar and series.level(_LATEST) >= bar

    def _sighting(self, chart: Chart, name: str, layer: str | None) -> Sighting:
        start, level = chart.baseline(name), chart.series(name).level(_LATEST)
        where = f" of layer {layer_of(name)}" if name != _LOAD else ""
        text = f"the busiest expert{where} takes {level:.1f} times the mean load"
        if start is not None:
            text += f", {start.level:.1f} at the start"
        if name == _LOAD and layer is not None:
            text += f"; layer {layer_of(layer)} is the most uneven"
        return Sighting("warning", text, cite_all(chart, _LOAD, layer, _ENTROPY))
