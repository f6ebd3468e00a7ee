"""OPT005."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.run_health import RECENT, is_solved, outcome_metric
from grpodoctor.rules.shared.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_CHANGED = "optimizer/changed_weight_rate"
_NORM = "optimizer/update_norm_ratio"
_KLS = ("kl/reference/k3", "kl/reference/k1", "kl/reference/k2")
_GRADIENT = "optimizer/grad_norm"
_EFFECTIVE, _ZERO_VARIANCE = "groups/effective_rate", "groups/zero_variance_rate"


class UpdatesTooSmall(Rule):
    """The gradient is healthy, but the policy hardly moves and the reward is flat.

    What it sees:
        A gradient above zero over many steps, no rise of any outcome, and one of: almost no weight
        changes in a step; the weights change by a tiny share of their norm; the policy stays within
        a tiny KL divergence of the reference.

    Why it matters:
        A bf16 weight has eight bits of mantissa, so a change below 1/256 of it is rounded away. At
        a learning rate of 1e-6 that is nearly every change: the optimizer works, and the weights
        stay. A rate that is too low, or a schedule that has ended, looks the same.

    Evidence it needs:
        `optimizer/grad_norm`, and `optimizer/changed_weight_rate`, `optimizer/update_norm_ratio` or
        a `kl/reference`.

    Remedies:
        Keep the weights that the optimizer updates in float32; raise the learning rate, more for
        LoRA than for full fine-tuning.

    When it is wrong:
        Reinforcement learning in bf16 changes few weights per step in runs that go well, too; a
        rising reward therefore always ends the finding. Flat rewards have other causes as well: see
        GRP001, GRP002 and REW004.

    References:
        verl issue 5308 (full fine-tuning in bf16 falls behind; bf16 weights suspected);
        Reinforcement Learning Finetunes Small Subnetworks, arXiv 2505.11711.
    """

    code: ClassVar[str] = "OPT005"
    name: ClassVar[str] = "updates-too-small"
    condition: ClassVar[Condition] = "undersized-updates"
    summary: ClassVar[str] = "The gradient is healthy, but the policy hardly moves."
    inputs: ClassVar[tuple[Need, ...]] = (_GRADIENT, (_CHANGED, _NORM, *_KLS))
    remedies: ClassVar[tuple[str, ...]] = ("float32-weights", "raise-learning-rate")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/verl-project/verl/issues/5308",
        "arXiv 2505.11711",
    )
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 4
    cadence: ClassVar[int] = 10

    max_changed: float = 0.02
    """Share of weights that change in a step. float32 weights all change; in bf16 at a rate of 1e-6
    a few percent of the smallest weights do."""
    max_norm_ratio: float = 1e-7
    """Change over the norm of the weights: float32 itself resolves 6e-8."""
    max_kl: float = 5e-4
    """Nats per token after fifty readings. Runs that learn reach .002 to .1 by then."""
    min_readings: int = 50
    """Readings over which nothing has risen."""
    min_effective: float = 0.2
    """Share of groups with reward variance below which the groups explain the flat reward."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require a gradient and a flat outcome, then look for signs of lost updates."""
        gradient = chart.series(_GRADIENT)
        if len(gradient) < self.min_readings or not gradient.level(RECENT) > 0:
            return None
        sign = self._sign(chart)
        if sign is None or outcome_has_risen(chart) is not False or is_solved(chart):
            return None
        if not self._has_signal(chart):
            return None
        text = (
            f"{sign} without a rise in reward; the gradient norm is {gradient.level(RECENT):.2g}."
        )
        names = (_CHANGED, _NORM, *_KLS, _GRADIENT, outcome_metric(chart))
        return Sighting("warning", text, cite_all(chart, *names))

    def _has_signal(self, chart: Chart) -> bool:
        effective, flat = chart.series(_EFFECTIVE), chart.series(_ZERO_VARIANCE)
        if len(effective):
            return effective.level(2 * RECENT) >= self.min_effective
        return not len(flat) or 1 - flat.level(2 * RECENT) >= self.min_effective

    def _sign(self, chart: Chart) -> str | None:
        changed, norm = chart.series(_CHANGED), chart.series(_NORM)
        if chart.is_fresh(_CHANGED) and changed.level(RECENT) <= self.max_changed:
            return f"Only {changed.level(RECENT):.2%} of the weights change per step"
        if chart.is_fresh(_NORM) and norm.level(RECENT) <= self.max_norm_ratio:
            return f"Updates change the weights by {norm.level(RECENT):.1e} of their norm"
        for name in _KLS:
            kl = chart.series(name)
            if not chart.is_fresh(name) or len(kl) < self.min_readings:
                continue
            # A policy that is the reference itself is not evidence: some frameworks log zeros.
            if 0 < abs(kl.level(RECENT)) <= self.max_kl:
                return f"The policy is only {kl.level(RECENT):.1e} nats from the reference"
        return None
