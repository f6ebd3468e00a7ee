"""Some of the sampler's tensors are those of another checkpoint."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.bench import Bench
from grpodoctor.probe.attribution.tensors import (
    in_layers,
    kinds_of,
    layers_of,
    other_checkpoints,
    tensor_names,
)

_HELPS = 0.95
"""Of the gap: exchanging tensors that the sampler holds old must leave less than this."""
_DONE = 0.1
_MOST_RUNS = 24


class PartialSync(Cause):
    """Proven by exchanging groups of tensors in the learner, in ever smaller groups."""

    id = "partial-sync"
    title = "Some of the sampler's tensors were not synced"
    remedies = (
        "Look at how the named tensors travel: tied embeddings and output heads, fused or renamed "
        "projections, experts, adapters, and copies that the engine packs at load time are the "
        "usual ones to be left behind.",
        "After each sync compare checksums tensor by tensor, or reload the engine from a saved "
        "checkpoint.",
    )
    least = 0.5

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """Whether another checkpoint is known that the sampler may hold in part."""
        if not other_checkpoints(bench) or scene.setup.learner.options.get("weights"):
            return None
        return Suspicion(0.5)

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """Kinds of tensors one by one, those that help together, then their layers by halves."""
        best: tuple[Scene, list[str], str] | None = None
        for folder in other_checkpoints(bench):
            search = _Search(bench, scene, folder)
            found = search.run()
            if found and (best is None or found[0].gap < best[0].gap):
                best = (*found, folder.name)
        if best is None:
            return None
        after, groups, name = best
        return Outcome(
            told=(
                f"with only {', '.join(groups)} of {name} the learner is k3 {after.gap:.2g} "
                f"instead of {scene.gap:.2g} nats per token from the sampler"
            ),
            after=after,
            details=tuple(groups),
        )


class _Search:
    """One other checkpoint, whose tensors are exchanged group by group."""

    def __init__(self, bench: Bench, scene: Scene, folder: Path) -> None:
        self.bench, self.scene, self.folder = bench, scene, folder
        self.names = tensor_names(folder)
        self.runs = 0

    def run(self) -> tuple[Scene, list[str]] | None:
        kinds = kinds_of(self.names)
        alone = {kind: self._with([pattern]).gap for kind, pattern in kinds.items()}
        helping = [kind for kind in kinds if alone[kind] < _HELPS * self.scene.gap]
        if not helping:
            return None
        helping.sort(key=lambda kind: alone[kind])
        together = self._with([kinds[kind] for kind in helping])
        if together.gap <= _DONE * self.scene.gap:
            return together, helping
        return self._by_layers(kinds, helping, together)

    def _by_layers(
        self, kinds: dict[str, str], helping: list[str], together: Scene
    ) -> tuple[Scene, list[str]]:
        """A kind of which only some layers are old is exchanged in these alone."""
        patterns, groups = [], []
        for kind in helping:
            layers = layers_of(self.names, kinds[kind])
            old = self._halve(kinds[kind], layers) if len(layers) > 1 else layers
            if old and old != layers:
                patterns.append(in_layers(kinds[kind], old))
                groups.append(f"{kind} of layers {', '.join(map(str, old))}")
            else:
                patterns.append(kinds[kind])
                groups.append(kind)
        narrowed = self._with(patterns)
        return (narrowed, groups) if narrowed.gap < together.gap else (together, helping)

    def _halve(self, pattern: str, layers: list[int]) -> list[int]:
        """The layers whose exchange lowers the gap, found by halves."""
        if self.runs >= _MOST_RUNS:
            return layers
        halves = [half for half in (layers[: len(layers) // 2], layers[len(layers) // 2 :]) if half]
        found: list[int] = []
        for half in halves:
            gap = self._with([in_layers(pattern, half)]).gap
            if gap < _HELPS * self.scene.gap:
                found += half if len(half) == 1 else self._halve(pattern, half)
        return found

    def _with(self, patterns: list[str]) -> Scene:
        """The learner with the other checkpoint's tensors of these names."""
        self.runs += 1
        learner = self.scene.setup.learner.with_options(
            weights=str(self.folder), weights_only="|".join(f"(?:{each})" for each in patterns)
        )
        return self.bench.scene(self.scene, learner=learner)
