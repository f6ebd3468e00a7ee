"""KLD001."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import RECOMPUTE
from grpodoctor.rules.shared.health.run_health import RECENT, current_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_KL = "kl/old_policy/k3"
_SIGNED = "kl/old_policy/k1"
_CLIPPED = ("clip/any_rate", "clip/high_rate", "clip/low_rate")
_REFERENCE = ("kl/reference/k3", "kl/reference/k1", "kl/reference/k2")
_UPDATES = "updates_per_batch"
_RATIO_OFF = "mismatch/first_ratio_off"


class LargePolicyUpdates(Rule):
    """The updates on one batch move the policy far away from the policy that sampled the batch.

    What it sees:
        The KL divergence between the updated policy and the policy at the start of the batch, at a
        level at which every observed run collapsed.

    Why it matters:
        The advantages describe responses of the policy that sampled. The further the policy has
        moved, the less they apply, and each batch then undoes what the last one taught. The
        divergence is high from the first steps on, before reward or entropy change. It is also
        visible where nothing is clipped because the clip is off.

    Evidence it needs:
        `kl/old_policy/k3` or `kl/old_policy/k1`. Optional: a clip fraction.

    Remedies:
        Lower the learning rate, make fewer updates per batch, keep the clip on.

    When it is wrong:
        A few tokens can dominate the estimate, so the rule uses the median over steps. If the ratio
        uses the sampler's log-probabilities, the divergence exists before any update; the finding
        then says so, and MIS002 reports the cause. A learning rate that is ten times too high stays
        below the threshold (at .02) and ruins a run slowly; REW002 reports that. The signed
        estimate (k1) also counts tokens that the policy never sampled, such as demonstrations or
        prefixes of another policy. The rule therefore reports nothing from it if almost nothing is
        clipped, if each batch gets a single update, or if the policy has stayed nearer to the
        reference than this estimate of a single batch; without any of these readings, `info`.

    References:
        PPO, arXiv 1707.06347; Schulman, Approximating KL Divergence, 2020.
    """

    code: ClassVar[str] = "KLD001"
    name: ClassVar[str] = "large-policy-updates"
    condition: ClassVar[Condition] = "large-kl"
    former_names: ClassVar[tuple[str, ...]] = ("policy-moves-far-in-one-batch",)
    summary: ClassVar[str] = "The updates on one batch move the policy too far."
    inputs: ClassVar[tuple[Need, ...]] = ((_KL, _SIGNED),)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 1707.06347",
        "Schulman, Approximating KL Divergence, 2020",
    )
    clearance: ClassVar[int] = 2 * RECENT

    warning_kl: float = 0.05
    """Nats per token. Runs that learn stay below .02, even with sixteen updates per batch and
    without a clip; runs that collapse show .05 to .5."""
    min_clip_share: float = 0.05
    """Share of clipped tokens below which a few tokens explain a signed mean of that size. At .05
    nats half of the ratios are outside a band of .2, and half of those are clipped."""
    ratio_off_share: float = 0.01
    """Share of ratios that differ from 1 before any update, above which the updates are not the
    cause; see MIS002."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the level that runs survive."""
        name = current_metric(chart, (_KL, _SIGNED))
        series = chart.series(name)
        if series.last < self.warning_kl / 2:
            return None
        level = series.level(RECENT)
        if not level >= self.warning_kl:
            return None
        is_contradicted = self._is_contradicted(chart, level) if name == _SIGNED else False
        if is_contradicted:
            return None
        text = f"The updates on one batch move the policy by {level:.2g} nats per token"
        evidence = cite_all(chart, name, _RATIO_OFF)
        if (
            chart.is_fresh(_RATIO_OFF)
            and chart.series(_RATIO_OFF).level(RECENT) > self.ratio_off_share
        ):
            text = f"{text}; ratios differ from 1 before them (MIS002)."
            return Sighting("warning", text, evidence, (RECOMPUTE, *self.remedies))
        if is_contradicted is None:
            return Sighting("info", f"{text}; only the signed estimate is logged.", evidence)
        return Sighting("warning", f"{text}.", evidence)

    def _is_contradicted(self, chart: Chart, level: float) -> bool | None:
        """Whether other readings contradict so large a move; None if there are none."""
        if chart.knobs.get(_UPDATES) == 1 or chart.value(_UPDATES) == 1:
            return True  # before the only update, the two policies are equal
        clipped = [chart.series(name).level(RECENT) for name in _CLIPPED if chart.is_fresh(name)]
        drift = [chart.series(name).level(RECENT) for name in _REFERENCE if chart.is_fresh(name)]
        if not clipped and not drift:
            return None
        is_hardly_clipped = bool(clipped) and max(clipped) < self.min_clip_share
        return is_hardly_clipped or (bool(drift) and max(drift) < level)
