"""MOE004."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import extreme_layer, layer_number
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ENTROPY = "experts/router_entropy"
_LOAD = "experts/load_max_over_mean"
_LATEST = 5
"""Readings that make the level; routing is measured every few steps only."""


class LowRouterEntropy(Rule):
    """The routers have become nearly deterministic.

    What it sees:
        A mean router entropy far below its starting value. The finding is a warning if the expert
        load becomes uneven as well, and `info` if it does not.

    Why it matters:
        A router with a nearly one-hot gate passes no gradient to the experts that it does not
        choose and hardly any to itself. The routing is then frozen, whether it is good or bad.

    Evidence it needs:
        `experts/router_entropy`. Optional, to judge its effect: `experts/load_max_over_mean`.

    Remedies:
        Resume from a checkpoint before the fall, with balanced or frozen routers. A lower learning
        rate slows it down.

    When it is wrong:
        Experts that specialize have confident routers and an even load, which is the purpose of a
        mixture of experts. The metric is the entropy over all experts, even in a model that
        normalizes only the weights of the chosen ones.

    References:
        ST-MoE, arXiv 2202.08906, section 3 (instability of routers and what bounds their logits).
    """

    code: ClassVar[str] = "MOE004"
    name: ClassVar[str] = "low-router-entropy"
    condition: ClassVar[Condition] = "expert-instability"
    former_names: ClassVar[tuple[str, ...]] = ("routers-harden",)
    summary: ClassVar[str] = "The routers have become nearly deterministic."
    inputs: ClassVar[tuple[Need, ...]] = (_ENTROPY,)
    remedies: ClassVar[tuple[str, ...]] = ("balance-experts", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = ("ST-MoE, arXiv 2202.08906",)

    remaining_share: float = 0.5
    """Remaining share of the initial entropy. Healthy small runs keep .95 or more; a run ruined by
    its learning rate kept .75."""
    min_spreads: float = 2.0
    """Fall as a multiple of the starting value's spread: small, since entropy that falls from the
    first step on widens the spread."""
    uneven_factor: float = 1.2
    """Multiple of the initial excess load above which the load counts as uneven."""
    min_readings: int = 15
    """Minimum readings: the starting value and some later ones."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the starting value, then check the load."""
        series, start = chart.series(_ENTROPY), chart.baseline(_ENTROPY)
        if start is None or len(series) < self.min_readings:
            return None
        threshold = min(
            self.remaining_share * start.level, start.level - self.min_spreads * start.spread
        )
        level = series.level(_LATEST)
        if series.last > threshold or not level <= threshold:
            return None
        layer = extreme_layer(chart, _ENTROPY, _LATEST, lowest=True)
        text = f"Router entropy fell from {start.level:.2g} to {level:.2g} nats"
        if layer is not None:
            text += f", lowest in layer {layer_number(layer)}"
        is_uneven = self._is_load_uneven(chart)
        text += "." if is_uneven else "; the load is as even as before."
        evidence = cite_all(chart, _ENTROPY, layer, _LOAD)
        remedies = None if is_uneven else ()
        return Sighting("warning" if is_uneven else "info", text, evidence, remedies)

    def _is_load_uneven(self, chart: Chart) -> bool:
        series, start = chart.series(_LOAD), chart.baseline(_LOAD)
        if start is None:
            return False
        threshold = max(
            1 + self.uneven_factor * (start.level - 1),
            start.level + self.min_spreads * start.spread,
        )
        return series.level(_LATEST) >= threshold
