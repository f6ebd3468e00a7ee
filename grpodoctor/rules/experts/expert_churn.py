"""MOE002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import (
    borne_by,
    extreme_layer,
    layer_of,
    remedies_of_flips,
)
from grpodoctor.runs.chart import Chart

_CHURN = "experts/churn_update"
_LATEST = 5
"""Readings that make the level: routers are looked at every few steps only."""


@dataclass(frozen=True)
class ExpertChurn(Rule):
    """The updates of a step change which experts the same tokens activate.

    What it sees:
        The share of the experts activated before the updates of a batch that are not activated
        after them, by the same tokens: where it is large, or has grown far beyond the run's own
        start. The evidence names the layer in which it is largest.

    Why it matters:
        The ratio of a token compares two sets of weights and not two states of one. It leaves the
        clip's bounds for its routing and not for what was learnt, and tokens lose their gradient,
        or keep one they should lose. Published runs with a clip of tokens do not converge with it.

    Evidence it needs:
        `experts/churn_update`: the routing of some responses before and after the updates. The
        bundled trainer looks every five steps; `grpodoctor probe` compares two checkpoints.

    Remedies:
        A ratio of whole responses (GSPO); replaying the routing over the updates; smaller steps.

    When it is wrong:
        With a loss that bears it, or with a replay, it is a note. A high share in the first steps
        of a warm-up says little; it is judged over five readings.

    References:
        Group Sequence Policy Optimization, arXiv 2507.18071, section 5.3: about a tenth of the
        experts after each update of a 30B model with 48 layers.
    """

    code: ClassVar[str] = "MOE002"
    name: ClassVar[str] = "expert-churn"
    former_names: ClassVar[tuple[str, ...]] = ("experts-churn",)
    summary: ClassVar[str] = "Each update sends many of the same tokens to other experts."
    inputs: ClassVar[tuple[Need, ...]] = (_CHURN,)
    remedies: ClassVar[tuple[str, ...]] = ("gspo", "routing-replay", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = ("GSPO, arXiv 2507.18071, section 5.3",)

    clearance: ClassVar[int] = 2 * _LATEST

    many: float = 0.05
    """Share that is a warning: half of what made a clip of tokens fail at 30B. Healthy small runs
    show .002, a learning rate thirty times too high .08 to .13."""
    growth: float = 4.0
    """Times the run's own start."""
    least: float = 0.015
    """Least share that counts as grown; no healthy run has reached .01."""
    spreads: float = 6.0
    """Growth in spreads of the start: the churn of few tokens is a small count."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the published one and with the start."""
        series, start = chart.series(_CHURN), chart.baseline(_CHURN)
        if series.last < self.least / 2:
            return None
        level = series.level(_LATEST)
        bar = self.many
        if start is not None:
            grown = max(self.growth * start.level, start.level + self.spreads * start.spread)
            bar = min(bar, max(self.least, grown))
        if not level >= bar:
            return None
        text = f"the updates of a step change {level:.1%} of the experts"
        if start is not None and level >= 2 * start.level:
            text += f", {start.level:.1%} at the start"
        layer = extreme_layer(chart, _CHURN, _LATEST)
        if layer is not None:
            text += f", most in layer {layer_of(layer)}"
        bearer = borne_by(chart)
        if bearer:
            text += f"; {bearer} bears it"
        return Sighting(
            "info" if bearer else "warning",
            text,
            cite_all(chart, _CHURN, layer, "clip/low_rate", "clip/high_rate"),
            remedies_of_flips(chart, between_engines=False),
        )
