"""MIS004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.runs.chart import Chart

_FLOORS = {
    "mismatch/prob_diff_mean": 0.004,
    "mismatch/logprob_diff_mean": 0.01,
    "mismatch/kl_k3": 0.005,
}
"""Level below which growth does no harm: the upper end of what bf16 and fp8 engine pairs show
(probability .0042, k3 .0042); in log-probability a little above twice that."""


@dataclass(frozen=True)
class GrowingEngineMismatch(Rule):
    """The disagreement of sampler and learner grows as the run goes on.

    What it sees:
        The mean difference at a multiple of the run's own start, above what ordinary engine pairs
        show.

    Why it matters:
        A constant difference is arithmetic; one that grows follows the weights. It feeds itself:
        the gradient of a wrong policy moves the learner towards tokens on which the two differ
        more. Published runs go from 1e-3 to 1 before they die.

    Evidence it needs:
        `mismatch/prob_diff_mean`, `mismatch/logprob_diff_mean` or `mismatch/kl_k3`.

    Remedies:
        Sync the sampler at every step; correct by truncated importance sampling; if the sampler is
        quantised, quantise more finely (per channel or block rather than per tensor).

    When it is wrong:
        Tokens with middling probability differ most, so that a policy whose entropy rises shows
        more of it. A sampler that is synced every few steps makes a sawtooth, whose median is
        taken.

    References:
        verl pull request 7519, where fp8 by tensor goes from .010 to .031 and bf16 from .006 to
        .009.
    """

    code: ClassVar[str] = "MIS004"
    name: ClassVar[str] = "growing-engine-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("growing-sampler-learner-mismatch",)
    summary: ClassVar[str] = "The disagreement of sampler and learner grows during the run."
    inputs: ClassVar[tuple[Need, ...]] = (tuple(_FLOORS),)
    remedies: ClassVar[tuple[str, ...]] = ("sync-sampler", "tis", "recompute-old-logprobs")
    references: ClassVar[tuple[str, ...]] = ("github.com/volcengine/verl/pull/7519",)

    times: float = 2.5
    """Times the start: healthy bf16 runs reach 1.4, a bad quantisation 3."""
    spreads: float = 6.0
    """Growth in spreads of the start."""
    readings: int = 20
    """Fewest readings: a start and a present that do not overlap."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the start."""
        name = next(each for each in _FLOORS if chart.is_fresh(each))
        series = chart.series(name)
        start = series.baseline
        if start is None or len(series) < self.readings or series.last < _FLOORS[name]:
            return None
        level = series.level(RECENT)
        bar = max(self.times * start.level, start.level + self.spreads * start.spread)
        if not level > max(bar, _FLOORS[name]):
            return None
        text = f"{name} has grown from {start.level:.2g} to {level:.2g}"
        return Sighting("warning", text, (cite(chart, name, start.level),))
