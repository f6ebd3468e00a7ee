"""LEN002."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import RECENT, since
from grpodoctor.runs.chart import Chart

_CUT = "length/truncated_rate"


@dataclass(frozen=True)
class TruncatedResponses(Rule):
    """Many responses are cut by the length limit.

    What it sees:
        The share of responses that end at the limit rather than by themselves: high, or grown since
        the start. Nearly all of them is critical.

    Why it matters:
        A response that is cut before its answer is judged as wrong, whatever it was about to say:
        the reward becomes noise about length. When nearly all are cut there is nothing else left to
        learn. A share that grows says that the policy drifts towards rambling.

    Evidence it needs:
        `length/truncated_rate`. Better with `length/mean` and `reward/truncated`.

    Remedies:
        Raise the limit if memory allows. Else leave cut responses out of the loss, or punish length
        gradually before the limit. Masking takes away the pressure to be brief: watch the share.

    When it is wrong:
        A reward for length is seen here only, once the answers reach the limit: after 90 steps in
        small runs, and not at all below it. A limit that is short on purpose, to teach brevity,
        cuts many responses at first. Frameworks that know one end token only count an ending by
        another as cut; some count a response as cut when it is the longest of its batch.

    References:
        DAPO, arXiv 2503.14476, section 3.4; TRL pull request 7039 on several end tokens.
    """

    code: ClassVar[str] = "LEN002"
    name: ClassVar[str] = "truncated-responses"
    summary: ClassVar[str] = "Many responses are cut by the length limit."
    inputs: ClassVar[tuple[Need, ...]] = (_CUT,)
    remedies: ClassVar[tuple[str, ...]] = ("longer-limit", "overlong-mask", "soft-overlong")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2503.14476",
        "github.com/huggingface/trl/pull/7039",
    )

    some: float = 0.2
    """Share worth a note; healthy runs were seen to begin at .3 and to end at .05."""
    half: float = 0.5
    """Share that is a warning: the reward is as much about length as about the answer."""
    nearly_all: float = 0.95
    """Share that is critical; a run of strangers with 1.0 on every row learnt nothing."""
    growth: float = 0.15
    """Rise since the start that makes a note a warning: the drift goes on."""
    readings: int = 5
    """Fewest readings for a level: a probe of four batches is no run."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share and its rise since the start."""
        series = chart.series(_CUT)
        if series.last < self.some / 2 or len(series) < self.readings:
            return None
        share = series.level(RECENT)
        if not share >= self.some:
            return None
        start = series.baseline
        rise = share - start.level if start else 0.0
        before = f", {start.level:.0%} at the start" if start else ""
        text = f"{share:.0%} of the responses are cut by the length limit{before}"
        evidence = cite_all(chart, _CUT, "length/mean", "reward/truncated")
        began = partial(since, series, lambda cut: cut >= self.some)
        return Sighting(self._severity(share, rise), text, evidence, since=began)

    def _severity(self, share: float, rise: float) -> Severity:
        if share >= self.nearly_all:
            return "critical"
        return "warning" if share >= self.half or rise >= self.growth else "info"
