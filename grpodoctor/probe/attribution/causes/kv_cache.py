"""The sampler keeps keys and values in a coarser precision than it computes in."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.experiments import Bench

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

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """Whether another precision was asked for."""
        options = bench.case.sampler.options
        asked = [str(options[name]) for name in _OPTIONS if options.get(name, "auto") != "auto"]
        return Suspicion(0.7, {"dtype": " and ".join(asked)}) if asked else None

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """The sampler's own scores of its tokens, with the cache as it was and without."""
        spec = scene.setup.rescored or bench.case.sampler
        before = bench.scene(scene, rescored=spec)
        after = bench.scene(before, rescored=spec.with_options(**dict.fromkeys(_OPTIONS)))
        dtype = suspicion.facts["dtype"]
        return Outcome(
            told=(
                f"without its {dtype} cache the sampler is k3 {after.gap:.2g} instead of "
                f"{before.gap:.2g} nats per token away"
            ),
            before=before,
            after=after,
            details=(f"cache in {dtype}",),
        )
