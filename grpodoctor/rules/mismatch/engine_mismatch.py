"""MIS001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import (
    SYNC,
    beside_probe,
    correction_of,
    remedies_of_mismatch,
)
from grpodoctor.rules.shared.run_health import RECENT, fresh_of
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.metrics import PROBED

_MEAN = "mismatch/prob_diff_mean"
_MAX = "mismatch/prob_diff_max"
_WORST_MEAN = f"{_MEAN}/worst_sequence"
_WORST_MAX = f"{_MAX}/worst_sequence"
_PROBABILITIES = (_WORST_MAX, _MAX, _MEAN)
_KLS = ("mismatch/kl_k3", "mismatch/kl_k1")


@dataclass(frozen=True)
class EngineMismatch(Rule):
    """The engine that samples and the one that learns disagree about the sampled tokens.

    What it sees:
        The difference in probability of the sampled tokens: on average where it is large enough to
        do harm; in the worst response where that one is far off and the average hides it; and in
        the worst token where it has grown far beyond the run's own start. The evidence names the
        response. A mean difference that a correction weighs already is a note. Where a log knows
        no more than the divergence of the two, its level.

    Why it matters:
        The gradient is taken as if the learner had sampled. The larger the disagreement, the more
        of it belongs to another policy. A subset of far-off sequences has a cause of its own (a
        prefix cache, a template, one rank) and is invisible in a mean.

    Evidence it needs:
        `mismatch/prob_diff_max/worst_sequence` or `mismatch/prob_diff_max`; better also
        `mismatch/prob_diff_mean` and its worst sequence. A probe that is attached to the run stands
        in for what the run does not log, and is what its own readings are compared with. Else
        `mismatch/kl_k3` or `mismatch/kl_k1`.

    Remedies:
        Recompute the old log-probabilities with the learner and weight by truncated importance
        sampling; sync the sampler more often if it is stale. `grpodoctor probe` finds the cause.

    When it is wrong:
        The maximum over a response grows with its length and nears 1 in healthy bf16 runs with long
        answers; that is why it is only compared with the run's own start. Log-probabilities before
        temperature on one side and after it on the other look like a mismatch and are a bug of the
        record. A quantised sampler always differs a little more than this while the policy is
        unsure (int4 .03 at first) and less as it sharpens (.015): a finding that ends without any
        treatment may owe it to entropy alone.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training;
        tinker-cookbook, skills/research/references/hyperparams.md, for a divergence below .01.
    """

    code: ClassVar[str] = "MIS001"
    name: ClassVar[str] = "engine-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("sampler-learner-mismatch-worst-sequence",)
    summary: ClassVar[str] = "Sampler and learner disagree about the sampled tokens."
    inputs: ClassVar[tuple[Need, ...]] = ((*_PROBABILITIES, *_KLS),)
    remedies: ClassVar[tuple[str, ...]] = ("tis", "recompute-old-logprobs", "sync-sampler")
    references: ClassVar[tuple[str, ...]] = (
        "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
    )

    clearance: ClassVar[int] = 2 * RECENT

    apart: float = 0.02
    """Divergence in nats per token that is a warning: twice what tinker-cookbook calls stable. In
    small runs int4 samplers show .03 to .05, int8 and bf16 .0001; large ones in bf16 up to .009."""
    far_apart: float = 0.15
    """Divergence that is critical: .14 to .19 where accuracy was lost."""
    harm: float = 0.02
    """Mean difference from which harm was visible in small runs with quantised samplers (.02 to
    .03). Ordinary engine pairs lie at .0004 to .001 in bf16, at .004 with a coarse cache."""
    ruin: float = 0.09
    """Mean difference at which accuracy was lost in every such run (.74 to .40)."""
    outlier: float = 0.05
    """Mean difference within the worst response; fifty times that of an ordinary pair."""
    outlier_times: float = 10.0
    """Times the batch's mean that the worst response must be off to be a case of its own."""
    growth: float = 3.0
    """Times the start of the worst token."""
    readings: int = 5
    """Fewest readings for the level of a divergence, which a few tokens can carry."""
    grown: float = 0.3
    """Least difference of the worst token that counts as grown; bf16 pairs show .15 to .24 over
    6,000 tokens."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the mean first, then the worst response, then the worst token."""
        if any(len(chart.series(name)) for name in _PROBABILITIES):
            seen = self._by_mean(chart) or self._by_response(chart) or self._by_growth(chart)
        else:
            seen = self._by_divergence(chart)
        if seen is None:
            return None
        severity, text = seen
        says, beside = beside_probe(chart, _MEAN, chart.series(_MEAN).level(2 * RECENT))
        remedies = remedies_of_mismatch(chart)
        if says == "beyond":
            remedies = tuple(dict.fromkeys((SYNC, *remedies)))
        differences = (_MEAN, f"{_MEAN}/{PROBED}", _WORST_MEAN, _MAX, _WORST_MAX)
        evidence = cite_all(chart, *differences) or cite_all(chart, *_KLS)
        return Sighting(severity, text + beside, evidence, remedies)

    def _by_mean(self, chart: Chart) -> tuple[Severity, str] | None:
        series = chart.series(_MEAN)
        if not len(series) or series.last < self.harm / 2:
            return None
        level = series.level(2 * RECENT)  # a whole tooth of a sampler synced now and then
        if not level >= self.harm:
            return None
        text = (
            f"sampler and learner differ by {level:.3f} in the probability of a token, on average"
        )
        return self._weighed(chart, text, is_ruin=level >= self.ruin)

    def _by_divergence(self, chart: Chart) -> tuple[Severity, str] | None:
        series = chart.series(fresh_of(chart, _KLS))
        level = series.level(2 * RECENT)
        if len(series) < self.readings or not level >= self.apart:
            return None
        text = f"sampler and learner diverge by {level:.2g} nats per token"
        return self._weighed(chart, text, is_ruin=level >= self.far_apart)

    def _weighed(self, chart: Chart, text: str, *, is_ruin: bool) -> tuple[Severity, str]:
        if is_ruin:
            return "critical", text
        correction = correction_of(chart)
        return (
            ("info", f"{text}; {correction} corrects for it") if correction else ("warning", text)
        )

    def _by_response(self, chart: Chart) -> tuple[Severity, str] | None:
        worst, mean = chart.series(_WORST_MEAN), chart.series(_MEAN)
        if not (len(worst) and len(mean)) or worst.last < self.outlier:
            return None
        level, usual = worst.level(RECENT), mean.level(RECENT)
        if not level >= max(self.outlier, self.outlier_times * usual):
            return None
        text = (
            f"one response differs by {level:.2f} in the probability of a token, on average, while "
            f"all together do by {usual:.1g}: a subset of sequences is wrong"
        )
        return "warning", text

    def _by_growth(self, chart: Chart) -> tuple[Severity, str] | None:
        for name in (_WORST_MAX, _MAX):
            series, start = chart.series(name), chart.baseline(name)
            if start is None or not chart.is_fresh(name) or series.last < self.grown:
                continue
            level = series.level(RECENT)
            if level >= max(self.grown, self.growth * start.level):
                text = (
                    f"the worst token differs by {level:.2f} in probability, "
                    f"{start.level:.2f} at the start"
                )
                return "warning", text
        return None
