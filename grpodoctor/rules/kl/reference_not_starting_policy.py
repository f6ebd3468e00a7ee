"""KLD003."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.distillation import REFERENCE_IS_TEACHER, has_teacher
from grpodoctor.rules.shared.health.run_health import RECENT, current_metric, outcome_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.series import OPENING, Series
from grpodoctor.vocabulary.conditions import Condition

_KLS = ("kl/reference/k3", "kl/reference/k1", "kl/reference/k2")
_RATE = "optimizer/learning_rate"
_ENGINES = ("mismatch/kl_k3", "mismatch/kl_k1")
_OLD_POLICY = ("kl/old_policy/k3", "kl/old_policy/k2")


class ReferenceNotStartingPolicy(Rule):
    """The KL divergence from the reference is large from the first step on.

    What it sees:
        The first readings of the KL divergence from the reference, before the policy can have
        moved: half a nat per token or more (`info`), or one nat (warning). A tenth of a nat is
        enough if the logged divergence from the old policy is far smaller, if the learning rate of
        the first steps is near zero and the readings are beyond their noise, or if the next seven
        readings are no higher while the run learns. A hundredth of a nat is enough if the log
        begins with the first step, the next nine readings are no higher, and the two engines differ
        by less than half of it. At ten nats or more
        the finding is critical if the readings stay as high, since no two models of the same text
        differ that much: the log-probabilities belong to other tokens.

    Why it matters:
        At the first step the policy usually is the reference, and the divergence is zero. If it is
        not, a KL penalty pulls the policy to another model from the first step on and competes with
        the reward. Misaligned log-probabilities (shifted by one token, another template, another
        tokenizer, a wrong mask) make the penalty noise.

    Evidence it needs:
        `kl/reference/k3`, `kl/reference/k1` or `kl/reference/k2` from the first step of the run.
        Optional: `kl/old_policy/k3` or `k2`, `optimizer/learning_rate`.

    Remedies:
        Load the reference from the checkpoint that the policy starts from. At ten nats or more,
        first compare the log-probabilities of one response under both models, token by token.

    When it is wrong:
        A run that is resumed, or whose log begins later, starts away from its reference: the rule
        therefore reports an offset only in a log that begins with the run, except at ten nats. A
        reference that differs on purpose (a base model as the anchor of a fine-tuned policy, or the
        teacher of a distillation) looks the same. The rule therefore does not apply where a
        divergence to a teacher is logged, and a rising reward makes the finding `info`. With a
        learning rate that is far too high, the first readings are high already.

    References:
        Schulman, Approximating KL Divergence, 2020; ProRL, arXiv 2505.24864, on resetting the
        reference.
    """

    code: ClassVar[str] = "KLD003"
    name: ClassVar[str] = "reference-not-starting-policy"
    condition: ClassVar[Condition] = "wrong-reference"
    judged_by_outcome: ClassVar[bool] = True
    summary: ClassVar[str] = "The KL divergence from the reference is large at the first step."
    inputs: ClassVar[tuple[Need, ...]] = (_KLS,)
    remedies: ClassVar[tuple[str, ...]] = ("check-reference",)
    references: ClassVar[tuple[str, ...]] = (
        "Schulman, Approximating KL Divergence, 2020",
        "arXiv 2505.24864",
    )
    persistence: ClassVar[int] = 1

    min_kl: float = 0.5
    """Nats per token of the first readings. Public runs whose reference is the starting policy
    begin at 0 to .01, and at .19 after several updates; one with another reference began at
    1.1."""
    certain_kl: float = 0.1
    """The same where the divergence from the old policy shows that the first updates cannot have
    moved the policy as far."""
    level_kl: float = 0.01
    """The same in the first reading of the first step, where no update has been made yet, if the
    readings after it are alike. Engines in bf16 whose weights are equal show up to .004."""
    max_moving_rate: float = 1e-6
    """Sum of the learning rates up to the third reading that cannot move the policy as far: AdamW
    changes no weight by more, and one step of the usual size yields a KL below .001."""
    min_noises: float = 3.0
    """First readings as a multiple of the noise of one, in that case: four standard errors."""
    max_growth: float = 1.5
    """Latest three over the first three of ten readings up to which the updates did not cause them:
    a KL that grows with the updates is at least doubled, and more often squared."""
    most_updates: float = 20.0
    """First reading as a multiple of what one batch of updates moves the policy. After one batch it
    is about 1."""
    warning_kl: float = 1.0
    """Nats per token from which the two models write entirely different text; see KLD002. Two
    public runs that began at .54 went well, one that began at 1.1 did not."""
    misaligned_kl: float = 10.0
    """Nats per token that no pair of models of the same text reaches: about ln V, the divergence
    from a uniform choice among all tokens. Misaligned logs showed 10 to 30."""
    min_misaligned_readings: int = 10
    """Readings whose median must be as high: a single token with a probability of e^-15 moves the
    mean of a batch by tens of nats, but not that of most batches."""
    max_first_interval: float = 2.0
    """The first step, in intervals between readings, at which a log still begins with the run."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the first readings while they are in the window."""
        if has_teacher(chart):
            return REFERENCE_IS_TEACHER
        name = current_metric(chart, _KLS)
        series = chart.series(name)
        opening = series.opening
        if opening is None or opening.level < self.level_kl:
            return None
        is_certain = self._exceeds_first_updates(chart, opening.level)
        is_certain = is_certain or self._cannot_have_moved(chart, series)
        stays_level = self._stays_level(chart, series)
        min_kl = self.certain_kl if is_certain or stays_level else self.min_kl
        if stays_level and self._is_away_at_once(chart, series):
            min_kl = self.level_kl
        if not opening.level >= min_kl or series.level(OPENING) < min_kl / 2:
            return None
        first, first_step = opening.level, series.first_step
        if first >= self.misaligned_kl and self._stays_misaligned(series):
            text = (
                f"The KL to the reference starts at {first:.3g} nats: "
                "the log-probabilities are misaligned."
            )
            remedies, evidence = ("check-loss-mask",), (cite(chart, name, 0.0),)
            return Sighting("critical", text, evidence, remedies, find_onset=lambda: first_step)
        if not self._begins_with_run(series):
            return None
        text = f"The KL to the reference starts at {first:.2g} nats instead of 0."
        severity: Severity = "warning" if first >= self.warning_kl else "info"
        evidence = (cite(chart, name, 0.0),)
        return Sighting(severity, text, evidence, find_onset=lambda: first_step)

    def _is_away_at_once(self, chart: Chart, series: Series) -> bool:
        """Whether the first reading of the first step is above zero, and no mismatch explains it.

        Log-probabilities of the sampler in place of the learner's add the mismatch to the KL.
        """
        engines = (chart.series(name).opening for name in _ENGINES)
        mismatch = max((opening.level for opening in engines if opening), default=0.0)
        is_first = series.first_step <= 1
        return is_first and series.head(1)[0] >= max(self.level_kl, 2 * mismatch)

    def _exceeds_first_updates(self, chart: Chart, first: float) -> bool:
        moved = [chart.series(name).head(OPENING) for name in _OLD_POLICY]
        largest = max((max(values) for values in moved if values), default=math.nan)
        return first > self.most_updates * largest > 0

    def _cannot_have_moved(self, chart: Chart, series: Series) -> bool:
        """Whether the rates of the first steps are too small for a KL beyond its noise."""
        rates, opening = chart.series(_RATE).head(OPENING), series.opening
        if opening is None or len(rates) < OPENING or not min(rates) >= 0:
            return False
        first, second = series.first_steps
        if sum(rates[:-1]) * (second - first) > self.max_moving_rate:
            return False  # the third reading comes before the update of its step
        # The median of three readings scatters by .7 of the noise of one.
        return opening.level > self.min_noises * step_noise(series.head(RECENT))

    def _stays_level(self, chart: Chart, series: Series) -> bool:
        """Whether ten readings are alike: updates that caused the first would have moved further.

        The distance grows at least with the square root of the number of updates. A policy that the
        first updates ruined has no gradient to move on, and a rate that falls hardly moves it.
        """
        first, outcome = series.head(RECENT), chart.series(outcome_metric(chart) or "")
        rates = chart.series(_RATE).head(RECENT)
        if len(first) < RECENT or not len(outcome) or (rates and rates[-1] < max(rates) / 2):
            return False
        if outcome.level(RECENT) < outcome.head(1)[0] / 2:
            return False
        later = statistics.median(first[-OPENING:])
        return later <= self.max_growth * statistics.median(first[:OPENING])

    def _stays_misaligned(self, series: Series) -> bool:
        """Whether the first readings stay as high: a single token can dominate a few of them."""
        first = series.head(RECENT)
        is_long = len(first) >= self.min_misaligned_readings
        return is_long and statistics.median(first) >= self.misaligned_kl

    def _begins_with_run(self, series: Series) -> bool:
        first, second = series.first_steps
        return first <= max(1, self.max_first_interval * (second - first))
