"""MOE003."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import extreme_layer, layer_number
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_LOAD = "experts/load_max_over_mean"
_ENTROPY = "experts/router_entropy"
_LATEST = 5
"""Readings that make the level; routing is measured every few steps only."""


class ExpertLoadImbalance(Rule):
    """A few experts receive a growing share of the tokens.

    What it sees:
        The busiest expert's load divided by the mean load of all experts has risen above its
        starting value, either averaged over the layers or in a single layer.

    Why it matters:
        Experts without tokens learn nothing, so the model loses their capacity. Where experts are
        spread over devices, the busiest ones determine the time of each step. The policy gradient
        does not correct the imbalance.

    Evidence it needs:
        `experts/load_max_over_mean` for at least fifteen readings. Optional: the same metric per
        layer.

    Remedies:
        Resume from a checkpoint before the imbalance, with balanced or frozen routers. A lower
        learning rate slows it down.

    When it is wrong:
        The load depends on the tokens: it changes when prompts or lengths change. A narrow task
        uses few experts from the start, so the rule compares with the starting value and not with
        1. In a model with few experts the ratio cannot exceed their number divided by the experts
        per token.

    References:
        Switch Transformers, arXiv 2101.03961, section 2.2; verl pull request 6853, which logs the
        balance violation.
    """

    code: ClassVar[str] = "MOE003"
    name: ClassVar[str] = "expert-load-imbalance"
    condition: ClassVar[Condition] = "expert-instability"
    former_names: ClassVar[tuple[str, ...]] = ("expert-load-concentrates",)
    summary: ClassVar[str] = "A few experts receive a growing share of the tokens."
    inputs: ClassVar[tuple[Need, ...]] = (_LOAD,)
    remedies: ClassVar[tuple[str, ...]] = ("balance-experts", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = ("Switch Transformers, arXiv 2101.03961",)

    growth_factor: float = 1.3
    """Multiple of the initial excess over an even load. Healthy small runs stay below 1.05, a run
    ruined by its learning rate reaches 1.1."""
    layer_growth_factor: float = 1.8
    """The same for a single layer; higher, because one of many layers is always the worst."""
    min_load: float = 2.0
    """Minimum load that matters: below it the busiest expert has less than twice its share."""
    min_spreads: float = 6.0
    """Growth as a multiple of the starting value's spread."""
    min_readings: int = 15
    """Minimum readings: the starting value and some later ones."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the mean of the layers, then the worst layer."""
        if len(chart.series(_LOAD)) < self.min_readings:
            return None
        layer = extreme_layer(chart, _LOAD, _LATEST)
        for name, growth in ((_LOAD, self.growth_factor), (layer, self.layer_growth_factor)):
            if name is not None and self._has_grown(chart, name, growth):
                return self._sighting(chart, name, layer)
        return None

    def _has_grown(self, chart: Chart, name: str, growth: float) -> bool:
        series, start = chart.series(name), chart.baseline(name)
        if start is None:
            return False
        threshold = max(
            1 + growth * (start.level - 1),
            start.level + self.min_spreads * start.spread,
            self.min_load,
        )
        return series.last >= threshold and series.level(_LATEST) >= threshold

    def _sighting(self, chart: Chart, name: str, layer: str | None) -> Sighting:
        start, level = chart.baseline(name), chart.series(name).level(_LATEST)
        where = f" of layer {layer_number(name)}" if name != _LOAD else ""
        text = f"The busiest expert{where} receives {level:.1f} times the mean load"
        if start is not None:
            text += f", up from {start.level:.1f}"
        if name == _LOAD and layer is not None:
            text += f"; layer {layer_number(layer)} is the worst"
        return Sighting("warning", f"{text}.", cite_all(chart, _LOAD, layer, _ENTROPY))
