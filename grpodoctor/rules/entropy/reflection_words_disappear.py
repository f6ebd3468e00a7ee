"""ENT004."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT, is_solved, outcome_metric
from grpodoctor.rules.shared.shapes.trend import (
    began_half_way,
    outcome_has_risen,
    outcome_start,
    outcome_text,
    start_level,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_REFLECTION = "text/reflection_rate"


class ReflectionWordsDisappear(Rule):
    """Words of reflection (wait, recheck, alternatively) disappear from the responses.

    What it sees:
        The share of responses with such a word is below a quarter of its starting value. The
        finding is a warning if neither reward nor accuracy has risen, and `info` if one has.

    Why it matters:
        A reasoning model corrects itself by rechecking. A length penalty, a short limit or low
        entropy removes the rechecks before accuracy on hard prompts falls.

    Evidence it needs:
        `text/reflection_rate`, from the recorder or from a rollout dump with text.

    Remedies:
        Weaken a length penalty, raise the limit, raise the upper clip bound.

    When it is wrong:
        The word list is English. A model that learns to answer correctly at once needs fewer
        rechecks; its accuracy then rises and the finding is `info`.

    References:
        Beyond the 80/20 Rule, arXiv 2506.01939, for the tokens that begin a recheck; DeepSeek-R1,
        arXiv 2501.12948, for their rise in training.
    """

    code: ClassVar[str] = "ENT004"
    name: ClassVar[str] = "reflection-words-disappear"
    condition: ClassVar[Condition] = "diversity-loss"
    summary: ClassVar[str] = "Words of reflection disappear from the responses."
    inputs: ClassVar[tuple[Need, ...]] = (_REFLECTION,)
    remedies: ClassVar[tuple[str, ...]] = ("clip-higher", "longer-limit", "raise-temperature")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2506.01939", "arXiv 2501.12948")
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT

    min_start: float = 0.2
    """Starting share of responses with such a word. Below it, 128 responses hold fewer than 26, and
    a quarter of that is within the noise of chance."""
    remaining_share: float = 0.25
    """Share of the starting value: four times fewer is far outside the sampling error (.04 of 128
    responses)."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the share with its start, then look at the outcome."""
        series = chart.series(_REFLECTION)
        start = start_level(series)
        if start is None or start < self.min_start or series.last > self.remaining_share * start:
            return None
        level = series.level(RECENT)
        if len(series) < 2 * RECENT or level > self.remaining_share * start or is_solved(chart):
            return None
        severity: Severity = "warning" if outcome_has_risen(chart) is False else "info"
        text = (
            f"Reflection words fell from {start:.0%} to {level:.0%} of responses "
            f"while {outcome_text(chart)}."
        )
        evidence = cite_all(
            chart,
            _REFLECTION,
            "length/mean",
            outcome_metric(chart),
            starts=outcome_start(chart) | {_REFLECTION: start},
        )
        return Sighting(severity, text, evidence, find_onset=began_half_way(series, start))
