"""CLP001."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import RECOMPUTE, WRONG_OLD_LOGPROBS
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    has_improved,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.losses import traits_of

_LOW = "clip/low_rate"
_HIGH = "clip/high_rate"
_ANY = "clip/any_rate"
_KL = "kl/old_policy/k3"
_SQUARES = (_KL, "kl/old_policy/k2")
_RATIO_OFF = "mismatch/first_ratio_off"
_FEW = 3
"""Readings from which rewards of exactly 0 are no accident."""
_NEARLY_ALL = 0.98
"""Share of groups without variance at which the clip has no gradient to remove."""


class HighClipFraction(Rule):
    """The clip removes the gradient of a large share of the tokens.

    What it sees:
        The lower and upper clip fractions add up to a tenth of the tokens or more. If the share
        began below .03, the outcome is above its starting value and the policy hardly moves within
        one batch, the finding is only `info`. A smaller share is reported if the policy also moves
        far within one batch, or if the share is several times its starting value while the outcome
        does not rise.

    Why it matters:
        A clipped token contributes no gradient. Many clipped tokens mean that the batch was used
        for too many updates or that the steps were too large. If nearly all clipping is at the
        upper bound, it stops unlikely tokens from becoming likelier, which limits exploration.

    Evidence it needs:
        `clip/low_rate` and `clip/high_rate`, or `clip/any_rate` from logs that do not separate the
        two bounds. Optional: `kl/old_policy/k3`.

    Remedies:
        Fewer updates per batch or a lower learning rate. A higher upper clip bound if most of the
        clipping is at the upper bound.

    When it is wrong:
        Losses that clip whole responses clip far more on purpose: a seventh of the tokens is the
        published norm, so these losses have a higher threshold. Losses that bound a token's weight
        (CISPO, ScaleRL) keep its gradient; the finding is then only `info`, and only where the
        policy also moves far. If the ratio uses the sampler's log-probabilities, tokens are clipped
        even before the first update. The finding then says so, and its first remedy is that of
        MIS002. So it does where a batch takes one update: its ratios are 1 unless the old
        log-probabilities are wrong, or those of the sampler.

    References:
        PPO, arXiv 1707.06347; DAPO, arXiv 2503.14476; GSPO, arXiv 2507.18071; CISPO,
        arXiv 2506.13585.
    """

    code: ClassVar[str] = "CLP001"
    name: ClassVar[str] = "high-clip-fraction"
    condition: ClassVar[Condition] = "clipped-tokens"
    former_names: ClassVar[tuple[str, ...]] = ("clip-saturation",)
    summary: ClassVar[str] = "The clip removes the gradient of a large share of the tokens."
    inputs: ClassVar[tuple[Need, ...]] = ((_HIGH, _LOW, _ANY),)
    remedies: ClassVar[tuple[str, ...]] = ("fewer-updates", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 1707.06347",
        "arXiv 2503.14476",
        "arXiv 2507.18071",
        "arXiv 2506.13585",
    )
    judges_levels: ClassVar[bool] = True

    warning_share: float = 0.1
    """Share of tokens. Healthy runs clip below .01, and .034 with 16 cautious updates per batch."""
    warning_share_if_drifting: float = 0.03
    """Share that suffices where the policy also moves far. Small runs that over-update their
    batches and lose a third of their accuracy clip .045 at a KL of .02."""
    drifting_kl: float = 0.01
    """KL to the old policy, nats per token. Healthy runs: .001, with 16 cautious updates .004."""
    growth_factor: float = 5.0
    """Multiple of the starting value."""
    ratio_off_share: float = 0.01
    """Share of ratios that differ from 1 before any update, above which the updates do not cause
    the clipping. It is 0 in healthy runs, see MIS002."""
    least_bound: float = 0.05
    """Bound of token ratios below which the clip itself is the problem: published ones are .1 and
    more, while those of whole responses are .0004 (GSPO)."""
    response_share: float = 0.3
    """Threshold for losses that clip whole responses: twice the published share of .15. A larger
    share does no harm while the policy hardly moves: at the paper's bounds the built-in model
    clips .4 at 2e-5 nats per token."""

    def examine(self, chart: Chart) -> RuleResult:
        """Add up both sides and compare them with the thresholds."""
        sides = [name for name in (_LOW, _HIGH) if chart.is_fresh(name)]
        sides = sides or [name for name in (_ANY,) if chart.is_fresh(name)]
        if sum(chart.series(name).last for name in sides) < self.warning_share_if_drifting / 2:
            return None
        if _has_no_advantages(chart):
            return None
        levels = {name: chart.series(name).level(RECENT) for name in sides}
        clipped = sum(levels.values())
        comparison = self._comparison(chart, sides, clipped)
        if comparison is None:
            return None
        steps = in_steps(chart.series(sides[0]), RECENT)
        traits, evidence = traits_of(chart.knobs.get("loss")), cite_all(chart, *sides, _KL)
        if traits.bounds_weights:
            weights = f"The weights of {clipped:.1%} of tokens"
            text = f"{weights} are at their bound {steps}{comparison}."
            return Sighting("info", text, evidence)
        unit = "responses" if traits.ratio_per_response else "tokens"
        share = f"{clipped:.1%} of {unit}"
        text = f"The clip removes the gradient of {share} {steps}{comparison}."
        if (
            chart.is_fresh(_RATIO_OFF)
            and chart.series(_RATIO_OFF).level(RECENT) > self.ratio_off_share
        ):
            text = (
                f"{share} are clipped {steps}; "
                "ratios already differ from 1 before the first update (MIS002)."
            )
            evidence = cite_all(chart, *sides, _KL, _RATIO_OFF)
            return Sighting("warning", text, evidence, (RECOMPUTE, *self.remedies))
        if _takes_one_update(chart):
            text = f"{share} are clipped {steps} despite one update per batch{comparison}."
            return Sighting("warning", text, evidence, (RECOMPUTE,), condition=WRONG_OLD_LOGPROBS)
        is_upper = levels.get(_HIGH, 0.0) > 0.8 * clipped
        remedies = ("clip-higher", *self.remedies) if is_upper else None
        bound = (
            None if traits.ratio_per_response or comparison else self._narrow_bound(chart, clipped)
        )
        if bound is not None:
            text = f"{share} are clipped {steps}, although the policy hardly moves: {bound}."
            remedies = ("clip-higher",)
        # Three public runs of two repositories that came to clip .11 to .16 of their tokens went on
        # to improve: the share alone is no fault.
        if not comparison and bound is None and self._is_harmless(chart, sides):
            return Sighting("info", text, evidence, remedies, ends_severer=True)
        return Sighting("warning", text, evidence, remedies)

    def _is_harmless(self, chart: Chart, sides: list[str]) -> bool:
        """Whether the share began at an ordinary one, and the run improves with small updates.

        A share that is large from the start is not due to updates that have grown.
        """
        kl = chart.series(_KL)
        if len(kl) > 0 and kl.level(RECENT) >= self.drifting_kl:
            return False
        starts = [start.level for name in sides if (start := chart.baseline(name))]
        is_ordinary = len(starts) == len(sides) and sum(starts) < self.warning_share_if_drifting
        return is_ordinary and bool(has_improved(chart))

    def _narrow_bound(self, chart: Chart, clipped: float) -> str | None:
        """Words for clip bounds that are far too narrow for token ratios; None if they are not.

        The KL is about half the mean squared log-ratio, so by Chebyshev's inequality a share
        `clipped` of the tokens can only be outside bounds within sqrt(2 KL / clipped).
        """
        set_bounds = [chart.knobs.get(name) for name in ("clip_low", "clip_high")]
        known = [value for value in set_bounds if isinstance(value, int | float) and value > 0]
        if known:
            widest = max(known)
            return f"the bounds are ±{widest:g}" if widest < self.least_bound else None
        for name in _SQUARES:
            kl = chart.series(name).level(RECENT) if chart.is_fresh(name) else 0.0
            if kl > 0:
                widest = math.sqrt(2 * kl / clipped)
                return f"the bounds are within ±{widest:.1g}" if widest < self.least_bound else None
        return None

    def _comparison(self, chart: Chart, sides: list[str], clipped: float) -> str | None:
        """Words for what the share is compared with; None if it is not too high."""
        kl, traits = chart.series(_KL), traits_of(chart.knobs.get("loss"))
        moves_far = len(kl) > 0 and kl.level(RECENT) >= self.drifting_kl
        drift = f", and the policy moves {kl.level(RECENT):.2g} nats per token" if len(kl) else ""
        if traits.bounds_weights:
            return drift if moves_far and clipped >= self.warning_share else None
        if traits.ratio_per_response:
            return drift if moves_far and clipped >= self.response_share else None
        if clipped >= self.warning_share:
            return ""
        if not clipped >= self.warning_share_if_drifting:
            return None
        if moves_far:
            return drift
        # A warm-up of the learning rate starts at a share of 0, and a share of 5 % does no harm
        # while the run improves.
        if has_improved(chart):
            return None
        starts = [start.level for name in sides if (start := chart.baseline(name))]
        if len(starts) == len(sides) and clipped >= self.growth_factor * sum(starts):
            return f", up from {sum(starts):.1%}"
        return None


def _takes_one_update(chart: Chart) -> bool:
    """Whether each batch is known to take one update, before which all ratios are 1."""
    return chart.knobs.get("updates_per_batch") == 1


def _has_no_advantages(chart: Chart) -> bool:
    """Whether all rewards of the latest readings are 0 or all groups equal: no gradient to clip."""
    reward, name = chart.series("reward/mean"), zero_variance_metric(chart)
    if len(reward) >= _FEW and not any(reward.tail(RECENT)):
        return True
    return name is not None and typical_share(chart.series(name), RECENT) >= _NEARLY_ALL
