"""MOE004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import extreme_layer, layer_of
from grpodoctor.runs.chart import Chart

_ENTROPY = "experts/router_entropy"
_LOAD = "experts/load_max_over_mean"
_LATEST = 5
"""Readings that make the level: routers are looked at every few steps only."""


@dataclass(frozen=True)
class LowRouterEntropy(Rule):
    """The routers become certain of their choice.

    What it sees:
        The mean entropy of the routers at a fraction of the run's own start. Beside a load that
        concentrates it is a warning; with the load as even as ever it is a note.

    Why it matters:
        A router whose gate is nearly one-hot passes no gradient to the experts that it does not
        choose and hardly any to itself: the choice is frozen, right or wrong.

    Evidence it needs:
        `experts/router_entropy`; to judge it also `experts/load_max_over_mean`.

    Remedies:
        Balance or freeze the routers, from a checkpoint before it began; a lower learning rate
        slows it.

    When it is wrong:
        Experts that specialise have certain routers and an even load, which is what a mixture is
        for. Where only the chosen experts' weights are normalised, the entropy over all experts is
        still the one that is read.

    References:
        ST-MoE, arXiv 2202.08906, section 3 (instability of routers and what bounds their logits).
    """

    code: ClassVar[str] = "MOE004"
    name: ClassVar[str] = "low-router-entropy"
    former_names: ClassVar[tuple[str, ...]] = ("routers-harden",)
    summary: ClassVar[str] = "The routers become certain of their choice."
    inputs: ClassVar[tuple[Need, ...]] = (_ENTROPY,)
    remedies: ClassVar[tuple[str, ...]] = ("balance-experts", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = ("ST-MoE, arXiv 2202.08906",)

    left: float = 0.5
    """Share of the start's entropy that is left. Healthy small runs keep .95 or more; a run ruined
    by its learning rate kept .75."""
    spreads: float = 2.0
    """Fall in spreads of the start: few, since one that falls from the first step on spreads it."""
    uneven: float = 1.2
    """Times the start's excess load from which the load counts as concentrating beside it."""
    readings: int = 15
    """Fewest readings: a start and some that are not of it."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the start, then look at the load."""
        series, start = chart.series(_ENTROPY), chart.baseline(_ENTROPY)
        if start is None or len(series) < self.readings:
            return None
        bar = min(self.left * start.level, start.level - self.spreads * start.spread)
        level = series.level(_LATEST)
        if series.last > bar or not level <= bar:
            return None
        layer = extreme_layer(chart, _ENTROPY, _LATEST, lowest=True)
        text = f"the routers' entropy is {level:.2g} nats, {start.level:.2g} at the start"
        if layer is not None:
            text += f", lowest in layer {layer_of(layer)}"
        concentrates = self._concentrates(chart)
        if not concentrates:
            text += "; the load is no more uneven than it was"
        evidence = cite_all(chart, _ENTROPY, layer, _LOAD)
        remedies = None if concentrates else ()
        return Sighting("warning" if concentrates else "info", text, evidence, remedies)

    def _concentrates(self, chart: Chart) -> bool:
        series, start = chart.series(_LOAD), chart.baseline(_LOAD)
        if start is None:
            return False
        bar = max(1 + self.uneven * (start.level - 1), start.level + self.spreads * start.spread)
        return series.level(_LATEST) >= bar
