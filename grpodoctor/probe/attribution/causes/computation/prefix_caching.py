"""The sampler's prefix cache differs from a fresh computation."""

from __future__ import annotations

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant

_TIMES = 3.0
"""Smallest ratio of the gap with cached prompts to the gap of other responses."""
_FEWEST = 4


class PrefixCaching(Cause):
    """Detected when only cached prompts differ; proven when a score without the cache agrees.

    If all prompts are cached, it is proven when responses drawn without the cache agree.
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
        return Hypothesis(tokens.share_at(cached_N), {"cached": cached_B.mean(), "times": times})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score in the sampler: scoring does not use the prefix cache."""
        cached, times = (float(hypothesis.facts[key]) for key in ("cached", "times"))
        compared = f", and their gap is {times:.3g} times that of the others" if times else ""
        agrees = not times and _agrees_without_cache(experiments, variant)
        drawn = ", and tokens drawn without enable_prefix_caching follow the learner"
        return ExperimentResult(
            summary=(
                f"{cached:.0%} of the responses used a cached prompt{compared}; the gap disappears "
                f"when the sampler computes the same prompts again{drawn if agrees else ''}"
            ),
            after=experiments.vary(variant, rescored=experiments.case.sampler),
            confidence="proven" if times or agrees else "likely",
            figures={"cached_share": cached} | ({"times": times} if times else {}),
        )


def _agrees_without_cache(experiments: Experiments, variant: Variant) -> bool:
    """Whether other responses that vLLM draws without its prefix cache agree with the learner.

    Where all prompts are cached, no other responses of the measurement show it.
    """
    case = experiments.case
    is_on = case.sampler.engine == "vllm" and case.sampler_facts.settings.get(
        "enable_prefix_caching"
    )
    if not is_on or variant.setup.swapped:
        return False
    without = case.sampler.with_options(enable_prefix_caching=False)
    try:
        tokens = experiments.sampled_again(without)
    except EngineError:
        return False
    return not experiments.is_loud(tokens.gap)
