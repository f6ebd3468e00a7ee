"""ENT001."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.groups.equal_responses import explores_no_more
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    current_metric,
    fall_text,
    first_step_where,
    has_improved,
    has_stalled,
    has_stalled_low,
    has_stalled_without_signal,
    is_solved,
    lacks_signal,
    outcome_lost,
    outcome_metric,
    outcome_noun,
)
from grpodoctor.rules.shared.length_limit import grew_to, recurring_mean
from grpodoctor.rules.shared.shapes.trend import outcome_start, outcome_text
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import NotApplicable

_NGRAMS = "text/unique_ngram_rate"
_DUPLICATES = "groups/duplicate_rate"
_LENGTH = "length/mean"
_SHOWN = 1e-3
"""Share of the starting value below which a summary states no digits."""
_LATEST = 5
_STALLED = 30
"""Readings of the outcome that has stopped rising."""


class EntropyCollapse(Rule):
    """The policy's entropy has fallen to a small share of its starting value.

    What it sees:
        Entropy below a fifth of its starting value: the median of the first ten readings, or of the
        first three if entropy already falls within the first ten. The severity depends on accuracy,
        or on reward where accuracy is not logged:

        - accuracy did not rise, responses repeat themselves, or no group varies in reward: warning;
        - accuracy fell as well: critical;
        - neither is logged, and responses grew to the length limit, so that they loop: warning;
        - accuracy rose: no finding until the fall of entropy is extreme, then `info`; a warning if
          accuracy is below .7, a third of all pairs of responses to one prompt are equal, as
          entropy and length imply, and accuracy has stalled or hardly any group varies;
        - the prompts are solved: `info`, since low entropy is then expected.

    Why it matters:
        A policy that no longer varies its responses cannot find better ones, and groups of equal
        responses contribute no gradient. In published runs, most of the entropy is lost in the
        first few hundred steps, and most of the run's total gain is made in the same steps.
        Learning also lowers entropy, so no level of entropy is a problem by itself.

    Evidence it needs:
        `entropy/mean`, or its estimate `entropy/sampled`. Optional: `accuracy/train` or
        `reward/mean`, `text/unique_ngram_rate`, `groups/duplicate_rate` and `length/mean`.

    Remedies:
        Raise the upper clip bound, raise the sampling temperature, make fewer updates per batch.

    When it is wrong:
        A temperature or prompt mix that changes during the run moves entropy without any learning.
        If the best policy for a task is nearly deterministic and no reward is logged, success looks
        like a collapse; the finding is then `info`. With one prompt per batch, entropy depends more
        on the prompt than on the policy, so the rule ignores a fall within the noise of a single
        reading. Exact zeros from the first step on mean that the framework did not compute entropy;
        the rule then does not apply.

    References:
        Cui et al. 2025, arXiv 2505.22617; DAPO, arXiv 2503.14476.
    """

    code: ClassVar[str] = "ENT001"
    name: ClassVar[str] = "entropy-collapse"
    condition: ClassVar[Condition] = "entropy-loss"
    judged_by_outcome: ClassVar[bool] = True
    summary: ClassVar[str] = "Entropy fell to a small share of its starting value."
    inputs: ClassVar[tuple[Need, ...]] = (ENTROPY_METRICS,)
    remedies: ClassVar[tuple[str, ...]] = (
        "clip-higher",
        "raise-temperature",
        "fewer-updates",
        "stop-training",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.22617", "arXiv 2503.14476")
    clearance: ClassVar[int] = 20

    collapsed_share: float = 0.2
    """Share of the starting value. Healthy small runs end at .38 of it while accuracy rises from .5
    to .7; training on positive advantages alone ends at .15."""
    extreme_share: float = 0.05
    """Share of the starting value below which the finding is raised even if the outcome rises. A
    healthy agent run went from .33 to .03 nats, a share of .09, while its reward rose from .3 to
    .9."""
    low_outcome: float = 0.5
    """Outcome below which a stall at extremely low entropy is a warning: most of the task is still
    to learn. Healthy agent runs ended at .003 nats with rewards of .75 to .95."""
    max_ngram_share: float = 0.5
    """Share of the initial distinct n-grams below which responses repeat themselves. Responses that
    become longer lose a tenth or two of it, loops nearly all."""
    min_duplicate_rate: float = 0.7
    """Share of responses that duplicate another of their group. Healthy runs reach .5 as entropy
    falls, collapsed ones .7 and more."""
    critical_loss: float = 0.35
    """Share of the best outcome whose loss makes the collapse critical; see REW002."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the entropy with its starting value, then look at the outcome."""
        series = chart.series(current_metric(chart, ENTROPY_METRICS))
        start = series.start
        if series.last == 0 and not any(series.tail(WINDOW)) and not (start and start.level):
            return NotApplicable(
                "the logged entropy is 0 at every step, so the framework did not compute it"
            )
        if start is None or start.level <= 0 or series.last > start.level / 2:
            return None
        level = series.level(_LATEST)
        share = level / start.level
        if not share < self.collapsed_share or start.level - level < series.noise(WINDOW):
            return None
        return self._judge(chart, share)

    def _judge(self, chart: Chart, share: float) -> Sighting | None:
        shown = f"at {share:.1%}" if share >= _SHOWN else f"below {_SHOWN:.1%}"
        text = f"Entropy is {shown} of its starting value"
        if is_solved(chart):
            solved = f"{text} because the training prompts are solved; this is no failure."
            return self._sighting(chart, "info", solved, ("keep-checkpoint", "harder-prompts"))
        if self._repeats_itself(chart.series(_NGRAMS)):
            return self._sighting(chart, "warning", f"{text}, and responses repeat themselves.")
        if lacks_signal(chart):
            return self._sighting(chart, "warning", f"{text}, and no group varies in reward.")
        improved = has_improved(chart)
        lengths = chart.series(_LENGTH)
        if improved is None and grew_to(lengths, recurring_mean(lengths)):
            text = f"{text}, and every response runs to {lengths.last:g} tokens: it loops."
            return self._sighting(chart, "warning", text, ("stop-training", "raise-temperature"))
        if improved is None:
            return self._sighting(chart, "info", f"{text}; no reward or accuracy is logged.")
        if improved:
            return self._despite_improvement(chart, share, text)
        if outcome_lost(chart) >= self.critical_loss:
            return self._sighting(chart, "critical", f"{text}, and {fall_text(chart)}.")
        return self._sighting(chart, "warning", f"{text}; {outcome_text(chart)}.")

    def _despite_improvement(self, chart: Chart, share: float, text: str) -> Sighting | None:
        noun = outcome_noun(chart)
        if share < self.extreme_share and not has_stalled(chart) and explores_no_more(chart):
            varied = f"{text}, and hardly any group varies in reward."
            return self._sighting(chart, "warning", varied)
        if share < self.extreme_share and has_stalled(chart):
            outcome = chart.series(outcome_metric(chart) or "").level(_STALLED)
            if has_stalled_without_signal(chart):
                stalled = f"{text}, hardly any group varies in reward, and {noun} has stalled."
                return self._sighting(chart, "warning", stalled)
            is_low = outcome < self.low_outcome or explores_no_more(chart)
            severity: Severity = "warning" if is_low else "info"
            stalled = f"{text}, and {noun} has stopped rising."
            if outcome < self.low_outcome and has_stalled_low(chart):
                stalled = f"{text}, and {noun} has stopped rising at {outcome:.2g}."
                return replace(self._sighting(chart, severity, stalled), weighs_outcome=True)
            return self._sighting(chart, severity, stalled)
        duplicates = chart.series(_DUPLICATES)
        duplicate_rate = duplicates.level(_LATEST) if len(duplicates) else 0.0
        if share >= self.extreme_share and duplicate_rate < self.min_duplicate_rate:
            return None
        text = f"{text} while {noun} rose; little exploration is left."
        return self._sighting(chart, "info", text)

    def _repeats_itself(self, ngrams: Series) -> bool:
        start = ngrams.baseline
        return start is not None and ngrams.level(_LATEST) < self.max_ngram_share * start.level

    def _sighting(
        self,
        chart: Chart,
        severity: Severity,
        text: str,
        remedies: tuple[str, ...] | None = None,
    ) -> Sighting:
        entropy = current_metric(chart, ENTROPY_METRICS)
        start = chart.series(entropy).start
        starts = outcome_start(chart) | {entropy: start.level if start else None}
        outcome = outcome_metric(chart)
        evidence = cite_all(chart, entropy, outcome, _NGRAMS, _DUPLICATES, starts=starts)
        most = self.collapsed_share * start.level if start else math.inf
        # The consequences that the severity rests on come long after the fall.
        onset = partial(first_step_where, chart.series(entropy), lambda value: value < most)
        return Sighting(severity, text, evidence, remedies, onset)
