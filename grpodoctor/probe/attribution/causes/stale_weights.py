"""The sampler holds other weights than the learner: an older checkpoint, or unsynced ones."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.experiments import Bench
from grpodoctor.probe.attribution.tensors import other_checkpoints

_SHOWN = 8


class StaleWeights(Cause):
    """Proven by scoring with the other checkpoint's weights in the learner."""

    id = "stale-weights"
    title = "The sampler holds other weights than the learner"
    remedies = (
        "Sync the weights before every rollout and wait until the engine has loaded them; compare "
        "checksums of a few tensors on both sides after each sync.",
        "If rollouts are asynchronous by design, bound their age and correct with importance "
        "sampling against the sampler's log-probabilities.",
    )
    least = 0.6

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """Whether another checkpoint is known that the sampler may hold."""
        found = other_checkpoints(bench)
        if not found or scene.setup.learner.options.get("weights"):
            return None
        return Suspicion(0.85 if bench.case.differing else 0.6)

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """The learner with each of the other checkpoints' weights."""
        best: tuple[Scene, str] | None = None
        for folder in other_checkpoints(bench):
            learner = scene.setup.learner.with_options(weights=str(folder))
            after = bench.scene(scene, learner=learner)
            if best is None or after.gap < best[0].gap:
                best = after, folder.name
        if best is None:
            return None
        after, name = best
        differing = bench.case.differing or ()
        return Outcome(
            told=(
                f"with the weights of {name} the learner is k3 {after.gap:.2g} instead of "
                f"{scene.gap:.2g} nats per token from the sampler"
            ),
            after=after,
            details=(name, *differing[:_SHOWN]),
            figures={"differing_tensors": float(len(differing))} if differing else {},
        )

    def remainder(self, bench: Bench, scene: Scene) -> Outcome | None:
        """Above rounding, everywhere, and with no other checkpoint to try."""
        differing = bench.case.differing
        if differing is not None and not differing:
            return None
        if not bench.is_loud(scene.gap):
            return None
        known = (
            f"{len(differing)} tensors differ by checksum"
            if differing
            else ("no checkpoint that the sampler may hold was given")
        )
        return Outcome(
            told=(
                f"k3 of {scene.gap:.2g} nats per token is more than rounding and spread over "
                f"all tokens, as between two checkpoints; {known}"
            ),
            confidence="likely" if differing else "possible",
            details=(differing or ())[:_SHOWN],
        )
