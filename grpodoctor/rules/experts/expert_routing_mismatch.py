"""MOE001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import beside_probe
from grpodoctor.rules.shared.expert_routing import extreme_layer, layer_of, remedies_of_flips
from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.metrics import PROBED

_CHURN = "experts/churn_engine"
_TOKENS = "experts/tokens_with_any_flip"
_DIFFERENCE = "mismatch/prob_diff_mean"


@dataclass(frozen=True)
class ExpertRoutingMismatch(Rule):
    """The engine that samples sends tokens to other experts than the one that learns.

    What it sees:
        The share of the sampler's experts that are not the learner's for the same token, averaged
        over tokens and layers, and the share of tokens with any other expert in any layer: where
        they are large and the probabilities differ with them, or have grown far beyond the run's
        own start. The evidence names the layer that flips most.

    Why it matters:
        A router decides by the order of a few logits. A rounding error where two of them are close
        sends the token through other weights, and its probability jumps by more than precision
        explains anywhere else. Corrections see a ratio far from 1 and drop or cut it; the gradient
        goes to experts that did not produce the token.

    Evidence it needs:
        `experts/churn_engine` or `experts/tokens_with_any_flip`, which need the routed experts of
        both engines; `grpodoctor probe` measures them for one checkpoint. To judge their weight
        also `mismatch/prob_diff_mean`.

    Remedies:
        Replay the sampler's routing in the learner; give the sampler's routers and head the
        learner's precision; take ratios of whole responses, which bear single flips.

    When it is wrong:
        Tokens with any flip grow with the number of layers: a hundred layers that agree in 99 of
        100 cases each leave hardly a token untouched. That is why it alone decides only where
        nearly all are. Two experts with the same logit are as good as each other: look at the
        difference in probability beside it.

    References:
        Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers (R3),
        arXiv 2510.11370; Megatron-LM issue 4168, where three of three runs collapsed.
    """

    code: ClassVar[str] = "MOE001"
    name: ClassVar[str] = "expert-routing-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("experts-flip-between-engines",)
    summary: ClassVar[str] = "Sampler and learner send the same tokens to other experts."
    inputs: ClassVar[tuple[Need, ...]] = ((_CHURN, _TOKENS),)
    remedies: ClassVar[tuple[str, ...]] = ("routing-replay", "higher-precision-sampler", "gspo")
    references: ClassVar[tuple[str, ...]] = ("R3, arXiv 2510.11370",)

    some: float = 0.015
    """Share of the experts worth a note. bf16 against float32 shows .002 in small runs, with .008
    as the highest single reading."""
    many: float = 0.03
    """Share that is a warning if it does harm: int4 weights flip .03 to .06."""
    harm: float = 0.02
    """Mean difference in probability beside it from which it does, as for MIS001. Below, small runs
    with int4 weights learnt as well as any; where it is not recorded, harm is assumed."""
    growth: float = 4.0
    """Times the run's own start, beyond a note's share: a sound pair stays where it is."""
    tokens: float = 0.9
    """Share of tokens with any flip that is a warning by itself: published runs collapsed at
    .94."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the share of experts, then that of tokens."""
        seen = self._by_churn(chart) or self._by_tokens(chart)
        if seen is None:
            return None
        severity, text = seen
        text += beside_probe(chart, _CHURN, chart.series(_CHURN).level(RECENT))[1]
        layer = extreme_layer(chart, _CHURN, RECENT)
        if layer is not None and chart.series(layer).level(RECENT) > 0:
            text += f", most in layer {layer_of(layer)}"
        evidence = cite_all(chart, _CHURN, f"{_CHURN}/{PROBED}", _TOKENS, layer, _DIFFERENCE)
        return Sighting(severity, text, evidence, remedies_of_flips(chart, between_engines=True))

    def _by_churn(self, chart: Chart) -> tuple[Severity, str] | None:
        series, start = chart.series(_CHURN), chart.baseline(_CHURN)
        if not chart.is_fresh(_CHURN) or series.last < self.some / 2:
            return None
        level = series.level(RECENT)
        if not level >= self.some:
            return None
        text = f"{level:.1%} of the experts are others in the sampler than in the learner"
        grown = start is not None and level >= self.growth * start.level
        if grown and start is not None:
            text += f", {start.level:.1%} at the start"
        harmful = level >= self.many and self._differs(chart)
        return ("warning" if grown or harmful else "info"), text

    def _differs(self, chart: Chart) -> bool:
        difference = chart.series(_DIFFERENCE)
        return not len(difference) or difference.level(2 * RECENT) >= self.harm

    def _by_tokens(self, chart: Chart) -> tuple[Severity, str] | None:
        series = chart.series(_TOKENS)
        if not chart.is_fresh(_TOKENS) or not series.level(RECENT) >= self.tokens:
            return None
        text = (
            f"{series.level(RECENT):.0%} of the tokens go to another expert in at least one layer "
            "in the sampler than in the learner"
        )
        return "warning", text
