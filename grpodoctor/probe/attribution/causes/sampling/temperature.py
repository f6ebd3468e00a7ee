"""The two sides' log-probabilities have different temperatures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.engine_files import read_config
from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.contract import TEMPERATURES, Processing

_FIT_TOKENS = 20_000
_OFF = 0.01
"""Relative difference from which two temperatures count as different."""
_ABOUT = 0.03
"""The same if one temperature is estimated from the sampled tokens, which may be few."""
_LEAST_LOGPROB = -30.0
"""Bound of a single token's log-probability, also of one that a truncation excludes."""
_MOST_GAIN = 5.0
"""Bound of what a single token says about two temperatures, in nats."""
_HINT = 0.05
"""Share of the gap from which a fit justifies an experiment."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit of the learner's log-probabilities at many temperatures."""

    reported: float
    """Temperature at which the learner is closest to the sampler's reported values."""
    drawn: float
    """Maximum-likelihood temperature of the sampled tokens."""
    share: float
    """Share of the gap that disappears at `reported`."""
    typical: float
    """Like `reported`, for the typical token: few tokens with another fault hardly count."""


class Temperature(Cause):
    """Fitted with the learner, then confirmed by scoring at the fitted temperature."""

    id = "temperature"
    title = "The two sides use different temperatures"
    remedies = (
        "Give both sides the same temperature: divide the learner's logits by the sampling "
        "temperature before the log-softmax, and check that the sampler was started with it.",
        "Check whether both engine and trainer apply a temperature, or whether a default comes "
        "from generation_config.json.",
    )
    cost = 0
    least = 0.5
    subtle = True
    when = "gap"
    is_surrogate = True
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The fitted temperature differs from the learner's."""
        fitted = fit(variant)
        now = variant.setup.processing.temperature
        if fitted is None or abs(fitted.reported / now - 1) < _OFF or fitted.share < _HINT:
            return None
        if not variant.setup.swapped and is_raw(experiments, fitted):
            return None
        return Hypothesis(fitted.share, fit_facts(fitted))

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score at the fitted and at the requested temperature."""
        reported, drawn, typical = (
            float(hypothesis.facts[name]) for name in ("reported", "drawn", "typical")
        )
        temperatures = _candidates(experiments, variant, reported)
        if abs(typical / reported - 1) >= _OFF:
            temperatures += [round(typical, 2)]
        after = rescored_at(experiments, variant, list(dict.fromkeys(temperatures)))
        asked, now = experiments.case.sampling.temperature, variant.setup.processing.temperature
        best = after.setup.processing.temperature
        if variant.setup.swapped:
            summary = (
                f"the learner's log-probabilities have temperature {best:.3g}; a reference engine "
                f"agrees with the sampler at {now:.3g}"
            )
            figures = {"fitted": reported, "asked": asked, "learner": best}
            identity = _identity(experiments, best, now)
            return ExperimentResult(
                summary=summary, after=after, figures=figures, identity=identity
            )
        return ExperimentResult(
            summary=(
                f"the sampler's log-probabilities have temperature {best:.3g}, the learner's "
                f"{now:.3g}: {_side(asked, best, drawn)}"
            ),
            after=after,
            figures={"fitted": reported, "drawn": drawn, "asked": asked, "learner": now},
            identity=_identity(experiments, best, now),
        )


def _identity(experiments: Experiments, one: float, other: float) -> Identity | None:
    """The name of two temperatures that the requested one does not explain; None if it does.

    A factor on all logits has the same effect on every token. Only a temperature that a side was
    asked for, and that the other side lacks or applies twice, is known to be a temperature.
    """
    asked, ratio = experiments.case.sampling.temperature, one / other
    if abs(asked - 1) >= _OFF and _is_either(ratio, asked):
        return None
    config = read_config(model_path(experiments.case.learner))
    scales = [
        key
        for key, value in config.items()
        if _LOGIT_SCALE.search(key)
        and isinstance(value, int | float)
        and value > 0
        and abs(value - 1) >= _OFF
        and _is_either(ratio, float(value))
    ]
    ignored = f": one side may ignore {scales[0]}" if scales else ""
    return Identity(
        Temperature.id, f"The two sides scale logits differently (temperature{ignored})",
        (*Temperature.remedies, _SAME_EFFECT),
    )  # fmt: skip


def _is_either(ratio: float, factor: float) -> bool:
    """Whether a ratio is a factor, or one over it."""
    return any(abs(ratio / each - 1) < _ABOUT for each in (factor, 1 / factor))


_LOGIT_SCALE = re.compile(r"logits?_scal|logits?_mult|lm_head_mult|head_scale|output_multiplier")
"""Names of a factor on logits in config.json: `logit_scale`, `logits_scaling`, …"""
_SAME_EFFECT = (
    "A factor on all logits has the same effect as a temperature: compare logit_scale, "
    "logits_scaling or lm_head_multiplier of config.json, and the scale of a quantized output head."
)


def fit(variant: Variant) -> Fit | None:
    """Fit the temperature at which the two sides agree best; None without the columns."""
    tokens = variant.tokens
    if tokens.at_temperature_NT is None or variant.setup.rescored is not None or not tokens.any:
        return None
    chosen_N = np.flatnonzero(tokens.finite_N)[:_FIT_TOKENS]
    columns_NT = tokens.at_temperature_NT[chosen_N].astype(np.float64)
    sampler_N = tokens.sampler_N[chosen_N]

    def off(learner_N: Floats) -> float:
        return float(np.mean(np.minimum(np.square(learner_N - sampler_N), 25.0)))

    def surprise(learner_N: Floats) -> float:
        return -float(np.mean(np.maximum(learner_N, _LEAST_LOGPROB)))

    reported, drawn = (_least(columns_NT, loss) for loss in (off, surprise))
    now_N = tokens.learner_N[chosen_N]
    most = float(np.median(np.abs(now_N - sampler_N)))

    def off_typical(learner_N: Floats) -> float:
        return float(np.mean(np.minimum(np.abs(learner_N - sampler_N), most)))

    before = off(now_N)
    share = 1 - off(_between(columns_NT, reported)) / before if before > 0 else 0.0
    return Fit(reported, drawn, share, _least(columns_NT, off_typical))


def fit_truncated(variant: Variant) -> float | None:
    """`Fit.reported` for a truncated sampling distribution; None without the columns.

    Truncation only raises the probabilities that it keeps. At the right temperature, no token has a
    higher probability in the learner. At a higher temperature rare tokens do, at a lower one
    frequent tokens.
    """
    tokens = variant.tokens
    if tokens.at_temperature_NT is None or not tokens.any:
        return None
    chosen_N = np.flatnonzero(tokens.finite_N)[:_FIT_TOKENS]
    columns_NT = tokens.at_temperature_NT[chosen_N].astype(np.float64)
    sampler_N = tokens.sampler_N[chosen_N]

    def above(learner_N: Floats) -> float:
        return float(np.mean(np.square(np.clip(learner_N - sampler_N, 0.0, 5.0))))

    return _least(columns_NT, above)


def learner_at(tokens: Tokens, now: Processing, temperature: float) -> Floats:
    """The learner's log-probabilities at a temperature, shape (N,); as they are without columns."""
    columns_NT = tokens.at_temperature_NT
    if columns_NT is None or temperature == now.temperature:
        return tokens.learner_N
    return _between(columns_NT.astype(np.float64), temperature)


