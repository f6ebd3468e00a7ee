"""The sampler keeps keys and values in a coarser precision than it computes in."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.bench import Bench


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
        asked = str(bench.case.sampler.options.get("kv_cache_dtype", "auto"))
        return None if asked == "auto" else Suspicion(0.7, {"dtype": asked})

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """The sampler's own scores of its tokens, with the cache as it was and without."""
        spec = scene.setup.rescored or bench.case.sampler
        before = bench.scene(scene, rescored=spec)
        after = bench.scene(before, rescored=spec.with_options(kv_cache_dtype=None))
        dtype = suspicion.facts["dtype"]
        return Outcome(
            told=(
                f"without its {dtype} cache the sampler is k3 {after.gap:.2g} instead of "
                f"{before.gap:.2g} nats per token away"
            ),
            before=before,
            after=after,
            details=(f"kv_cache_dtype {dtype}",),
        )
