"""SYN001."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import correction_of
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    current_metric,
    outcome_lost,
    outcome_metric,
)
from grpodoctor.rules.shared.mismatch_levels import grown_mismatch
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_STALENESS = ("staleness/mean", "staleness/max")
_TOLERANT = {"vespo": 64.0, "m2po": 256.0, "cispo": 8.0, "scalerl": 8.0}
"""Steps of staleness at which papers found no loss: VESPO 64, M2PO 256, and 8 for ScaleRL, whose
loss is CISPO's."""


class StaleSamples(Rule):
    """The samples are older than the loss tolerates.

    What it sees:
        The mean number of optimizer steps between sampling and use, compared with what the run's
        loss and correction are known to tolerate. The finding is a warning if the outcome has
        fallen or not risen, or if the mismatch has grown beyond that of ordinary engines, and
        `info` otherwise.

    Why it matters:
        Asynchronous training reuses responses of earlier policies. Beyond a few steps most ratios
        leave the trust region: the clip removes them, or without a clip a few of them dominate the
        gradient. The loss curve stays calm; reward and KL show it later.

    Evidence it needs:
        `staleness/mean` or `staleness/max`. Optional: the loss and the correction, from the config,
        and the mismatch of sampler and learner.

    Remedies:
        Limit the staleness, correct by truncated importance sampling, or use a loss made for stale
        samples.

    When it is wrong:
        Many small optimizer steps at a low learning rate move the policy less than a few large
        ones: the tolerance is a count of steps, and the distance is what matters. A run that learns
        is therefore warned about only if the log shows that distance.

    References:
        AReaL, arXiv 2505.24298 (eight steps with a decoupled loss); ScaleRL, arXiv 2510.13786
        (eight); M2PO, arXiv 2510.01161 (256); VESPO, arXiv 2602.10693 (64); tinker-cookbook pull
        request 822 (three steps without a clip: reference KL times thirty).
    """

    code: ClassVar[str] = "SYN001"
    name: ClassVar[str] = "stale-samples"
    condition: ClassVar[Condition] = "stale-weights"
    summary: ClassVar[str] = "The samples are older than the loss tolerates."
    inputs: ClassVar[tuple[Need, ...]] = (_STALENESS,)
    remedies: ClassVar[tuple[str, ...]] = ("limit-staleness", "tis", "m2po")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2505.24298",
        "arXiv 2510.13786",
        "arXiv 2510.01161",
        "arXiv 2602.10693",
    )
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    plain_tolerance: float = 4.0
    """Steps that a loss with a PPO clip and no correction survives. In small runs four steps cost
    nothing and sixteen cost a quarter of the accuracy; AReaL's uncorrected loss degrades from four
    on."""
    corrected_tolerance: float = 8.0
    """Steps with a correction of the mismatch or a decoupled loss (AReaL)."""
    lost_share: float = 0.2
    """Share of the best outcome whose loss counts as harm."""
    min_readings: int = 20
    """Minimum readings before a flat outcome counts as harm."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the staleness with the tolerance, then look at the outcome."""
        name = current_metric(chart, _STALENESS)
        series = chart.series(name)
        if series.last < self.plain_tolerance:
            return None
        loss, correction = chart.knobs.get("loss"), correction_of(chart)
        tolerance = self.corrected_tolerance if correction else self.plain_tolerance
        tolerance = max(tolerance, _TOLERANT.get(str(loss), 0.0))
        level = series.level(RECENT)
        if not level > tolerance:
            return None
        described = f"{loss} with {correction}" if correction else str(loss or "a clipped loss")
        text = f"Samples are {level:.0f} optimizer steps old; {described} tolerates {tolerance:.0f}"
        evidence = cite_all(chart, name, outcome_metric(chart), "kl/old_policy/k3")
        is_flat = len(series) >= self.min_readings and outcome_has_risen(chart) is False
        if is_flat or outcome_lost(chart) >= self.lost_share:
            return Sighting(
                "warning", f"{text}, and neither reward nor accuracy has risen.", evidence
            )
        grown = grown_mismatch(chart)
        if grown is not None:
            start, now = grown.start, grown.now
            text = f"Samples are {level:.0f} optimizer steps old ({described} tolerates "
            text += f"{tolerance:.0f}), and the mismatch grew from {start:.2g} to {now:.2g}."
            return Sighting("warning", text, cite_all(chart, name, grown.metric))
        return Sighting("info", f"{text}.", evidence)