def _least(columns_NT: Floats, loss: Callable[[Floats], float]) -> float:
    """Temperature with the smallest loss: the best column, refined between its neighbors."""
    values = [loss(columns_NT[:, at]) for at in range(columns_NT.shape[1])]
    best = int(np.argmin(values))
    low, high = max(best - 1, 0), min(best + 1, len(values) - 1)
    minimum = minimize_scalar(
        lambda log_t: loss(_between(columns_NT, math.exp(log_t))),
        bounds=(math.log(TEMPERATURES[low]), math.log(TEMPERATURES[high])),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(minimum.x))


def _between(columns_NT: Floats, temperature: float) -> Floats:
    """Log-probabilities at any temperature: a cubic in 1/T through the four nearest columns."""
    inverse = 1 / np.array(TEMPERATURES[: columns_NT.shape[1]])
    wanted = 1 / temperature
    nearest = np.argsort(np.abs(inverse - wanted), kind="stable")[:4]
    weights = [
        np.prod([(wanted - inverse[o]) / (inverse[n] - inverse[o]) for o in nearest if o != n])
        for n in nearest
    ]
    with np.errstate(invalid="ignore"):  # an excluded token, -inf, stays without a value
        return np.asarray(columns_NT[:, nearest] @ np.array(weights))


def fit_facts(fitted: Fit) -> dict[str, float | str]:
    """A fit as the facts of a hypothesis."""
    return {
        "reported": fitted.reported,
        "drawn": fitted.drawn,
        "share": fitted.share,
        "typical": fitted.typical,
    }


