"""The sampler keeps keys and values in a coarser precision than it computes in."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.experiments import Experiments

_OPTIONS = ("kv_cache_dtype", "type_k", "type_v")
"""Of vLLM, and of llama.cpp."""


class KvCache(Cause):
    """Proven by letting the sampler score with an unquantised cache."""

    id = "kv-cache"
    title = "The sampler's key-value cache is quantised"
    remedies = (
        'Keep the cache in the precision of the model (vLLM: kv_cache_dtype="auto").',
        "If memory forbids it, use fp8 e4m3 rather than e5m2, with calibrated scales, and correct "
        "with truncated importance sampling.",
    )
    when = "gap"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Whether another precision was asked for."""
        options = experiments.case.sampler.options
        asked = [str(options[name]) for name in _OPTIONS if options.get(name, "auto") != "auto"]
        return Hypothesis(0.7, {"dtype": " and ".join(asked)}) if asked else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """The sampler's own scores of its tokens, with the cache as it was and without."""
        spec = variant.setup.rescored or experiments.case.sampler
        before = experiments.vary(variant, rescored=spec)
        after = experiments.vary(before, rescored=spec.with_options(**dict.fromkeys(_OPTIONS)))
        dtype = hypothesis.facts["dtype"]
        return ExperimentResult(
            told=(
                f"without its {dtype} cache the sampler is k3 {after.gap:.2g} instead of "
                f"{before.gap:.2g} nats per token away"
            ),
            before=before,
            after=after,
            details=(f"cache in {dtype}",),
        )
