"""One side's log-probabilities are of another temperature than the other's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.engines.jobs import Processing

TEMPERATURES = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 3.0)
"""The columns of `at_temperature_NT`, as `probes/contract.py` has them."""
_FIT_TOKENS = 20_000
_OFF = 0.01
"""Relative difference of two temperatures from which on they count as two."""
_ABOUT = 0.03
"""The same where one of them is as the tokens fall, of which there may be few."""
_HINT = 0.05
"""Share of the gap from which on a fit is worth a score."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What the learner's log-probabilities at many temperatures say."""

    reported: float
    """The temperature at which the learner comes nearest to what the sampler reports."""
    drawn: float
    """That under which the tokens are likeliest to have been drawn."""
    share: float
    """Of the gap that goes away at `reported`."""


class Temperature(Cause):
    """Fitted on the learner's side, then confirmed by scoring at the fitted value."""

    id = "temperature"
    title = "The two sides use different temperatures"
    remedies = (
        "Give both sides the same temperature: divide the learner's logits by the sampling "
        "temperature before the log-softmax, and check that the sampler was started with it.",
        "Look for a second division: a temperature applied by both engine and trainer, or "
        "defaults taken from generation_config.json.",
    )
    cost = 0
    least = 0.5
    subtle = True
    when = "gap"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The fit, if it lies elsewhere than where the learner was scored."""
        fitted = fit(variant)
        now = variant.setup.processing.temperature
        if fitted is None or abs(fitted.reported / now - 1) < _OFF or fitted.share < _HINT:
            return None
        if is_raw(experiments, fitted):
            return None
        return Hypothesis(fitted.share, vars_of(fitted))

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score at the fitted temperature and at the one that was asked for."""
        reported, drawn = (float(hypothesis.facts[k]) for k in ("reported", "drawn"))
        after = rescored_at(experiments, variant, _candidates(experiments, variant, reported))
        asked, now = experiments.case.sampling.temperature, variant.setup.processing.temperature
        best = after.setup.processing.temperature
        return ExperimentResult(
            told=(
                f"the sampler's log-probabilities are of temperature {best:.3g}, the learner's of "
                f"{now:.3g}: {_side(asked, best, drawn)}"
            ),
            after=after,
            figures={"fitted": reported, "drawn": drawn, "asked": asked, "learner": now},
        )


def fit(variant: Variant) -> Fit | None:
    """Where between the learner's temperatures the two sides agree best; None if not told."""
    tokens = variant.tokens
    if tokens.at_temperature_NT is None or variant.setup.rescored is not None or not tokens.any:
        return None
    chosen_N = np.flatnonzero(tokens.finite_N)[:_FIT_TOKENS]
    columns_NT = tokens.at_temperature_NT[chosen_N].astype(np.float64)
    sampler_N = tokens.sampler_N[chosen_N]

    def off(learner_N: Floats) -> float:
        return float(np.mean(np.minimum(np.square(learner_N - sampler_N), 25.0)))

    def surprise(learner_N: Floats) -> float:
        return -float(np.mean(np.maximum(learner_N, -30.0)))

    reported, drawn = (_least(columns_NT, loss) for loss in (off, surprise))
    now_N = tokens.learner_N[chosen_N]
    before = off(now_N)
    share = 1 - off(_between(columns_NT, reported)) / before if before > 0 else 0.0
    return Fit(reported, drawn, share)


