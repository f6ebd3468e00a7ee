"""MIS001."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import (
    SYNC,
    UNQUANTIZED,
    compare_with_probe,
    correction_of,
    is_quantized,
    mismatch_remedies,
    weights_tokens,
)
from grpodoctor.rules.shared.environment_tokens import may_include_environment
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    current_metric,
    first_step_where,
    has_lost_outcome,
    outcome_noun,
)
from grpodoctor.rules.shared.mismatch_levels import ORDINARY
from grpodoctor.rules.shared.outcome.flat_outcome import is_flat
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import PROBED

_MEAN = "mismatch/prob_diff_mean"
_MAX = "mismatch/prob_diff_max"
_WORST_MEAN = f"{_MEAN}/worst_sequence"
_WORST_MAX = f"{_MAX}/worst_sequence"
_PROBABILITIES = (_WORST_MAX, _MAX, _MEAN)
_LOGPROBS = "mismatch/logprob_diff_mean"
_KLS = ("mismatch/kl_k3", "mismatch/kl_k1")
_GAPS = (*_KLS, _LOGPROBS)
_WEIGHT = "correction/weight_mean"
_OF_MISALIGNED = ("check-loss-mask", "recompute-old-logprobs")
_OF_DISTRIBUTION = ("one-temperature", "whole-distribution")


class EngineMismatch(Rule):
    """Sampler and learner assign different probabilities to the sampled tokens.

    What it sees:
        The difference in probability of the sampled tokens, in three ways:

        - on average, where it is large enough to do harm;
        - in the worst response, if it is far off and the average hides it;
        - in the worst token, if it is far above its starting value.

        The evidence names the response. A mean difference is `info` if a correction is in force. If
        the log has no differences in probability, the rule judges the mean difference in
        log-probability, or the KL divergence between the two engines. Correction weights whose mean
        differs from 1 from the first steps on are evidence too: for tokens that the stated sampler
        produced, the expected weight is exactly 1, however far the two policies differ.

        A mismatch in log-probability or KL between the upper end of ordinary engine pairs and the
        warning level is `info`: a mixture of experts may show it, and so may a sampler at another
        temperature whose tokens are mostly certain.

        A smaller one is `info` as well if it is a large part of the entropy: a tenth for the KL, a
        fifth for the log-probabilities, at first, and half of that later. Certain tokens have
        neither. It is a warning if nothing corrects for it and the outcome has not risen in fifty
        steps, unless the prompts are solved.

        A gap that the first step has already, and that does not grow, comes from no stale weights:
        the two engines describe different distributions. A gap that no temperature or precision
        yields shows that the log-probabilities belong to other tokens.

    Why it matters:
        The gradient assumes that the learner's policy sampled the tokens. The larger the mismatch,
        the more of the gradient belongs to another policy. A subset of sequences that is far off
        has its own cause (a prefix cache, a template, one rank) and is invisible in a mean.

    Evidence it needs:
        `mismatch/prob_diff_max/worst_sequence` or `mismatch/prob_diff_max`; optional:
        `mismatch/prob_diff_mean` and its worst sequence. Otherwise `mismatch/logprob_diff_mean`,
        `mismatch/kl_k3` or `mismatch/kl_k1`, optional: `entropy/mean` or `entropy/sampled`; or
        `correction/weight_mean`. A probe that is attached
        to the run replaces readings that the run does not log. If the run logs them, the rule
        compares them with the probe: readings above three times the probe's value mean that the
        weights or inputs of the two engines differ.

    Remedies:
        Recompute the old log-probabilities with the learner and use truncated importance sampling;
        sync the sampler more often if it is stale. `grpodoctor probe` finds the cause. For a gap
        from the first step on: one temperature and the whole distribution on both sides. If the
        sampler is quantized, the correction or a sampler of higher precision comes first. For
        misaligned log-probabilities: compare the tokens that both sides score.

    When it is wrong:
        Tokens of tools or an environment in the loss differ as well: the sampler has no probability
        for them. The summary states so where such runs do not show that they are masked (DAT001).

        The maximum over a response grows with its length and nears 1 in healthy bf16 runs with long
        responses, so the rule only compares it with its starting value. If one engine records
        log-probabilities before temperature scaling and the other after it, this looks like a
        mismatch but is a bug in the recording. A quantized sampler differs a little more than the
        threshold while the policy has high entropy (int4 .03 at first) and less as entropy falls
        (.015): a finding may end without any treatment because entropy fell. Log-probabilities
        weigh unlikely tokens, so a sampler that is harmless in probability can exceed the threshold
        in log-probability. Weights of whole responses scatter far more than those of tokens and
        have a higher threshold; where the log does not tell which they are, a finding below it is
        `info`.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training;
        tinker-cookbook, skills/research/references/hyperparams.md, for a divergence below .01.
    """

    code: ClassVar[str] = "MIS001"
    name: ClassVar[str] = "engine-mismatch"
    condition: ClassVar[Condition] = "engine-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("sampler-learner-mismatch-worst-sequence",)
    summary: ClassVar[str] = "Sampler and learner assign different probabilities to sampled tokens."
    inputs: ClassVar[tuple[Need, ...]] = ((*_PROBABILITIES, _LOGPROBS, *_KLS, _WEIGHT),)
    remedies: ClassVar[tuple[str, ...]] = (
        "tis",
        "recompute-old-logprobs",
        "sync-sampler",
        UNQUANTIZED,
        *_OF_DISTRIBUTION,
        "check-loss-mask",
        "mask-environment-tokens",
    )
    references: ClassVar[tuple[str, ...]] = (
        "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
    )

    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    warning_kl: float = 0.02
    """Divergence in nats per token for a warning: twice what tinker-cookbook calls stable. In small
    runs int4 samplers show .03 to .05, int8 and bf16 .0001; large ones in bf16 up to .009."""
    critical_kl: float = 0.15
    """Divergence that is critical: .14 to .19 where accuracy was lost."""
    warning_logprob: float = 0.04
    """Mean |log p - log p'| in nats for a warning: twice the upper end of what ordinary engine
    pairs show (.004 to .02). A mixture of experts with truncated responses showed .05 from step
    0."""
    critical_logprob: float = 0.15
    """Mean |log p - log p'| that is critical: collapsed runs reach .25, int4 samplers whose
    log-probabilities enter the ratio .19."""
    min_logprob_readings: int = 3
    """Minimum readings: each is a mean over thousands of tokens, and no few dominate it."""
    weight_tolerance: float = 0.1
    """Distance of the mean token weight from 1: a tenth of the probability is capped, masked, or
    belongs to tokens that another distribution produced."""
    response_weight_tolerance: float = 0.5
    """The same for weights of whole responses, which are products over their tokens. Weights of
    unknown kind are a note between the two."""
    warning_difference: float = 0.02
    """Mean difference above which small runs with quantized samplers showed harm (.02 to .03).
    Ordinary engine pairs show .0004 to .001 in bf16, and .004 with a coarse cache."""
    critical_difference: float = 0.09
    """Mean difference at which every such run lost accuracy (.74 to .40)."""
    outlier_difference: float = 0.05
    """Mean difference within the worst response: fifty times that of an ordinary pair."""
    outlier_factor: float = 10.0
    """Multiple of the batch mean above which the worst response is a separate problem."""
    growth_factor: float = 3.0
    """Multiple of the starting value of the worst token."""
    misaligned_difference: float = 0.2
    """Mean difference in probability from the first step on that no precision or temperature
    yields: ten times that of quantized samplers. Log-probabilities that are shifted by a token
    differ by .3 and more, or by above one nat: a factor of e for the typical token."""
    lasting_share: float = 0.6
    """Share of its largest level that a gap has at both ends of the run if it does not grow."""
    ordinary: ClassVar[Mapping[str, float]] = {_MEAN: 0.03, _LOGPROBS: 0.08}
    """Largest levels that engines with one distribution show in bf16 and int4 (probabilities), and
    with a mixture of experts (log-probabilities, .05); beyond them, another distribution is
    likely."""
    unusual_factor: float = 1.5
    """A mismatch above a warning level divided by this is worth a note. The two warning levels are
    twice what ordinary engine pairs show at most, so this is a third more than such pairs show."""
    kl_of_entropy: float = 0.1
    """Divergence per nat of entropy that is worth a note. Two tokens of probability .9 and .1 have
    this ratio at a sampling temperature of .65 or 1.5; a logit that is off by .1 gives .001. The
    public logs that have both show at most .07, which are samples of older weights (counted once;
    no command prints it)."""
    logprob_of_entropy: float = 0.2
    """The same for the mean |log p - log p'|, which a small error changes more: temperatures of .65
    and 1.5 give .33 and .62, and .23 at the lower one for tokens of .98 and .02; a logit that is
    off by .1 gives .05. The public logs show at most .15, a mixture of experts (counted once)."""
    least_kl: float = 0.002
    """Divergence below which rounding may be the reason, where hardly any entropy is left."""
    least_logprob: float = 0.01
    """The same for the mean |log p - log p'|."""
    min_flat_readings: int = 50
    """Readings after which such a gap is an alarm if the outcome has not risen; see MIS002."""
    min_readings: int = 5
    """Minimum readings for the level of a divergence, which a few tokens can dominate."""
    min_grown_difference: float = 0.3
    """Minimum difference of the worst token that counts as grown; bf16 pairs show .15 to .24 over
    6,000 tokens."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the mean first, then the worst response, then the worst token."""
        if _has_probabilities(chart):
            judged = self._by_mean(chart) or self._by_response(chart) or self._by_growth(chart)
        else:
            judged = self._by_logprob(chart) or self._by_divergence(chart)
        onset = self._find_onset(chart) if judged else None
        if judged is None:
            judged, onset = self._by_entropy(chart), partial(_first_gap, chart)
        if judged is None:
            judged, onset = self._by_weight(chart), partial(_first_step, chart.series(_WEIGHT))
        if judged is None:
            return None
        severity, text = judged
        level = chart.series(_MEAN).level(2 * RECENT)
        relation, probe_text = compare_with_probe(chart, _MEAN, level)
        remedies = mismatch_remedies(chart)
        if relation == "beyond":
            remedies = tuple(dict.fromkeys((SYNC, *remedies)))
        elif severity != "info" and not probe_text:
            about, remedies = self._since_first_step(chart, remedies)
            if not about and may_include_environment(chart):
                about = "; or the loss includes tool output"
                remedies = (*remedies, "mask-environment-tokens")
            text += about
        differences = (_MEAN, f"{_MEAN}/{PROBED}", _WORST_MEAN, _MAX, _WORST_MAX)
        evidence = cite_all(chart, *differences, _WEIGHT)
        if not _has_probabilities(chart):
            evidence = cite_all(chart, _LOGPROBS, *_KLS, _WEIGHT)
        return Sighting(severity, f"{text}{probe_text}.", evidence, remedies, onset)

    def _since_first_step(
        self, chart: Chart, remedies: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...]]:
        """What a gap that the first step already had means: no stale weights can have caused it."""
        for name, misaligned in ((_MEAN, self.misaligned_difference), (_LOGPROBS, 1.0)):
            series = chart.series(name)
            opening = series.opening
            if opening is None or series.first_step > 1:
                continue
            level = series.level(2 * RECENT)
            if min(opening.level, level) >= misaligned:
                return " from the first step on: they are misaligned", _OF_MISALIGNED
            lasting = self.lasting_share * max(opening.level, level)
            if not min(opening.level, level) >= lasting:
                continue
            others = tuple(remedy for remedy in remedies if remedy != SYNC)
            if is_quantized(chart):
                text = " from the first step on: the sampler is quantized"
                return text, (*others, *_OF_DISTRIBUTION)
            if min(opening.level, level) >= self.ordinary[name]:
                text = " from the first step on: compare temperature, top-p and precision"
                return text, (*_OF_DISTRIBUTION, *others)
        return "", remedies

    def _find_onset(self, chart: Chart) -> Callable[[], int] | None:
        """Dates a mean that exceeds its threshold: a level of twenty readings is ten late."""
        thresholds = {
            _MEAN: self.warning_difference,
            _LOGPROBS: self.warning_logprob,
            current_metric(chart, _KLS): self.warning_kl,
        }
        for name, threshold in thresholds.items():
            series = chart.series(name)
            if len(series) and series.level(2 * RECENT) >= threshold:
                return partial(_first_step_above, series, threshold)
        return None

    def _by_mean(self, chart: Chart) -> tuple[Severity, str] | None:
        series = chart.series(_MEAN)
        if not len(series) or series.last < self.warning_difference / 2:
            return None
        level = series.level(2 * RECENT)  # a whole period of a sampler that is synced rarely
        if not level >= self.warning_difference:
            return None
        text = f"Sampler and learner probabilities differ by {level:.3f} on average"
        return self._weigh(chart, text, is_ruinous=level >= self.critical_difference)

    def _by_logprob(self, chart: Chart) -> tuple[Severity, str] | None:
        series, ordinary = chart.series(_LOGPROBS), self.warning_logprob / self.unusual_factor
        if len(series) < self.min_logprob_readings or series.last < ordinary / 2:
            return None
        level = series.level(2 * RECENT)
        text = f"Sampler and learner log-probabilities differ by {level:.2g} nats on average"
        if not level >= self.warning_logprob:
            return self._note(chart, text, series, self.warning_logprob)
        return self._weigh(chart, text, is_ruinous=level >= self.critical_logprob)

    def _by_weight(self, chart: Chart) -> tuple[Severity, str] | None:
        series, start = chart.series(_WEIGHT), chart.series(_WEIGHT).start
        if start is None or not chart.is_fresh(_WEIGHT):
            return None
        level = series.level(2 * RECENT)
        distance = min(abs(level - 1), abs(start.level - 1))
        if not distance >= self.weight_tolerance:
            return None
        text = f"The mean correction weight has been {level:.2f} instead of 1 from the start"
        is_token = weights_tokens(chart)
        if is_token or distance >= self.response_weight_tolerance:
            return "warning", text
        if is_token is None:
            return "info", f"{text}; if it weights tokens, the engines differ"
        return None

    def _by_divergence(self, chart: Chart) -> tuple[Severity, str] | None:
        series = chart.series(current_metric(chart, _KLS))
        if len(series) < self.min_readings:
            return None
        level = series.level(2 * RECENT)
        text = f"Sampler and learner diverge by {level:.2g} nats per token"
        if not level >= self.warning_kl:
            return self._note(chart, text, series, self.warning_kl)
        return self._weigh(chart, text, is_ruinous=level >= self.critical_kl)

    def _by_entropy(self, chart: Chart) -> tuple[Severity, str] | None:
        """A gap that is a large part of the entropy, as that of another distribution is.

        Tokens that are certain have neither, so their share does not matter.
        """
        name = current_metric(chart, _GAPS)
        is_logprob = name == _LOGPROBS
        series, floor = chart.series(name), self.least_logprob if is_logprob else self.least_kl
        if len(series) < 2 * RECENT or not chart.is_fresh(name) or series.window_max() < floor:
            return None  # the usual case, before the level is computed
        level = series.level(2 * RECENT)
        if not level >= floor:
            return None
        entropy = chart.series(current_metric(chart, ENTROPY_METRICS))
        nats = entropy.level(2 * RECENT)
        part = self.logprob_of_entropy if is_logprob else self.kl_of_entropy
        if self._began_above(series, entropy, part):
            part /= 2
        least = max(part * nats, floor)
        if not nats > 0 or not level >= least or not series.last >= least / 2:
            return None
        differences = chart.series(_MEAN)
        if len(differences) and not differences.level(2 * RECENT) >= ORDINARY[_MEAN]:
            return None  # the gap is that of unlikely tokens alone
        share = level / nats
        gap = "log-probabilities differ by" if is_logprob else "diverge by"
        text = (
            f"Sampler and learner {gap} {share:.0%} of the entropy: temperature, top-p or weights "
            "differ"
        )
        if len(series) < self.min_flat_readings or not is_flat(chart):
            return "info", text
        return self._weigh(chart, text, is_ruinous=False)

    def _began_above(self, series: Series, entropy: Series, part: float) -> bool:
        """Whether a gap was that part of the entropy at the start: it may shrink with learning."""
        gap, nats = series.opening, entropy.opening
        return gap is not None and nats is not None and gap.level >= part * nats.level > 0

    def _note(
        self, chart: Chart, text: str, series: Series, warning: float
    ) -> tuple[Severity, str] | None:
        """A mismatch between what ordinary engine pairs show and what does harm, uncorrected.

        One that did harm before and is lower now is over.
        """
        level = series.level(2 * RECENT)
        was_harmful = series.highest is not None and series.highest.level >= warning
        if level < warning / self.unusual_factor or was_harmful or correction_of(chart):
            return None
        return "info", f"{text}, more than ordinary engine pairs"

    def _weigh(self, chart: Chart, text: str, *, is_ruinous: bool) -> tuple[Severity, str]:
        if is_ruinous:
            return "critical", text
        correction = correction_of(chart)
        if not correction:
            return "warning", text
        if has_lost_outcome(chart):
            noun = outcome_noun(chart)
            return "warning", f"{text}; {correction} corrects for it, yet {noun} fell"
        return "info", f"{text}; {correction} corrects for it"

    def _by_response(self, chart: Chart) -> tuple[Severity, str] | None:
        worst, mean = chart.series(_WORST_MEAN), chart.series(_MEAN)
        if not (len(worst) and len(mean)) or worst.last < self.outlier_difference:
            return None
        level, usual = worst.level(RECENT), mean.level(RECENT)
        if not level >= max(self.outlier_difference, self.outlier_factor * usual):
            return None
        text = f"One response differs by {level:.2f} in token probability"
        return "warning", f"{text}; the batch average is {usual:.1g}"

    def _by_growth(self, chart: Chart) -> tuple[Severity, str] | None:
        for name in (_WORST_MAX, _MAX):
            series, start = chart.series(name), chart.baseline(name)
            if start is None or not chart.is_fresh(name) or series.last < self.min_grown_difference:
                continue
            level = series.level(RECENT)
            if level >= max(self.min_grown_difference, self.growth_factor * start.level):
                text = f"The worst token differs by {level:.2f} in probability"
                return "warning", f"{text}, up from {start.level:.2f}"
        return None


def _has_probabilities(chart: Chart) -> bool:
    """Whether a difference of probabilities was logged."""
    if not chart.fresh.isdisjoint(_PROBABILITIES):
        return True  # the usual case
    return any(len(chart.series(name)) for name in _PROBABILITIES)


def _first_step(series: Series) -> int:
    return next(step for step, _ in series)


def _first_step_above(series: Series, threshold: float) -> int:
    """First step since which most readings reach a threshold; the step of the first that does."""
    since = first_step_where(series, partial(operator.le, threshold))
    later = (step for step, value in series if step >= since and value >= threshold)
    return next(later, int(since))


def _first_gap(chart: Chart) -> int:
    """The first step of a gap that is a part of the entropy; such a gap hardly changes its size."""
    series = chart.series(current_metric(chart, _GAPS))
    return _first_step_above(series, series.level(2 * RECENT) / 2)
