"""SYN008."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT, current_metric, first_step_where
from grpodoctor.rules.shared.mismatch_levels import ORDINARY, UNSIGNED
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import NotApplicable

_STALENESS = ("staleness/max", "staleness/mean")
_CANARY = "delivery/gap"
_HIDDEN_FACTOR = {name: 150.0 if "/kl_" in name else 12.0 for name in UNSIGNED}
"""Multiple of the first reading that samples of a few steps before do not reach: 9.5 and 77 in 18
healthy simulated runs with a lag of two steps (tests/benchmarks/planted_mechanisms). A KL grows
with the square of the gap."""
_OF_ORDINARY = {name: 0.2 if "/kl_" in name else 0.5 for name in UNSIGNED}
"""Part of the level of ordinary engine pairs from which such a gap is worth a note."""
_STALE = NotApplicable("the sampler has older weights by design")


class DifferentSamplerWeights(Rule):
    """The engines agree on the starting weights, but not after updates.

    What it sees:
        A first mismatch between sampler and learner that is tiny, and a mismatch many times as
        large after the first updates or later, although the samples count as fresh. It is `info`
        if the gap is one that ordinary engine pairs may have.

    Why it matters:
        At the first step both engines have the same weights, so the first reading is the rounding
        of this pair of engines. Rounding hardly depends on the weights. A mismatch many times as
        large means that the sampler does not have the learner's current weights: they arrive some
        steps late, only in part, or altered. The samples are off-policy, and no logged staleness
        shows it.

    Evidence it needs:
        `mismatch/prob_diff_mean`, `mismatch/logprob_diff_mean`, `mismatch/kl_k3` or
        `mismatch/kl_k2` from the first step of the run. Optional: `staleness/max`.

    Remedies:
        Compare the norm of a few weights in both engines after a sync. A correction hides this
        fault and does not repair it.

    When it is wrong:
        A change of the sampling temperature, of top-p or of the precision during the run raises the
        mismatch as well, and an adapter that is zero at first and merged in low precision later.

    References:
        verl issue 7495 (adapter never delivered for two months).
    """

    code: ClassVar[str] = "SYN008"
    name: ClassVar[str] = "different-sampler-weights"
    condition: ClassVar[Condition] = "stale-weights"
    summary: ClassVar[str] = "The engines agree on the starting weights, but not after updates."
    inputs: ClassVar[tuple[Need, ...]] = (UNSIGNED,)
    remedies: ClassVar[tuple[str, ...]] = ("check-weight-sync", "sync-sampler")
    references: ClassVar[tuple[str, ...]] = ("github.com/verl-project/verl/issues/7495",)
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 10 * RECENT

    min_factor: float = 30.0
    """Multiple of the first reading. The rounding of one pair of engines stays within a factor of
    three over a whole run; weights eight steps late showed 40,000."""
    rounding_factor: float = 3.0
    """Multiple of the first reading within which the rounding stays; the fault begins above it."""
    max_first_step: int = 1
    """Last step at which a first reading can be that of the starting weights."""
    min_readings: int = 8
    """Minimum readings: five that agree, after the first updates."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the first reading of the run."""
        name = current_metric(chart, UNSIGNED)
        series = chart.series(name)
        highest = series.highest.level if series.highest else 0.0
        if max(series.last, highest) < _OF_ORDINARY[name] * ORDINARY[name]:
            return None  # the usual case
        if len(chart.series(_CANARY)):
            return None  # SYN006 and SYN007 compare the weights themselves
        interval = chart.knobs.get("sampler_sync_every", 1)
        is_rare = isinstance(interval, int) and interval > 1
        # Some logs have the staleness of every fifth step only.
        logged = [chart.series(name) for name in _STALENESS]
        if is_rare or any(len(each) and each.last > 0 for each in logged):
            return _STALE
        if len(series) < self.min_readings or series.first_steps[0] > self.max_first_step:
            return None
        # A first reading of exactly 0 may not have been measured.
        first, level = series.head(1)[0], series.level(RECENT)
        if not 0 < self.min_factor * first <= level or level < ORDINARY[name]:
            return self._hidden(chart, name, first, highest)
        text = (
            f"The mismatch was {first:.1g} with the starting weights and is {level:.2g} now: "
            "the sampler has other weights."
        )
        return self._sighting(chart, name, first, "warning", text)

    def _hidden(self, chart: Chart, name: str, first: float, highest: float) -> Sighting | None:
        """A gap that ordinary engine pairs may have, and that this pair has not by itself."""
        if not 0 < _HIDDEN_FACTOR[name] * first <= highest:
            return None
        if not highest >= _OF_ORDINARY[name] * ORDINARY[name]:
            return None
        text = (
            f"The mismatch was {first:.1g} with the starting weights and rose to {highest:.2g}: "
            "the sampler has older weights."
        )
        return self._sighting(chart, name, first, "info", text)

    def _sighting(
        self, chart: Chart, name: str, first: float, severity: Severity, text: str
    ) -> Sighting:
        series = chart.series(name)
        evidence = (cite(chart, name, first), *cite_all(chart, *_STALENESS))
        limit = self.rounding_factor * first
        second = series.first_steps[1]

        def onset() -> int:
            return max(second, first_step_where(series, lambda value: value >= limit))

        return Sighting(severity, text, evidence, find_onset=onset)
