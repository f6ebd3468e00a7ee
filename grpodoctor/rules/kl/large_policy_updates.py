"""KLD001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import RECOMPUTE
from grpodoctor.rules.shared.run_health import RECENT, fresh_of
from grpodoctor.runs.chart import Chart

_KL = "kl/old_policy/k3"
_SIGNED = "kl/old_policy/k1"
_CLIPPED = ("clip/any_rate", "clip/high_rate", "clip/low_rate")
_OFF = "mismatch/first_ratio_off"


@dataclass(frozen=True)
class LargePolicyUpdates(Rule):
    """The updates on one batch carry the policy far away from the one that sampled it.

    What it sees:
        The divergence between the policy while it is updated and the one that began the batch, at a
        level that no run was seen to survive.

    Why it matters:
        The advantages were measured on answers of the policy that sampled. The further it has moved
        the less they say, and each batch then destroys what the last one taught. It shows in the
        first steps, before reward or entropy do, and also where nothing is clipped because the clip
        is off.

    Evidence it needs:
        `kl/old_policy/k3`, or `kl/old_policy/k1`, better with a clip fraction.

    Remedies:
        Lower the learning rate, make fewer updates on each batch, keep the clip on.

    When it is wrong:
        The estimate is a mean with a heavy tail: a few tokens can carry it, so a median of steps is
        taken. With the sampler's log-probabilities in the ratio the divergence is there before any
        update; the finding says so, and MIS002 is the cause. A learning rate ten times too high
        stays below the bar (.02) and ruins a run slowly; REW002 sees that. The signed estimate
        counts tokens of a demonstration in the batch, which were never sampled; where next to
        nothing is clipped beside it, it is no finding.

    References:
        PPO, arXiv 1707.06347; Schulman, Approximating KL Divergence, 2020.
    """

    code: ClassVar[str] = "KLD001"
    name: ClassVar[str] = "large-policy-updates"
    former_names: ClassVar[tuple[str, ...]] = ("policy-moves-far-in-one-batch",)
    summary: ClassVar[str] = "The updates on one batch carry the policy too far."
    inputs: ClassVar[tuple[Need, ...]] = ((_KL, _SIGNED),)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 1707.06347",
        "Schulman, Approximating KL Divergence, 2020",
    )
    clearance: ClassVar[int] = 2 * RECENT

    far: float = 0.05
    """Nats per token. Runs that learn stay below .02, also with sixteen updates on a batch and
    without any clip; runs that collapse lie at .05 to .5."""
    clipped: float = 0.05
    """Share of tokens clipped without which a signed mean of that size is a few tokens' doing: at
    .05 nats half of the ratios lie outside a band of .2, and half of those are clipped."""
    off: float = 0.01
    """Share of ratios off 1 before any update from which it is not the updates' doing; see
    MIS002."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with what runs survive."""
        name = fresh_of(chart, (_KL, _SIGNED))
        series = chart.series(name)
        if series.last < self.far / 2:
            return None
        level = series.level(RECENT)
        if not level >= self.far or (name == _SIGNED and self._is_of_few(chart)):
            return None
        text = f"the updates on one batch move the policy by {level:.2g} nats per token"
        evidence = cite_all(chart, name, _OFF)
        if chart.is_fresh(_OFF) and chart.series(_OFF).level(RECENT) > self.off:
            text = f"{text}; ratios are off before the first update (MIS002)"
            return Sighting("warning", text, evidence, (RECOMPUTE, *self.remedies))
        return Sighting("warning", text, evidence)

    def _is_of_few(self, chart: Chart) -> bool:
        """Whether the clip, as far as it is recorded, speaks against so large a move."""
        shares = [chart.series(name).level(RECENT) for name in _CLIPPED if chart.is_fresh(name)]
        return bool(shares) and max(shares) < self.clipped
