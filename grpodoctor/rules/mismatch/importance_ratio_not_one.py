"""MIS002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.runs.chart import Chart

_OFF = "mismatch/first_ratio_off"
_DIFFERENCE = "mismatch/prob_diff_mean"
_CLIPS = ("clip/low_rate", "clip/high_rate")


@dataclass(frozen=True)
class ImportanceRatioNotOne(Rule):
    """The importance ratio is off 1 before the first update of a batch.

    What it sees:
        Ratios that differ from 1 when learner and old policy should be the same parameters. Healthy
        runs have none at all. How grave it is depends on how far the two policies are apart.

    Why it matters:
        The old log-probabilities are not the learner's. Mostly they are the sampler's, and then the
        ratio carries the difference between two engines, and the clip stops the wrong tokens: this
        alone takes small runs with a quantised sampler from an accuracy of .4 to .1 in twenty
        steps, in every seed, at a difference that does nothing once the ratio is right.

    Evidence it needs:
        `mismatch/first_ratio_off`. To judge its weight also `mismatch/prob_diff_mean`.

    Remedies:
        Recompute the old log-probabilities with the learner, and correct for the sampler apart from
        the ratio, by truncated importance sampling.

    When it is wrong:
        Some frameworks leave out the recomputation on purpose where the engines agree; with a
        small difference it is a note. Where the learner does recompute and the ratio is off all the
        same, another micro-batch size, padding, dropout or an off-by-one in the record is the
        cause.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training;
        verl issue 6280.
    """

    code: ClassVar[str] = "MIS002"
    name: ClassVar[str] = "importance-ratio-not-one"
    former_names: ClassVar[tuple[str, ...]] = ("sampler-logprobs-as-old-policy",)
    summary: ClassVar[str] = "The importance ratio is off 1 before the first update of a batch."
    inputs: ClassVar[tuple[Need, ...]] = (_OFF,)
    remedies: ClassVar[tuple[str, ...]] = ("recompute-old-logprobs", "tis")
    references: ClassVar[tuple[str, ...]] = (
        "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
        "github.com/volcengine/verl/issues/6280",
    )

    some: float = 0.01
    """Share of tokens off 1 by more than rounding; exactly 0 in health."""
    apart: float = 0.01
    """Mean difference in probability from which such a ratio ruins a run: collapse was seen at .03
    in three of three seeds, within twenty steps. A bf16 pair lies at .001."""
    near: float = 0.003
    """Below this the two policies agree well enough for the clip to be harmless: at most a note."""
    clipped: float = 0.1
    """Share of clipped tokens beside it that is critical whatever the cause: an off-by-one in the
    record clips most of them and ends the run in ten steps."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the share that is off, then how far the policies are apart."""
        series = chart.series(_OFF)
        if not series.last > self.some or not series.level(RECENT) > self.some:
            return None
        severity, beside = self._judge(chart)
        text = f"{series.last:.0%} of the ratios are off 1 before the first update{beside}"
        recomputed = chart.knobs.get("old_logprobs") == "recompute"
        if recomputed:
            text += ", although the old log-probabilities are the learner's own"
        evidence = cite_all(chart, _OFF, _DIFFERENCE, *_CLIPS)
        return Sighting(severity, text, evidence, ("check-loss-mask",) if recomputed else None)

    def _judge(self, chart: Chart) -> tuple[Severity, str]:
        clipped = sum(chart.series(name).level(3) for name in _CLIPS if chart.is_fresh(name))
        if clipped >= self.clipped:
            return "critical", f" and {clipped:.0%} of the tokens are clipped"
        difference = chart.series(_DIFFERENCE)
        if not len(difference):
            return "warning", "; how far the sampler is off is not recorded"
        apart = difference.level(RECENT)
        beside = f" and the policies differ by {apart:.2g} per token"
        if apart >= self.apart:
            return "critical", beside
        return "warning" if apart >= self.near else "info", beside
