"""SYN002."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT, has_improved, reading_noise
from grpodoctor.rules.shared.mismatch_levels import HARMFUL, logged_mismatch
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.conditions import Condition

_RATE, _AGE = "optimizer/learning_rate", "staleness/mean"
_OF_SAMPLES = ("accuracy/train", "reward/mean", "length/mean")


class WeightsNeverDelivered(Rule):
    """The mismatch grows with every update, as if the sampler never received the weights.

    What it sees:
        A mismatch between sampler and learner that starts near zero, grows in step with the sum of
        the learning rates, and is never reset by a weight sync.

    Why it matters:
        The sampler keeps its first weights: the sync fails silently, the engine does not load the
        adapter, or parameter names do not match. The starting policy then samples every batch, the
        run learns off-policy, and the reward of its samples cannot rise. One report lost two months
        to it.

    Evidence it needs:
        `mismatch/prob_diff_mean`, `mismatch/logprob_diff_mean`, `mismatch/kl_k3` or `kl_k1`.
        Optional: `optimizer/learning_rate`.

    Remedies:
        Compare the norm of a few weights in both engines before and after a sync. Sync at every
        step. A correction hides this fault and does not repair it.

    When it is wrong:
        A sampler whose precision fits only the starting weights also drifts, but more slowly: fp8
        with one scale per tensor triples over a whole run (MIS004). A sync every few steps gives a
        sawtooth, and the rule reports nothing. Nor does it if the reward or the length of the
        samples changes beyond noise: the starting policy cannot have written them all. A
        curriculum changes both as well; MIS001 then reports the mismatch without this cause.

    References:
        verl issue 7495 (adapter never delivered for two months); verl-omni issue 552 (adapter sync
        that reaches no module); ms-swift issue 9855.
    """

    code: ClassVar[str] = "SYN002"
    name: ClassVar[str] = "weights-never-delivered"
    condition: ClassVar[Condition] = "stale-weights"
    summary: ClassVar[str] = "The mismatch grows with every update and no sync resets it."
    inputs: ClassVar[tuple[Need, ...]] = (tuple(HARMFUL),)
    remedies: ClassVar[tuple[str, ...]] = ("check-weight-sync", "sync-sampler")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/verl-project/verl/issues/7495",
        "github.com/modelscope/ms-swift/issues/9855",
    )
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 10 * RECENT
    judges_levels: ClassVar[bool] = True
    """Once the sampler is far away the mismatch stops growing, but the fault is the same."""

    growth_factor: float = 5.0
    """Multiple of the first readings. A quantized sampler reaches 3 over a whole run."""
    min_correlation: float = 0.9
    """Correlation of the mismatch with the sum of the learning rates. Samplers that are synced
    every 2 and every 16 steps show .3 and less."""
    largest_fall: float = 0.5
    """Share of its highest level to which a reading may fall back: a sync takes it to zero."""
    min_readings: int = 25
    """Minimum readings: a sampler that is synced every sixteen steps has shown a reset by then."""
    min_intervals: float = 1.5
    """Sync intervals that must have passed, where the interval is known."""
    changed_noises: float = 4.0
    """Change of the reward or length of the samples, in noises of one reading, that one policy does
    not show: the best and the worst of many levels of ten readings differ from the first one by
    about 1.5."""
    explaining_age: float = 4.0
    """Age of the samples in updates that explains a mismatch; see SYN001."""
    longest_wait: int = 40
    """Readings after which the rule waits no longer for a sync: longer intervals are rare."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare with the first readings, look for resets, then correlate with the updates."""
        name = logged_mismatch(chart)
        series = chart.series(name)
        if series.last < HARMFUL[name] or len(series) < self._needed(chart):
            return None
        start = statistics.fmean(series.head(2))
        level = series.level(5)
        if level < max(self.growth_factor * start, HARMFUL[name]) or self._was_reset(series, level):
            return None
        if self._samples_changed(chart) or self._is_late(chart):
            return None  # MIS001 or MIS004 reports the mismatch
        correlation = self._correlation(chart, series)
        if not correlation >= self.min_correlation:
            return None
        text = (
            f"The mismatch grew from {start:.2g} to {level:.2g} with every update "
            f"(correlation {correlation:.2f}); no sync resets it."
        )
        first = int(series.first_step)
        evidence = (cite(chart, name, start), *cite_all(chart, _RATE))
        return Sighting("critical", text, evidence, find_onset=lambda: first)

    def _samples_changed(self, chart: Chart) -> bool:
        """Whether the responses became better, worse, longer or shorter: their policy changed."""
        if has_improved(chart):
            return True
        for name in _OF_SAMPLES:
            series = chart.series(name)
            start, best, worst = series.start, series.highest, series.lowest
            if start is None or best is None or worst is None:
                continue
            noise = max(start.spread, reading_noise(series))
            reached = (series.level(RECENT), best.level, worst.level)
            if max(abs(level - start.level) for level in reached) > self.changed_noises * noise:
                return True
        return False

    def _is_late(self, chart: Chart) -> bool:
        """Whether weights arrive late: the logged age explains the mismatch, see SYN001.

        An age near 0 is no evidence, as a trainer also counts weights that the sampler never loads.
        """
        ages = chart.series(_AGE)
        if len(ages) < RECENT:
            return False
        elapsed = ages.last_step - ages.first_step
        return self.explaining_age <= ages.level(RECENT) < elapsed / 2

    def _needed(self, chart: Chart) -> float:
        interval = chart.knobs.get("sampler_sync_every")
        if not isinstance(interval, int):
            return self.min_readings
        return max(self.min_readings, min(self.min_intervals * interval, self.longest_wait))

    def _was_reset(self, series: Series, level: float) -> bool:
        """Whether a reading fell back to half of the highest one before it."""
        highest = 0.0
        for _, value in series:
            if highest >= level / 4 and value < self.largest_fall * highest:
                return True
            highest = max(highest, value)
        return False

    def _correlation(self, chart: Chart, series: Series) -> float:
        """Correlation with the sum of the learning rates, or with the step if none is logged."""
        rates = dict(chart.series(_RATE))
        steps, values = zip(*series, strict=True)
        moved = np.cumsum([rates.get(step, math.nan) for step in steps])
        if not np.isfinite(moved).all() or not moved[-1] > 0:
            moved = np.array(steps, dtype=np.float64)
        mismatch = np.array(values)
        if not np.isfinite(mismatch).all() or not (mismatch.std() > 0 and moved.std() > 0):
            return 0.0
        return float(np.corrcoef(moved, mismatch)[0, 1])