def fit_of_a_cut(variant: Variant) -> float | None:
    """As `Fit.reported` where the sampler's distribution is cut; None if not told.

    A cut only raises what it leaves. So at the right temperature no token is likelier to the
    learner; at a higher one rare tokens are, at a lower one frequent ones.
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


def _least(columns_NT: Floats, loss: Callable[[Floats], float]) -> float:
    """The temperature of the least loss: the best column, then between its neighbours."""
    values = [loss(columns_NT[:, at]) for at in range(columns_NT.shape[1])]
    best = int(np.argmin(values))
    low, high = max(best - 1, 0), min(best + 1, len(values) - 1)
    found = minimize_scalar(
        lambda log_t: loss(_between(columns_NT, math.exp(log_t))),
        bounds=(math.log(TEMPERATURES[low]), math.log(TEMPERATURES[high])),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(found.x))


def _between(columns_NT: Floats, temperature: float) -> Floats:
    """Log-probabilities at any temperature: a cubic in 1/T through the four nearest columns."""
    inverse = 1 / np.array(TEMPERATURES[: columns_NT.shape[1]])
    wanted = 1 / temperature
    nearest = np.argsort(np.abs(inverse - wanted), kind="stable")[:4]
    weights = [
        np.prod([(wanted - inverse[o]) / (inverse[n] - inverse[o]) for o in nearest if o != n])
        for n in nearest
    ]
    return np.asarray(columns_NT[:, nearest] @ np.array(weights))


def vars_of(fitted: Fit) -> dict[str, float | str]:
    """A fit as the facts of a hypothesis."""
    return {"reported": fitted.reported, "drawn": fitted.drawn, "share": fitted.share}


def is_raw(experiments: Experiments, fitted: Fit) -> bool:
    """Whether temperature 1 is reported where another was asked for, and drawn at.

    A sampler that also draws at 1 ignores what it was asked for, which is another cause.
    """
    asked = experiments.case.sampling.temperature
    nearer = abs(math.log(fitted.drawn / asked)) < abs(math.log(fitted.drawn))
    return abs(asked - 1) >= _ABOUT and abs(fitted.reported - 1) < _ABOUT and nearer


def _candidates(experiments: Experiments, variant: Variant, fitted: float) -> list[float]:
    """What was asked for, where the fit says so or has been bent by a cut; otherwise the fit."""
    sampling, rounded = experiments.case.sampling, round(fitted, 2)
    asked = sampling.temperature
    if abs(rounded / asked - 1) < _ABOUT:
        now = variant.setup.processing.temperature
        return [each for each in dict.fromkeys([asked, rounded]) if each != now]
    whole = Processing.of(sampling)
    if whole == Processing(temperature=asked):
        return [rounded]
    cut = experiments.vary(variant, processing=whole)
    bent = experiments.vary(
        variant, processing=replace(variant.setup.processing, temperature=rounded)
    )
    return [asked] if cut.gap < bent.gap / 2 else [rounded]


def rescored_at(experiments: Experiments, variant: Variant, temperatures: list[float]) -> Variant:
    """The learner at whichever of some temperatures agrees best, scored anew.

    Raises:
        EngineError: if the learner cannot score at another temperature.
        BudgetSpentError: if there is no time left.
    """
    now = variant.setup.processing
    processings = [replace(now, temperature=each) for each in temperatures]
    return best_processing(experiments, variant, processings)


def best_processing(
    experiments: Experiments, variant: Variant, processings: list[Processing]
) -> Variant:
    """The learner under whichever processing agrees best, the engine loaded once.

    Raises:
        EngineError: if the learner cannot score so.
        BudgetSpentError: if there is no time left.
    """
    experiments.score_all(variant.setup.learner, processings, own_prompts=variant.setup.own_prompts)
    variants = [experiments.vary(variant, processing=each) for each in processings]
    least = np.median([each.tokens.finite_N.sum() for each in [variant, *variants]])
    return min(variants, key=lambda each: (each.tokens.finite_N.sum() < 0.98 * least, each.gap))


def _side(asked: float, best: float, drawn: float) -> str:
    if abs(best / asked - 1) < _OFF:
        return f"the learner is wrong, {asked:.3g} was asked for"
    if abs(drawn / best - 1) < 2 * _ABOUT:
        return f"the sampler is wrong, its tokens also fall as at {drawn:.3g}"
    return f"what the sampler reports is wrong, its tokens fall as at {drawn:.3g}"
