"""What forbids likelier tokens: XTC is proven, a mask only likely, and no rule names the other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.causes.sampling.excluded_top_choices import ExcludedTopChoices
from grpodoctor.probe.attribution.causes.sampling.token_mask import TokenMask
from grpodoctor.probe.attribution.tokens import of_columns
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing

TOKENS, VOCABULARY, LIKELIEST = 1500, 40, 20


def drawn(keeps: Any, *, spread: float = 2.0, noise: float = 0.0) -> Variant:
    """Tokens drawn from random logits, of which `keeps` leaves some, given their probabilities."""
    generator = np.random.default_rng(7)
    logits_NV = spread * generator.normal(size=(TOKENS, VOCABULARY))
    probs_NV = np.exp(logits_NV) / np.exp(logits_NV).sum(axis=1, keepdims=True)
    kept_NV = np.where(keeps(probs_NV, generator), probs_NV, 0.0)
    kept_NV /= kept_NV.sum(axis=1, keepdims=True)
    ids_N = np.array([generator.choice(VOCABULARY, p=row) for row in kept_NV])
    at = np.arange(TOKENS)
    order_NV = np.argsort(-probs_NV, axis=1)
    learner_N = np.log(probs_NV[at, ids_N])
    sampler_N = np.log(kept_NV[at, ids_N]) + noise * generator.normal(size=TOKENS)
    above_NV = probs_NV > probs_NV[at, ids_N][:, None]
    tokens = replace(
        of_columns(learner_N, np.minimum(sampler_N, 0.0)),
        rank_N=above_NV.sum(axis=1),
        mass_above_N=(probs_NV * above_NV).sum(axis=1),
        likeliest_NM=order_NV[:, :LIKELIEST],
        likeliest_logprob_NM=np.log(np.take_along_axis(probs_NV, order_NV[:, :LIKELIEST], axis=1)),
        ids_N=ids_N,
    )
    return Variant(Setup(SimpleNamespace(key="learner"), Processing()), tokens)  # type: ignore[arg-type]


def xtc(threshold: float, probability: float) -> Any:
    """All tokens of at least the threshold but the least likely of them are excluded."""

    def keeps(probs_NV: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        above_NV = probs_NV >= threshold
        least_N1 = np.where(above_NV, probs_NV, 2.0).min(axis=1, keepdims=True)
        acts_N1 = generator.random((TOKENS, 1)) < probability
        return ~(acts_N1 & above_NV & (probs_NV > least_N1))

    return keeps


def likeliest(probability: float) -> Any:
    """The likeliest token is excluded at random places."""

    def keeps(probs_NV: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        acts_N1 = generator.random((TOKENS, 1)) < probability
        return ~(acts_N1 & (probs_NV == probs_NV.max(axis=1, keepdims=True)))

    return keeps


def mask(probs_NV: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A third of the vocabulary, another one at each place."""
    return generator.random(probs_NV.shape) > 1 / 3


def top_p(probs_NV: np.ndarray, _: np.random.Generator) -> np.ndarray:
    above_NVV = probs_NV[:, None] > probs_NV[..., None]
    return (probs_NV[:, None] * above_NVV).sum(-1) < 0.8


def typical(probs_NV: np.ndarray, _: np.random.Generator) -> np.ndarray:
    """Tokens whose surprise is nearest to the entropy, up to half of the mass."""
    entropy_N1 = -(probs_NV * np.log(probs_NV)).sum(axis=1, keepdims=True)
    order_NV = np.abs(np.log(probs_NV) + entropy_N1).argsort(axis=1)
    sorted_NV = np.take_along_axis(probs_NV, order_NV, axis=1)
    kept_NV = np.zeros(probs_NV.shape, bool)
    np.put_along_axis(kept_NV, order_NV, sorted_NV.cumsum(axis=1) - sorted_NV < 0.5, axis=1)
    return kept_NV


class Numbers:
    """Experiments with tokens in memory; the sampler's own scores are the learner's."""

    limit = 1e-9

    def __init__(self, **options: Any) -> None:
        self.case = SimpleNamespace(sampler=SimpleNamespace(options=options, engine="program"))

    def is_loud(self, gap: float) -> bool:
        return gap > self.limit

    def vary(self, variant: Variant, **_: Any) -> Variant:
        return Variant(variant.setup, variant.tokens.with_sampler(variant.tokens.learner_N))


def found(cause: Any, variant: Variant) -> Any:
    experiments: Any = Numbers()
    hypothesis = cause.hypothesize(experiments, variant)
    return None if hypothesis is None else cause.experiment(experiments, variant, hypothesis)


@pytest.mark.parametrize(("threshold", "probability"), [(0.1, 0.5), (0.06, 0.2), (0.23, 1.0)])
def test_xtc_is_proven_with_its_threshold(threshold: float, probability: float) -> None:
    variant = drawn(xtc(threshold, probability))
    result = found(ExcludedTopChoices(), variant)
    assert result.confidence == "proven", result
    assert result.figures["threshold"] == pytest.approx(threshold, rel=0.02)
    assert result.after.gap < 1e-9 < 1e-3 < variant.gap
    # A later scoring of the learner has the rule, too.
    again_N = result.after.setup.learner_column(variant.tokens.lengths_B, variant.tokens.learner_N)
    assert np.allclose(again_N, result.after.tokens.learner_N)


def test_xtc_is_found_in_values_with_rounding() -> None:
    result = found(ExcludedTopChoices(), drawn(xtc(0.1, 0.5), noise=0.01))
    assert result.figures["threshold"] == pytest.approx(0.1, rel=0.1)
    assert result.confidence == "likely"  # these experiments know of no rounding


@pytest.mark.parametrize("keeps", [likeliest(0.3), likeliest(1.0), mask, top_p, typical])
def test_what_else_forbids_tokens_is_no_proven_xtc(keeps: Any) -> None:
    result = found(ExcludedTopChoices(), drawn(keeps))
    assert result is None or result.confidence == "likely"


def test_a_threshold_that_always_excludes_one_token_fits_two_rules() -> None:
    """Two tokens share all but a little of the probability, so every place could be one of XTC."""

    def keeps(probs_NV: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        probs_NV[:] = 0.02 / (VOCABULARY - 2)
        probs_NV[:, 0], probs_NV[:, 1] = 0.55, 0.43
        return likeliest(0.5)(probs_NV, generator)

    result = found(ExcludedTopChoices(), drawn(keeps))
    assert result.confidence == "likely"
    assert result.details == ("also fits: the likeliest token excluded at some places",)


@pytest.mark.parametrize("keeps", [mask, xtc(0.1, 0.5), likeliest(0.3)])
def test_forbidden_likelier_tokens_do_not_prove_a_mask(keeps: Any) -> None:
    result = found(TokenMask(), drawn(keeps))
    assert result.confidence == "likely"
    assert "exactly the likeliest tokens are missing" in result.details[0]


def test_no_rule_is_seen_in_equal_values() -> None:
    variant = drawn(lambda probs_NV, _: probs_NV > 0)
    assert found(ExcludedTopChoices(), variant) is None
    assert found(TokenMask(), variant) is None
