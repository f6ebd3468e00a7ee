"""The sampler's prefix cache differs from a fresh computation."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.columns.drawn_again import agrees_without
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant

_TIMES = 3.0
"""Smallest ratio of the gap with cached prompts to the gap of other responses."""
_FEWEST = 4


class PrefixCaching(Cause):
    """Detected when only cached prompts differ; proven when a score without the cache agrees.

    Caches hold whole blocks, so cached prompts are the long ones, and a fault of long prompts, such
    as one of chunked prefill, shows the same. So cached prompts are compared with uncached ones of
    at least the same length, in samples of the same number. Without such, it is proven only when
    responses drawn without the cache agree; so it is if all prompts are cached.
    """

    id = "prefix-caching"
    title = "The sampler's prefix cache holds outdated or damaged entries"
    remedies = (
        "Clear the prefix cache after every weight sync (vLLM: reset_prefix_cache(); SGLang: "
        "flush_cache), before the first request with the new weights.",
        "Or turn prefix caching off while training (vLLM: enable_prefix_caching=False).",
    )
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Responses with cached prompts differ more than the others."""
        tokens = variant.tokens
        cached_B = tokens.cached_B > 0
        if variant.setup.rescored is not None or cached_B.sum() < _FEWEST:
            return None
        cached_N = cached_B[tokens.rows_N]
        if (~cached_B).sum() < _FEWEST:
            return Hypothesis(0.3, {"cached": float(cached_B.mean()), "times": 0.0})
        fresh = tokens.mean_at(~cached_N)
        times = tokens.mean_at(cached_N) / fresh if fresh > 0 else float("inf")
        if times < _TIMES:
            return None
        facts = {"cached": float(cached_B.mean()), "times": times}
        facts["is_controlled"] = float(_differ_from_as_long(tokens))
        return Hypothesis(tokens.share_at(cached_N), facts)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score in the sampler: scoring does not use the prefix cache."""
        cached, times = (float(hypothesis.facts[key]) for key in ("cached", "times"))
        compared = f", and their gap is {times:.3g} times that of the others" if times else ""
        is_controlled = bool(hypothesis.facts.get("is_controlled"))
        agrees = not is_controlled and _agrees_without_cache(experiments, variant)
        drawn = ", and tokens drawn without enable_prefix_caching follow the learner"
        return ExperimentResult(
            summary=(
                f"{cached:.0%} of the responses used a cached prompt{compared}; the gap disappears "
                f"when the sampler computes the same prompts again{drawn if agrees else ''}"
            ),
            after=experiments.vary(variant, rescored=experiments.case.sampler),
            confidence="proven" if is_controlled or agrees else "likely",
            figures={"cached_share": cached} | ({"times": times} if times else {}),
        )


def _differ_from_as_long(tokens: Tokens) -> bool:
    """Whether cached prompts differ from uncached ones that are as long as the shortest of them.

    The first sample of a prompt is often the only uncached one. So samples of the same number are
    compared: a fault of later samples, such as one of parallel sampling, shows the same.
    """
    cached_B = tokens.cached_B > 0
    shortest = tokens.prompt_lengths_B[cached_B].min()
    fresh_B = ~cached_B & (tokens.prompt_lengths_B >= shortest)
    both = np.intersect1d(tokens.sample_B[cached_B], tokens.sample_B[fresh_B])
    fresh_B, cached_B = (each & np.isin(tokens.sample_B, both) for each in (fresh_B, cached_B))
    if min(fresh_B.sum(), cached_B.sum()) < _FEWEST:
        return False
    fresh, cached = (tokens.mean_at(at_B[tokens.rows_N]) for at_B in (fresh_B, cached_B))
    return cached >= _TIMES * fresh


def _agrees_without_cache(experiments: Experiments, variant: Variant) -> bool:
    """Whether other responses that vLLM draws without its prefix cache agree with the learner.

    Where all prompts, or all long ones, are cached, no other responses of the measurement show it.
    """
    option = "enable_prefix_caching"
    is_on = bool(experiments.case.sampler_facts.settings.get(option))
    return is_on and agrees_without(experiments, variant, option, off=False)
