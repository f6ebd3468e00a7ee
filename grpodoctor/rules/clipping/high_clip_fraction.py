"""CLP001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import RECOMPUTE
from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.losses import traits_of

_LOW = "clip/low_rate"
_HIGH = "clip/high_rate"
_ANY = "clip/any_rate"
_KL = "kl/old_policy/k3"
_OFF = "mismatch/first_ratio_off"


@dataclass(frozen=True)
class HighClipFraction(Rule):
    """The clip stops the gradient of a large share of the tokens.

    What it sees:
        The clipped shares of both sides together: a tenth of the tokens, or less of them where the
        policy also moves far within one batch, or a multiple of the run's own start.

    Why it matters:
        A clipped token teaches nothing, and a batch of which much is clipped has been used for
        longer than it is good for: too many updates, or steps too large. If the high side does
        nearly all of it, the tokens that rise are the rare ones: exploration is what is clipped.

    Evidence it needs:
        `clip/low_rate`, `clip/high_rate`; or `clip/any_rate` from logs that do not tell the sides
        apart. Better with `kl/old_policy/k3`.

    Remedies:
        Fewer updates on each batch, a lower learning rate; a higher upper clip if that side does
        most of it.

    When it is wrong:
        Losses that clip whole sequences clip far more and mean it: a seventh of the tokens is the
        published norm, so a higher bar is used where the loss is known to be one of those.
        Losses that bound a token's weight (CISPO, ScaleRL) leave it its gradient: their share is
        told as a note, and only where the policy moves far besides.
        Log-probabilities of the sampler in the ratio clip as many before any update is made; then
        the finding says so and leaves the advice to MIS002's remedies.

    References:
        PPO, arXiv 1707.06347; DAPO, arXiv 2503.14476; GSPO, arXiv 2507.18071; CISPO,
        arXiv 2506.13585.
    """

    code: ClassVar[str] = "CLP001"
    name: ClassVar[str] = "high-clip-fraction"
    former_names: ClassVar[tuple[str, ...]] = ("clip-saturation",)
    summary: ClassVar[str] = "The clip stops the gradient of a large share of the tokens."
    inputs: ClassVar[tuple[Need, ...]] = ((_HIGH, _LOW, _ANY),)
    remedies: ClassVar[tuple[str, ...]] = ("fewer-updates", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 1707.06347",
        "arXiv 2503.14476",
        "arXiv 2507.18071",
        "arXiv 2506.13585",
    )

    share: float = 0.1
    """Share of tokens. Healthy runs clip below .01, 16 cautious updates on a batch .034."""
    share_with_drift: float = 0.03
    """Share that suffices where the policy also moves far: small runs that over-update their
    batches and lose a third of their accuracy clip .045 at a KL of .02."""
    drift: float = 0.01
    """KL to the old policy, nats per token. Healthy .001, with 16 cautious updates .004."""
    growth: float = 5.0
    """Times the start."""
    off: float = 0.01
    """Share of ratios off 1 before any update from which the clip is not the updates' doing: 0 in
    health, see MIS002."""
    sequence_share: float = 0.3
    """The bar for those: twice the published share of .15. Even more does no harm while the
    policy hardly moves: at the paper's bounds the built-in model clips .4 at 2e-5 nats a token."""

    def examine(self, chart: Chart) -> RuleResult:
        """Add up both sides, and look at the drift beside them."""
        sides = [name for name in (_LOW, _HIGH) if chart.is_fresh(name)]
        sides = sides or [name for name in (_ANY,) if chart.is_fresh(name)]
        if sum(chart.series(name).last for name in sides) < self.share_with_drift / 2:
            return None
        levels = {name: chart.series(name).level(RECENT) for name in sides}
        clipped = sum(levels.values())
        reason = self._reason(chart, sides, clipped)
        if reason is None:
            return None
        if traits_of(chart.knobs.get("loss")).bounds_weights:
            text = f"the weights of {clipped:.1%} of the tokens are at their bound, {reason}"
            return Sighting("info", text, cite_all(chart, *sides, _KL))
        whole = traits_of(chart.knobs.get("loss")).ratio_per_response
        text = f"the clip stops {clipped:.1%} of the {'responses' if whole else 'tokens'}, {reason}"
        if chart.is_fresh(_OFF) and chart.series(_OFF).level(RECENT) > self.off:
            text = f"{text}; ratios are off before the first update (MIS002)"
            evidence = cite_all(chart, *sides, _KL, _OFF)
            return Sighting("warning", text, evidence, (RECOMPUTE, *self.remedies))
        upper = levels.get(_HIGH, 0.0) > 0.8 * clipped
        remedies = ("clip-higher", *self.remedies) if upper else None
        return Sighting("warning", text, cite_all(chart, *sides, _KL), remedies)

    def _reason(self, chart: Chart, sides: list[str], clipped: float) -> str | None:
        drift = chart.series(_KL)
        moves = len(drift) > 0 and drift.level(RECENT) >= self.drift
        if traits_of(chart.knobs.get("loss")).bounds_weights:
            return "and the policy moves far" if moves and clipped >= self.share else None
        if traits_of(chart.knobs.get("loss")).ratio_per_response:
            far = moves and clipped >= self.sequence_share
            return "many even for whole sequences, and the policy moves far" if far else None
        if clipped >= self.share:
            return "a large share"
        if not clipped >= self.share_with_drift:
            return None
        if moves:
            return f"and the policy moves by {drift.level(RECENT):.2g} nats a token on one batch"
        starts = [start.level for name in sides if (start := chart.baseline(name))]
        if len(starts) == len(sides) and clipped >= self.growth * sum(starts):
            return f"{sum(starts):.1%} at the start"
        return None
