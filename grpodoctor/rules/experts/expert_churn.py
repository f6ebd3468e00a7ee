"""MOE002."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.expert_routing import (
    extreme_layer,
    flip_remedies,
    layer_number,
    tolerated_by,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_CHURN = "experts/churn_update"
_LATEST = 5
"""Readings that make the level; routing is measured every few steps only."""


class ExpertChurn(Rule):
    """The updates of a step change which experts the same tokens activate.

    What it sees:
        For the same tokens, the share of experts that are active before a batch's updates but not
        after them. The rule reports a share that is large or far above its starting value. The
        evidence names the layer with the largest share.

    Why it matters:
        The importance ratio of a token then compares two sets of weights instead of two states of
        one set. The ratio leaves the clip bounds because of routing instead of learning. Some
        tokens lose their gradient to the clip, and others keep one that should be clipped.
        Published runs with token-level clipping do not converge under such churn.

    Evidence it needs:
        `experts/churn_update`: the routing of some responses before and after the updates. The
        bundled trainer measures it every five steps; `grpodoctor probe` compares two checkpoints.

    Remedies:
        An importance ratio of whole responses (GSPO); routing replay during the updates; smaller
        steps.

    When it is wrong:
        With routing replay, or with a loss that tolerates churn, the finding is `info`. A high
        share in the first steps of a warm-up means little; the rule uses the median of five
        readings.

    References:
        Group Sequence Policy Optimization, arXiv 2507.18071, section 5.3: about a tenth of the
        experts after each update of a 30B model with 48 layers.
    """

    code: ClassVar[str] = "MOE002"
    name: ClassVar[str] = "expert-churn"
    condition: ClassVar[Condition] = "expert-instability"
    former_names: ClassVar[tuple[str, ...]] = ("experts-churn",)
    summary: ClassVar[str] = "Each update routes many of the same tokens to different experts."
    inputs: ClassVar[tuple[Need, ...]] = (_CHURN,)
    remedies: ClassVar[tuple[str, ...]] = ("gspo", "routing-replay", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = ("GSPO, arXiv 2507.18071, section 5.3",)

    clearance: ClassVar[int] = 2 * _LATEST

    warning_share: float = 0.05
    """Share for a warning: half of the share that made token clipping fail at 30B. Healthy small
    runs show .002, a learning rate thirty times too high .08 to .13."""
    growth_factor: float = 4.0
    """Multiple of the starting value."""
    min_grown_share: float = 0.015
    """Minimum share that counts as grown; no healthy run has reached .01."""
    min_spreads: float = 6.0
    """Growth as a multiple of the starting value's spread; few tokens make a noisy count."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the published one and with the starting value."""
        series, start = chart.series(_CHURN), chart.baseline(_CHURN)
        if series.last < self.min_grown_share / 2:
            return None
        level = series.level(_LATEST)
        threshold = self.warning_share
        if start is not None:
            grown = max(
                self.growth_factor * start.level, start.level + self.min_spreads * start.spread
            )
            threshold = min(threshold, max(self.min_grown_share, grown))
        if not level >= threshold:
            return None
        text = f"Updates change {level:.1%} of the activated experts"
        if start is not None and level >= 2 * start.level:
            text += f", up from {start.level:.1%}"
        layer = extreme_layer(chart, _CHURN, _LATEST)
        if layer is not None:
            text += f", most in layer {layer_number(layer)}"
        tolerated = tolerated_by(chart)
        if tolerated:
            text += f"; {tolerated} tolerates it"
        return Sighting(
            "info" if tolerated else "warning",
            f"{text}.",
            cite_all(chart, _CHURN, layer, "clip/low_rate", "clip/high_rate"),
            flip_remedies(chart, between_engines=False),
        )
