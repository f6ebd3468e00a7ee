"""ENT001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import (
    fresh_of,
    has_improved,
    has_stalled,
    is_solved,
    outcome_lost,
    outcome_of,
)
from grpodoctor.runs.chart import WINDOW, Chart, Series
from grpodoctor.runs.estimators import step_noise
from grpodoctor.vocabulary.values import NotApplicable

_ENTROPY = ("entropy/mean", "entropy/sampled")
_NGRAMS = "text/unique_ngram_rate"
_DUPLICATES = "groups/duplicate_rate"
_LATEST = 5


@dataclass(frozen=True)
class EntropyCollapse(Rule):
    """The policy's entropy has fallen to a small share of its own start.

    What it sees:
        Entropy below a fifth of the run's own start, judged by what happened beside it. The outcome
        did not rise, or responses turned into loops: a warning. The outcome was lost as well:
        critical. The outcome rose: nothing, until the fall is extreme, and then a note of what it
        costs. The prompts are solved: saturation, which is no failure.

    Why it matters:
        A policy that no longer varies its answers cannot find better ones; groups of equal answers
        carry no gradient. In published runs most of the entropy is spent within the first few
        hundred steps, and with it most of the gain that the run will ever make. But sharpening is
        also what learning looks like: no level of entropy is a disease by itself.

    Evidence it needs:
        `entropy/mean`, or `entropy/sampled`, which estimates it. Better with `accuracy/train` or
        `reward/mean`, `text/unique_ngram_rate` and
        `groups/duplicate_rate`.

    Remedies:
        Let rare tokens rise further before the clip stops them, raise the sampling temperature,
        make fewer updates on each batch.

    When it is wrong:
        A temperature or prompt mix that changed in flight moves entropy without any learning.
        A task whose solution is a sharp policy and whose reward is not recorded looks collapsed;
        the finding is a note then. With one prompt to a batch entropy is the prompt's more than the
        policy's: a fall within the noise of a single reading is none. Exact zeros from the first
        step on mean that the framework did not compute entropy: the rule does not apply.

    References:
        Cui et al. 2025, arXiv 2505.22617; DAPO, arXiv 2503.14476.
    """

    code: ClassVar[str] = "ENT001"
    name: ClassVar[str] = "entropy-collapse"
    summary: ClassVar[str] = "Entropy fell to a small share of its own start."
    inputs: ClassVar[tuple[Need, ...]] = (_ENTROPY,)
    remedies: ClassVar[tuple[str, ...]] = ("clip-higher", "raise-temperature", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.22617", "arXiv 2503.14476")
    clearance: ClassVar[int] = 20

    collapsed: float = 0.2
    """Share of the start. Healthy small runs end at .38 of it while accuracy rises from .5 to .7,
    training on positive advantages alone at .15."""
    extreme: float = 0.05
    """Share of the start below which a rising outcome is worth a note. A healthy agent run was seen
    to go from .33 to .03 nats, a share of .09, while its reward rose from .3 to .9."""
    looping: float = 0.5
    """Share of the start's distinct n-grams below which responses repeat themselves. Lengthening
    answers lose a tenth or two of it, loops nearly all."""
    duplicated: float = 0.7
    """Responses that repeat another of their group. Healthy runs reach .5 as they sharpen,
    collapsed ones .7 and more."""
    lost: float = 0.35
    """Share of the best outcome whose loss makes the collapse critical; see REW002."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the present entropy with its start, then ask what happened to the outcome."""
        series = chart.series(fresh_of(chart, _ENTROPY))
        start = series.baseline
        if series.last == 0 and not any(series.tail(WINDOW)) and not (start and start.level):
            return NotApplicable("entropy is exactly zero at every step: not computed")
        if start is None or start.level <= 0 or series.last > start.level / 2:
            return None
        level = series.level(_LATEST)
        share = level / start.level
        if not share < self.collapsed or start.level - level < step_noise(series.tail(WINDOW)):
            return None
        return self._judge(chart, share)

    def _judge(self, chart: Chart, share: float) -> Sighting | None:
        fell = f"entropy is at {share:.1%} of its start"
        if is_solved(chart):
            text = f"{fell} and the training prompts are solved: saturation, not failure"
            return self._sighting(chart, "info", text, ("stop-training", "harder-prompts"))
        if self._is_looping(chart.series(_NGRAMS)):
            return self._sighting(chart, "warning", f"{fell} and responses repeat themselves")
        improved = has_improved(chart)
        if improved is None:
            text = f"{fell}; no reward or accuracy is recorded to tell learning from collapse"
            return self._sighting(chart, "info", text)
        return self._beside_success(chart, share, fell) if improved else self._alone(chart, fell)

    def _alone(self, chart: Chart, fell: str) -> Sighting:
        lost = outcome_lost(chart)
        if lost >= self.lost:
            return self._sighting(
                chart, "critical", f"{fell} and {lost:.0%} of the outcome is lost"
            )
        return self._sighting(chart, "warning", f"{fell} while the outcome did not rise")

    def _beside_success(self, chart: Chart, share: float, fell: str) -> Sighting | None:
        if share < self.extreme and has_stalled(chart):
            text = f"{fell}, and the outcome, which had risen with it, has stopped rising"
            return self._sighting(chart, "warning", text)
        duplicates = chart.series(_DUPLICATES)
        copies = duplicates.level(_LATEST) if len(duplicates) else 0.0
        if share >= self.extreme and copies < self.duplicated:
            return None
        text = f"{fell} while the outcome rose: healthy, but little exploration is left to spend"
        return self._sighting(chart, "info", text)

    def _is_looping(self, ngrams: Series) -> bool:
        start = ngrams.baseline
        return start is not None and ngrams.level(_LATEST) < self.looping * start.level

    def _sighting(
        self,
        chart: Chart,
        severity: Severity,
        text: str,
        remedies: tuple[str, ...] | None = None,
    ) -> Sighting:
        evidence = cite_all(
            chart, fresh_of(chart, _ENTROPY), outcome_of(chart), _NGRAMS, _DUPLICATES
        )
        return Sighting(severity, text, evidence, remedies)