def is_raw(experiments: Experiments, fitted: Fit) -> bool:
    """Whether the sampler drew at the requested temperature but reports temperature 1.

    A sampler that also draws at 1 ignores the request, which is another cause.
    """
    asked = experiments.case.sampling.temperature
    nearer = abs(math.log(fitted.drawn / asked)) < abs(math.log(fitted.drawn))
    return abs(asked - 1) >= _ABOUT and abs(fitted.reported - 1) < _ABOUT and nearer


def _candidates(experiments: Experiments, variant: Variant, fitted: float) -> list[float]:
    """The requested temperature if the fit is close to it or biased by truncation, else the fit."""
    sampling, rounded = experiments.case.sampling, round(fitted, 2)
    asked = sampling.temperature
    if abs(rounded / asked - 1) < _ABOUT:
        now = variant.setup.processing.temperature
        return [value for value in dict.fromkeys([asked, rounded]) if value != now]
    whole = Processing.of(sampling)
    if whole == Processing(temperature=asked):
        return [rounded]
    cut = experiments.vary(variant, processing=whole)
    bent = experiments.vary(
        variant, processing=replace(variant.setup.processing, temperature=rounded)
    )
    return [asked] if cut.gap < bent.gap / 2 else [rounded]


def rescored_at(experiments: Experiments, variant: Variant, temperatures: list[float]) -> Variant:
    """Score at several temperatures and keep the one that agrees best.

    Raises:
        EngineError: if the learner cannot score at another temperature.
        BudgetSpentError: if the time budget is used up.
    """
    now = variant.setup.processing
    processings = [replace(now, temperature=temperature) for temperature in temperatures]
    return best_processing(experiments, variant, processings)


def best_processing(
    experiments: Experiments, variant: Variant, processings: list[Processing]
) -> Variant:
    """Score under several processings, loading the engine once, and keep the best.

    Raises:
        EngineError: if the learner does not support a processing.
        BudgetSpentError: if the time budget is used up.
    """
    experiments.score_all(variant.setup.learner, processings, variant.setup)
    variants = [experiments.vary(variant, processing=processing) for processing in processings]
    typical = np.median([one.tokens.finite_N.sum() for one in [variant, *variants]])
    return min(
        variants,
        key=lambda one: (
            one.tokens.finite_N.sum() < 0.98 * typical,
            experiments.effective_gap(variant, one),
        ),
    )


def side_under_truncation(experiments: Experiments, final: Variant) -> str:
    """Which side has the wrong temperature, if the tokens were drawn from a truncated distribution.

    The maximum-likelihood temperature of such tokens is that of the whole distribution and too low.
    Instead, their likelihood under the truncation is compared at the two temperatures in question.

    Args:
        experiments: of the case.
        final: the variant without all causes, with the truncation.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    asked, best = experiments.case.sampling.temperature, final.setup.processing.temperature
    if abs(best / asked - 1) < _OFF:
        return _side(asked, best, best)
    requested = replace(final.setup.processing, temperature=asked)
    (at_asked_N,) = experiments.score_all(final.setup.learner, [requested], final.setup)
    at_asked_N = final.setup.learner_column(final.tokens.lengths_B, at_asked_N)
    counted_N = final.tokens.counted_N
    at_best_N, at_asked_N = (
        np.maximum(each_N[: counted_N.size][counted_N], _LEAST_LOGPROB)
        for each_N in (final.tokens.learner_N, at_asked_N)
    )
    # A token that one truncation excludes is evidence for the other, but may be rounding at its
    # edge.
    gain_N = np.clip(at_best_N - at_asked_N, -_MOST_GAIN, _MOST_GAIN)
    return _side(asked, best, best if gain_N.mean() >= 0 else asked)


def _side(asked: float, best: float, drawn: float) -> str:
    if abs(best / asked - 1) < _OFF:
        return f"the learner is wrong, {asked:.3g} was requested"
    if abs(drawn / best - 1) < 2 * _ABOUT:
        return f"the sampler is wrong, its tokens also follow temperature {drawn:.3g}"
    return f"the sampler's reported values are wrong, its tokens follow temperature {drawn:.3g}"
