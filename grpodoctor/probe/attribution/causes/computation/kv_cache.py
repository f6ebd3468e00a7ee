"""The sampler stores keys and values in a coarser precision than it computes in."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant

_OPTIONS = ("kv_cache_dtype", "type_k", "type_v")
"""Options of vLLM and of llama.cpp."""


class KvCache(Cause):
    """Proven by scoring with an unquantized cache in the sampler."""

    id = "kv-cache"
    title = "The sampler's key-value cache is quantized"
    remedies = (
        'Keep the cache in the precision of the model (vLLM: kv_cache_dtype="auto").',
        "If memory does not allow it, use fp8 e4m3 rather than e5m2, with calibrated scales, and "
        "correct with truncated importance sampling.",
    )
    when = "gap"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The engine options set another cache precision."""
        options = experiments.case.sampler.options
        dtypes = [str(options[name]) for name in _OPTIONS if options.get(name, "auto") != "auto"]
        return Hypothesis(0.7, {"dtype": " and ".join(dtypes)}) if dtypes else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score the sampler's tokens in the sampler, with and without the quantized cache."""
        spec = variant.setup.rescored or experiments.case.sampler
        before = experiments.vary(variant, rescored=spec)
        after = experiments.vary(before, rescored=spec.with_options(**dict.fromkeys(_OPTIONS)))
        dtype = hypothesis.facts["dtype"]
        return ExperimentResult(
            summary=(
                f"without the {dtype} cache of the sampler, k3 falls from {before.gap:.2g} to "
                f"{after.gap:.2g} nats per token"
            ),
            before=before,
            after=after,
            details=(f"cache in {dtype}",),
        )
