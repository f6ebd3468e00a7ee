"""MOE001."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import compare_with_probe
from grpodoctor.rules.shared.expert_routing import extreme_layer, flip_remedies, layer_number
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import PROBED

_CHURN = "experts/churn_engine"
_TOKENS = "experts/tokens_with_any_flip"
_DIFFERENCE = "mismatch/prob_diff_mean"


class ExpertRoutingMismatch(Rule):
    """The sampler and the learner route the same tokens to different experts.

    What it sees:
        The share of expert assignments that differ between sampler and learner, averaged over
        tokens and layers, and the share of tokens with a different expert in any layer. A finding
        is raised if these are large and the probabilities differ as well, or if they are far above
        their starting value. The evidence names the layer that differs most.

    Why it matters:
        A router ranks a few logits. If two logits are close, a rounding error sends the token to
        another expert, and its probability changes far more than rounding would change it in a
        dense model. Corrections see an importance ratio far from 1 and drop or cap it, and the
        gradient goes to experts that did not produce the token.

    Evidence it needs:
        `experts/churn_engine` or `experts/tokens_with_any_flip`, which require the routed experts
        of both engines; `grpodoctor probe` measures them for one checkpoint. Optional, to judge
        their effect: `mismatch/prob_diff_mean`.

    Remedies:
        Replay the sampler's routing in the learner; run the sampler's routers and output head in
        the learner's precision; use importance ratios of whole responses, which tolerate single
        flips.

    When it is wrong:
        The share of tokens with any flip grows with the number of layers: even if each layer agrees
        on 99% of the tokens, most tokens differ in at least one of a hundred layers. This share
        therefore raises a finding by itself only if nearly all tokens differ. Two experts with
        equal logits are interchangeable, so check the difference in probability as well.

    References:
        Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers (R3),
        arXiv 2510.11370; Megatron-LM issue 4168, where three of three runs collapsed.
    """

    code: ClassVar[str] = "MOE001"
    name: ClassVar[str] = "expert-routing-mismatch"
    condition: ClassVar[Condition] = "expert-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("experts-flip-between-engines",)
    summary: ClassVar[str] = "Sampler and learner route the same tokens to different experts."
    inputs: ClassVar[tuple[Need, ...]] = ((_CHURN, _TOKENS),)
    remedies: ClassVar[tuple[str, ...]] = ("routing-replay", "higher-precision-sampler", "gspo")
    references: ClassVar[tuple[str, ...]] = ("R3, arXiv 2510.11370",)

    info_share: float = 0.015
    """Share of expert assignments for `info`. bf16 against float32 shows .002 in small runs, with
    .008 as the highest single reading."""
    warning_share: float = 0.03
    """Share for a warning, if it does harm: int4 weights flip .03 to .06."""
    harmful_difference: float = 0.02
    """Mean difference in probability above which it does harm, as for MIS001. Below it, small runs
    with int4 weights learned as well as any. Where it is not logged, the rule assumes harm."""
    growth_factor: float = 4.0
    """Multiple of the starting value, for shares above `info_share`; in sound pairs the share stays
    constant."""
    warning_token_share: float = 0.9
    """Share of tokens with any flip that is a warning by itself: published runs collapsed at
    .94."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the share of expert assignments, then that of tokens."""
        judged = self._by_churn(chart) or self._by_tokens(chart)
        if judged is None:
            return None
        severity, text = judged
        _, probe_text = compare_with_probe(chart, _CHURN, chart.series(_CHURN).level(RECENT))
        layer = extreme_layer(chart, _CHURN, RECENT)
        if probe_text:
            text += probe_text
        elif layer is not None and chart.series(layer).level(RECENT) > 0:
            text += f", most in layer {layer_number(layer)}"
        evidence = cite_all(chart, _CHURN, f"{_CHURN}/{PROBED}", _TOKENS, layer, _DIFFERENCE)
        remedies = flip_remedies(chart, between_engines=True)
        return Sighting(severity, f"{text}.", evidence, remedies)

    def _by_churn(self, chart: Chart) -> tuple[Severity, str] | None:
        series, start = chart.series(_CHURN), chart.baseline(_CHURN)
        if not chart.is_fresh(_CHURN) or series.last < self.info_share / 2:
            return None
        level = series.level(RECENT)
        if not level >= self.info_share:
            return None
        text = f"{level:.1%} of expert assignments differ between engines"
        grown = start is not None and level >= self.growth_factor * start.level
        if grown and start is not None:
            text += f", up from {start.level:.1%}"
        harmful = level >= self.warning_share and self._differs(chart)
        return ("warning" if grown or harmful else "info"), text

    def _differs(self, chart: Chart) -> bool:
        difference = chart.series(_DIFFERENCE)
        return not len(difference) or difference.level(2 * RECENT) >= self.harmful_difference

    def _by_tokens(self, chart: Chart) -> tuple[Severity, str] | None:
        series = chart.series(_TOKENS)
        if not chart.is_fresh(_TOKENS) or not series.level(RECENT) >= self.warning_token_share:
            return None
        share = series.level(RECENT)
        return "warning", f"{share:.0%} of tokens use a different expert in at least one layer"
