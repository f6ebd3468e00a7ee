"""LEN008."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT, outcome_metric
from grpodoctor.rules.shared.shapes.trend import began_half_way, outcome_has_risen, start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_LOOPS = "text/repetition_rate"
_NGRAMS = "text/unique_ngram_rate"
_COMPRESSION = "text/compression_ratio"


class RepetitiveResponses(Rule):
    """Responses repeat themselves: loops at the end, or the same phrases again and again.

    What it sees:
        The share of responses that end in a loop; or distinct n-grams within a response that fell
        to half of their starting value; or texts that compress much better than at the start.

    Why it matters:
        A loop fills the response up to the limit, and its tokens dominate the loss. Most collapsed
        policies repeat themselves in this way.

    Evidence it needs:
        One of `text/repetition_rate`, `text/unique_ngram_rate` and `text/compression_ratio`. The
        recorder and rollout dumps give all of them.

    Remedies:
        Penalize repetition in the reward, mask truncated responses, lower the learning rate. A
        sampler that disagrees with the learner (MIS001) produces loops as well.

    When it is wrong:
        Tables, code and lists repeat themselves for good reason; the rule compares with the run's
        own start. A base model may loop at first and unlearn it; the finding is then `info`.

    References:
        distinct-n, arXiv 1510.03055; Holtzman et al. 2020, The Curious Case of Neural Text
        Degeneration, arXiv 1904.09751.
    """

    code: ClassVar[str] = "LEN008"
    name: ClassVar[str] = "repetitive-responses"
    condition: ClassVar[Condition] = "repetition"
    summary: ClassVar[str] = "Responses loop or repeat the same phrases."
    inputs: ClassVar[tuple[Need, ...]] = ((_LOOPS, _NGRAMS, _COMPRESSION),)
    remedies: ClassVar[tuple[str, ...]] = ("repetition-penalty", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = ("arXiv 1510.03055", "arXiv 1904.09751")
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    info_loops: float = 0.1
    """Share of looping responses for `info`. Healthy runs of the bundled trainer never loop, nor
    does a public slime run; a collapsing one reached .13."""
    warning_loops: float = 0.2
    """Share for a warning: a fifth of the tokens and more, since loops run to the limit."""
    critical_loops: float = 0.5
    """Share that is critical: most of the loss is about loops."""
    unlearned_share: float = 0.7
    """Share of the starting value below which a base model is unlearning its loops."""
    max_ngram_share: float = 0.5
    """Share of the starting distinct n-grams below which responses repeat themselves; see ENT001.
    Healthy runs keep .9 of them."""
    max_compression: float = 2.5
    """Multiple of the starting compression. Text of one kind varies by less than 1.5; a loop of a
    sentence compresses ten times and more."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge loops first, then distinct n-grams, then compression."""
        if chart.is_fresh(_LOOPS) and chart.series(_LOOPS).last >= self.info_loops / 2:
            found = self._judge_loops(chart, chart.series(_LOOPS))
            if found is not None:
                return found
        return self._judge_phrases(chart)

    def _judge_loops(self, chart: Chart, loops: Series) -> Sighting | None:
        level, start = loops.level(RECENT), start_level(loops)
        if not level >= self.info_loops or start is None:
            return None
        text = f"{level:.0%} of responses end in a loop"
        if level < self.unlearned_share * start:
            return self._sighting(chart, "info", f"{text}, down from {start:.0%}.", None)
        severity: Severity = "info"
        if level >= self.warning_loops:
            severity = "critical" if level >= self.critical_loops else "warning"
        return self._sighting(chart, severity, f"{text}, {start:.0%} at the start.", loops)

    def _judge_phrases(self, chart: Chart) -> Sighting | None:
        ngrams, packed = chart.series(_NGRAMS), chart.series(_COMPRESSION)
        start = start_level(ngrams)
        if start and chart.is_fresh(_NGRAMS) and ngrams.last < self.max_ngram_share * start:
            level = ngrams.level(RECENT)
            if level < self.max_ngram_share * start:
                text = f"Distinct 3-grams within a response fell from {start:.0%} to {level:.0%}."
                return self._sighting(chart, self._grade(chart), text, ngrams)
        start = start_level(packed)
        if start and chart.is_fresh(_COMPRESSION) and packed.last > self.max_compression * start:
            level = packed.level(RECENT)
            if level > self.max_compression * start:
                text = f"Responses compress {level:.1f}-fold, {start:.1f}-fold at the start."
                return self._sighting(chart, self._grade(chart), text, packed)
        return None

    def _grade(self, chart: Chart) -> Severity:
        return "info" if outcome_has_risen(chart) else "warning"

    def _sighting(
        self, chart: Chart, severity: Severity, text: str, series: Series | None
    ) -> Sighting:
        evidence = cite_all(chart, _LOOPS, _NGRAMS, _COMPRESSION, outcome_metric(chart))
        start = None if series is None else start_level(series)
        onset = None if series is None or start is None else began_half_way(series, start)
        return Sighting(severity, text, evidence, find_onset=onset)
