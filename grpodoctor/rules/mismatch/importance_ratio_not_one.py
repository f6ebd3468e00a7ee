"""MIS002."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.rules.base import (
    NOT_LOGGED,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite,
    cite_all,
)
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.mismatch_levels import HARMFUL, ORDINARY
from grpodoctor.rules.shared.outcome.flat_outcome import is_flat
from grpodoctor.rules.shared.updates.first_updates import many_clipped_at_first
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.losses import traits_of

_OFF = "mismatch/first_ratio_off"
_RATIO = "ratio/mean"
_DIFFERENCE = "mismatch/prob_diff_mean"
_CLIPS = ("clip/low_rate", "clip/high_rate")
_ANY_CLIP = "clip/any_rate"
_TO_REFERENCE: Mapping[str, float] = {"kl/reference/k3": 0.003, "kl/reference/k1": 0.003}
"""Nats to a reference that is the starting policy, in the first step: exactly 0 where one engine
computes both, and above what the rounding of bf16 gives where two do."""
_TO_SAMPLER: Mapping[str, float] = {
    "mismatch/logprob_diff_mean": 1.5 * ORDINARY["mismatch/logprob_diff_mean"],
    "mismatch/kl_k3": ORDINARY["mismatch/kl_k3"],
    "mismatch/kl_k1": ORDINARY["mismatch/kl_k1"],
}
"""The same to the sampler, above what ordinary engine pairs show. Experts that are routed
otherwise give as much, so this alone is an alarm only where it does harm."""
_FIRST: Mapping[str, float] = {**_TO_REFERENCE, **_TO_SAMPLER}
_KL_OF_CLIPPED = 0.2 - math.log(1.2)
"""Least divergence in nats of a token whose ratio is at the usual clip bound of 1.2. Updates that
clip a share of the tokens move the policy by at least this share of it."""
_OF_CLIP = ("recompute-old-logprobs", "check-loss-mask")


class ImportanceRatioNotOne(Rule):
    """Importance ratios differ from 1 before the first update of a batch.

    What it sees:
        Importance ratios (probability by the learner, divided by that of the old policy) before the
        first update of a batch. Both policies have the same weights then, so each ratio is 1. The
        severity depends on how far the two policies differ.

        Two other signs, where such ratios are not logged:

        - A mean ratio that is not 1 from the first steps on. For tokens that the old policy
          sampled, the expected ratio is 1, however far the updates moved the learner.
        - A clip fraction that is high from the first step on, and stays. Nothing was learned in the
          first step, so the log-probabilities of one policy were computed twice and differ.

        A clip fraction is judged by what else the first step shows:

        - A distance to the reference that later updates do not multiply, or a harmful one to the
          sampler: a note, or a warning if accuracy or reward has not risen.
        - No such distance, but the clipped share is at least a tenth of the entropy, and the
          entropy stays as it was: the same. Updates that large would have changed the entropy. Not
          where the distance to the reference grows with each step, and explains the clips.
        - Clip fractions of whole responses (GSPO) do not count.

    Why it matters:
        The old log-probabilities are not the learner's. Usually they are the sampler's. The ratio
        then contains the difference between two engines, and the clip drops the wrong tokens. This
        alone takes small runs with a quantized sampler from an accuracy of .4 to .1 in twenty
        steps, with every seed. The same difference is harmless once the ratio uses the learner's
        log-probabilities.

    Evidence it needs:
        `mismatch/first_ratio_off`, `ratio/mean` or a clip fraction. Optional, to judge its effect:
        `mismatch/prob_diff_mean`. For a clip fraction: a KL to the reference, or a mismatch.

    Remedies:
        Recompute the old log-probabilities with the learner, and correct for the sampler separately
        from the ratio, by truncated importance sampling.

    When it is wrong:
        - Some frameworks skip the recomputation on purpose where the engines agree. With a small
          difference the finding is `info`.
        - The learner does recompute them, and the ratio still differs from 1: the cause is another
          micro-batch size, padding, dropout, a copy of the model that is not refreshed, or an
          off-by-one in the recording. A tenth of the tokens is a warning then, however well sampler
          and learner agree.
        - A sampler that cuts the tail of the distribution (top-p) can lower a mean ratio by the
          share that it cuts, if its log-probabilities are the old ones.
        - A run that continues from a checkpoint, with the first model as its reference, has a
          distance to it in its first step. Many updates per batch then clip tokens without a fault.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training;
        verl issue 6280.
    """

    code: ClassVar[str] = "MIS002"
    name: ClassVar[str] = "importance-ratio-not-one"
    condition: ClassVar[Condition] = "wrong-old-logprobs"
    former_names: ClassVar[tuple[str, ...]] = ("sampler-logprobs-as-old-policy",)
    summary: ClassVar[str] = "Importance ratios differ from 1 before the first update of a batch."
    inputs: ClassVar[tuple[Need, ...]] = ((_OFF, _RATIO, *_CLIPS, _ANY_CLIP),)
    remedies: ClassVar[tuple[str, ...]] = ("recompute-old-logprobs", "tis")
    references: ClassVar[tuple[str, ...]] = (
        "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
        "github.com/verl-project/verl/issues/6280",
    )

    min_share: float = 0.01
    """Share of tokens whose ratio differs from 1 by more than rounding; exactly 0 in healthy
    runs."""
    ratio_tolerance: float = 0.1
    """Distance of the mean ratio from 1: a tenth of the probability belongs to tokens that another
    distribution produced; see MIS001. Healthy runs stay within .002."""
    critical_difference: float = 0.01
    """Mean difference in probability above which such a ratio ruins a run: runs collapsed at .03
    with three of three seeds, within twenty steps. A bf16 pair shows .001."""
    warning_difference: float = 0.003
    """Below it the two policies agree well enough for the clip to be harmless: `info` at most."""
    critical_clip_share: float = 0.1
    """Share of clipped tokens that makes the finding critical whatever the cause: an off-by-one in
    the recording clips most tokens and ends the run in ten steps."""

    recomputed_share: float = 0.1
    """Share of such ratios that is a warning if the learner recomputes the log-probabilities: two
    passes over the same tokens with the same weights round a few of them differently."""
    min_clipped: float = 0.01
    """Clip fraction of the first steps; healthy runs stay below it, and begin lower."""
    lasting_share: float = 0.1
    """Part of this clip fraction that must remain: it falls with the entropy and with the share of
    groups that vary, and not with the updates. Where both are a third of what they were, a ninth
    is left."""
    still_entropy: float = 0.15
    """Part of the entropy that the first ten steps may change. Updates that move so many tokens out
    of the trust region change most of it: see OPT006."""
    still_factor: float = 2.0
    """Factor by which the clip fraction may change in these steps. A public run with eight epochs
    per batch began at .2 and had .06 ten steps later."""
    still_clipped: float = 0.04
    """Clipped tokens per nat of entropy that are left, as groups that vary become fewer."""
    offset_growth: float = 3.0
    """Factor by which the KL to the reference may grow within ten steps. Log-probabilities that
    are wrong shift it by a constant. Where the updates cause it, each step adds about as much as
    the first one had, which is five times as much in the middle of the ten."""
    min_clip_readings: int = 20
    """Readings of the clip fraction, to compare its level with the first ones."""
    min_flat_readings: int = 50
    """Readings after which accuracy or reward that has not risen makes it a warning: half of the
    window in which REW001 looks for a rise."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the share of ratios that differ from 1, then how far the policies differ."""
        if not chart.is_fresh(_OFF):
            return self._by_mean(chart) or self._by_clips(chart)
        series = chart.series(_OFF)
        if not series.last > self.min_share or not series.level(RECENT) > self.min_share:
            return None
        severity, consequence = self._judge(chart)
        is_recomputed = chart.knobs.get("old_logprobs") == "recompute"
        if is_recomputed:
            consequence = ", although the learner recomputes old log-probabilities"
            if severity == "info" and series.level(RECENT) >= self.recomputed_share:
                severity = "warning"  # engines that agree say nothing about such log-probabilities
        text = (
            f"{series.last:.0%} of importance ratios differ from 1 before the first "
            f"update{consequence}."
        )
        evidence = cite_all(chart, _OFF, _DIFFERENCE, *_CLIPS)
        return Sighting(severity, text, evidence, ("check-loss-mask",) if is_recomputed else None)

    def _by_mean(self, chart: Chart) -> Sighting | None:
        """Whether the mean ratio has been on the same side of 1 since the first three readings."""
        series = chart.series(_RATIO)
        opening = series.opening
        if opening is None or not chart.is_fresh(_RATIO):
            return None
        level = series.level(2 * RECENT)
        distances = (opening.level - 1, level - 1)
        if distances[0] * distances[1] <= 0 or not min(map(abs, distances)) >= self.ratio_tolerance:
            return None
        text = f"The mean importance ratio has been {level:.2f} instead of 1 from the start."
        first = series.first_step
        evidence = (cite(chart, _RATIO, 1.0),)
        return Sighting("warning", text, evidence, find_onset=lambda: first)

    def _by_clips(self, chart: Chart) -> RuleResult:
        """Tokens that are clipped from the first step on.

        A ratio of a whole response has a bound so narrow that healthy runs exceed it, and a bound
        of weights is no clip.
        """
        traits = traits_of(chart.knobs.get("loss"))
        if traits.ratio_per_response or traits.bounds_weights:
            return NOT_LOGGED
        found = self._by_clip(chart)
        if isinstance(found, Sighting) and found.severity != "info":
            return found
        in_still = self._in_still_policy(chart)
        if in_still is None or (isinstance(found, Sighting) and in_still.severity == "info"):
            return found
        return in_still

    def _in_still_policy(self, chart: Chart) -> Sighting | None:
        """Many clipped tokens from the first step on, and an entropy that hardly changed then."""
        first = many_clipped_at_first(chart)
        if first is None or abs(first.entropy_left - 1) > self.still_entropy:
            return None
        if not 1 / self.still_factor <= first.clipped_left <= self.still_factor:
            return None  # what the updates do changes it
        if self._updates_explain(chart, first.clipped[0]):
            return None
        *sides, entropy = first.metrics
        clipped = sum(chart.series(name).level(2 * RECENT) for name in sides)
        nats = chart.series(entropy).level(2 * RECENT)
        if not clipped >= self.still_clipped * nats:
            return None
        text = (
            f"{first.clipped[0]:.1%} of tokens are clipped from the first step on, "
            "and entropy stays: wrong old log-probabilities."
        )
        evidence = cite_all(chart, *first.metrics)
        severity: Severity = "warning" if self._is_flat(chart, sides[0]) else "info"
        return Sighting(severity, text, evidence, _OF_CLIP, find_onset=lambda: first.step)

    def _updates_explain(self, chart: Chart, clipped: float) -> bool:
        """Whether the first updates moved the policy far enough to clip so many tokens."""
        least = _KL_OF_CLIPPED * clipped
        distances = [chart.series(name) for name in _TO_REFERENCE]
        return any(
            series.first_step <= 1 and abs(series.head(1)[0]) >= least and self._is_drift(series)
            for series in distances
            if len(series)
        )

    def _is_flat(self, chart: Chart, clip: str) -> bool:
        """Whether a run is long enough for a rise of its outcome, and has none."""
        return len(chart.series(clip)) >= self.min_flat_readings and is_flat(chart)

    def _by_clip(self, chart: Chart) -> RuleResult:
        """Tokens that are clipped in a policy that differs from itself."""
        sides = [name for name in _CLIPS if chart.is_fresh(name)] or [_ANY_CLIP]
        clips = [chart.series(name) for name in sides]
        if not all(map(len, clips)) or not any(len(chart.series(name)) for name in _FIRST):
            return NOT_LOGGED
        at_first = sum(series.opening.level for series in clips if series.opening)
        if not at_first >= self.min_clipped:
            return None  # the usual case
        if min(map(len, clips)) < self.min_clip_readings:
            return None
        if not sum(series.level(2 * RECENT) for series in clips) >= self.lasting_share * at_first:
            return None
        shown = [name for name, least in _FIRST.items() if self._is_at_first(chart, name, least)]
        if not shown:
            return None
        is_to_reference = shown[0] in _TO_REFERENCE
        noun = "the KL to the reference" if is_to_reference else "the gap to the sampler"
        text = (
            f"{at_first:.1%} of tokens are clipped from the start, when {noun} is "
            f"{abs(chart.series(shown[0]).head(1)[0]):.2g} nats: wrong old log-probabilities."
        )
        is_sure = is_to_reference or any(
            abs(chart.series(name).head(1)[0]) >= HARMFUL[name] for name in shown
        )
        is_unlearned = is_sure and self._is_flat(chart, sides[0])
        first = clips[0].first_step
        evidence = cite_all(chart, *sides, *shown)
        severity: Severity = "warning" if is_unlearned else "info"
        return Sighting(severity, text, evidence, _OF_CLIP, find_onset=lambda: first)

    def _is_at_first(self, chart: Chart, name: str, least: float) -> bool:
        """Whether the first reading of a distance is far from 0, and so are the latest ones."""
        series = chart.series(name)
        first = series.head(1)
        if not first or not chart.is_fresh(name) or series.first_step > 1:
            return False
        if name in _TO_REFERENCE and self._is_drift(series):
            return False
        return abs(first[0]) >= least and abs(series.level(2 * RECENT)) >= least / 2

    def _is_drift(self, series: Series) -> bool:
        """Whether the updates explain the first reading: the following ones are multiples of it."""
        first, *later = map(abs, series.head(BASELINE))
        return bool(later) and statistics.median(later) > self.offset_growth * first

    def _judge(self, chart: Chart) -> tuple[Severity, str]:
        clipped = sum(chart.series(name).level(3) for name in _CLIPS if chart.is_fresh(name))
        if clipped >= self.critical_clip_share:
            return "critical", f", and {clipped:.0%} of tokens are clipped"
        difference = chart.series(_DIFFERENCE)
        if not len(difference):
            return "warning", "; the probability difference is not logged"
        apart = difference.level(RECENT)
        consequence = f"; sampler and learner probabilities differ by {apart:.2g}"
        if apart >= self.critical_difference:
            return "critical", consequence
        return "warning" if apart >= self.warning_difference else "info", consequence
