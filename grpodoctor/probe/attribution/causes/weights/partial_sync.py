"""Some of the sampler's tensors come from another checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments, model_path, with_model
from grpodoctor.probe.attribution.tensors import (
    KINDS,
    PROJECTIONS,
    in_layers,
    kinds_of,
    layers_of,
    other_checkpoints,
    tensor_names,
    untied,
)
from grpodoctor.probe.attribution.variant import Variant

_PATTERNS = KINDS | PROJECTIONS
_SURE = 4.0
"""Standard errors above zero from which a single group counts as outdated."""
_PERHAPS = 1.0
"""The same for several layers together, where outdated and current layers may compensate."""
_WHOLE = 0.8
"""Share of a group from which the whole group counts as outdated."""
_LOWERS = 0.9
"""Largest share of the gap that may remain after adding a group."""
_DONE = 0.05
_PASSES = 3
_MOST_RUNS = 48
_MOST_NAMES = 64
"""Upper bound on tensors that are exchanged by name."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token."""

Taken = dict[str, tuple[int, ...]]
"""Layers by kind of tensor; all layers, or none if a kind has no layers, mean the whole kind."""


class PartialSync(Cause):
    """Proven by exchanging ever smaller groups of tensors in the learner."""

    id = "partial-sync"
    title = "Some of the sampler's tensors were not synced"
    remedies = (
        "Check how the named tensors are transferred. Syncs often miss tied embeddings and output "
        "heads, fused or renamed projections, experts, adapters, and copies that the engine packs "
        "at load time.",
        "After each sync, compare checksums tensor by tensor, or reload the engine from a saved "
        "checkpoint.",
    )
    is_surrogate = True
    uses_other_files = True
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is another checkpoint that the sampler may use in part."""
        if not other_checkpoints(experiments) or variant.setup.learner.options.get("weights"):
            return None
        return Hypothesis(0.5)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Exchange kinds of tensors one by one, then together, then their layers by halves.

        If that is not enough, do the same with single projections.
        """
        best: tuple[Variant, list[str], str] | None = None
        for folder in other_checkpoints(experiments):
            search = _Search(experiments, variant, folder)
            exchanged = search.known() or search.run()
            if exchanged and (best is None or exchanged[0].gap < best[0].gap):
                best = (*exchanged, folder.name)
        if best is None:
            return None
        after, groups, name = best
        return ExperimentResult(
            summary=(
                f"with {', '.join(groups)} of {name} in the learner, k3 falls from "
                f"{variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=tuple(groups),
        )


class _Search:
    """Exchanges tensors with one other checkpoint, group by group.

    Exchanging a group changes the learner's log-probabilities by b; the difference to the sampler's
    is a. If the sampler holds the outdated group, b is a part of a, otherwise the two are
    unrelated: the regression of a on b is the share of the group that is outdated.
    """

    def __init__(self, experiments: Experiments, variant: Variant, folder: Path) -> None:
        self.experiments, self.variant = experiments, variant
        self.own, self.folder = self._separable(folder)
        self.names = tensor_names(self.folder)
        self.runs = 0

    def _separable(self, folder: Path) -> tuple[Path, Path]:
        """Learner and other checkpoint, with heads that are separate from embeddings."""
        own = model_path(self.variant.setup.learner)
        apart = untied(self.experiments, own), untied(self.experiments, folder)
        if (apart[0] == own) != (apart[1] == folder):
            return own, folder
        return apart

    def known(self) -> tuple[Variant, list[str]] | None:
        """Exchange the tensors that differ by checksum; None if they do not explain the gap."""
        differing = self.experiments.case.differing or ()
        if not 0 < len(differing) < min(len(self.names), _MOST_NAMES + 1):
            return None
        names = "|".join(map(re.escape, differing))
        learner = self.variant.setup.learner.with_options(
            weights=str(self.folder), weights_only=f"^(?:{names})$"
        )
        try:
            after = self.experiments.vary(self.variant, learner=learner)
        except EngineError:
            return None  # the checkpoint lacks these tensors
        return (after, list(differing)) if after.gap <= _DONE * self.variant.gap else None

    def run(self) -> tuple[Variant, list[str]] | None:
        """Exchange the outdated groups and describe them.

        Groups may compensate each other, so the search repeats after each exchange.
        """
        base, taken = self.variant, Taken()
        for among in (KINDS, PROJECTIONS):
            for _ in range(_PASSES):
                if base.gap <= _DONE * self.variant.gap:
                    break
                grown = self._grown(base, taken, among)
                if grown is None:
                    break
                base, taken = grown
        return (base, [self._label(*group) for group in taken.items()]) if taken else None

    def _grown(
        self, base: Variant, taken: Taken, among: Mapping[str, str]
    ) -> tuple[Variant, Taken] | None:
        """Add further outdated groups as long as the gap falls."""
        outdated: list[tuple[float, str, tuple[int, ...]]] = []
        for kind in kinds_of(self.names, among):
            every = self._layers(kind)
            left = tuple(layer for layer in every if layer not in taken.get(kind, ()))
            if (every and not left) or (not every and kind in taken):
                continue
            old = self._old(base, taken, kind, left)
            if old is not None:
                outdated.append((self._with(_added(taken, kind, old)).gap, kind, old))
        best: tuple[Variant, Taken] | None = None
        for _, kind, layers in sorted(outdated):
            more = _added(best[1] if best else taken, kind, layers)
            tried = self._with(more)
            if tried.gap < _LOWERS * (best[0] if best else base).gap:
                best = tried, more
        return best

    def _old(
        self, base: Variant, taken: Taken, kind: str, layers: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """The layers in which a kind of tensor is outdated, by bisection; None if in no layer."""
        exchanged = self._with(_added(taken, kind, layers))
        share, error = _regression(base, exchanged)
        leaf = len(layers) < 2
        if share <= 0 or share < (_SURE if leaf else _PERHAPS) * error:
            return None
        if share >= _WHOLE or self.runs >= _MOST_RUNS:
            return layers
        if leaf:
            return layers if share > 1 - _WHOLE else None
        middle = len(layers) // 2
        halves = (self._old(base, taken, kind, half) for half in (layers[:middle], layers[middle:]))
        return tuple(layer for half in halves if half for layer in half) or None

    def _with(self, taken: Taken) -> Variant:
        """The learner with some kinds and layers of the other checkpoint."""
        self.runs += 1
        patterns = [self._pattern(*group) for group in taken.items()]
        learner = with_model(self.variant.setup.learner, self.own).with_options(
            weights=str(self.folder),
            weights_only="|".join(f"(?:{pattern})" for pattern in patterns),
        )
        return self.experiments.vary(self.variant, learner=learner)

    def _layers(self, kind: str) -> tuple[int, ...]:
        return tuple(layers_of(self.names, _PATTERNS[kind]))

    def _pattern(self, kind: str, layers: tuple[int, ...]) -> str:
        whole = layers == self._layers(kind)
        return _PATTERNS[kind] if whole else in_layers(_PATTERNS[kind], layers)

    def _label(self, kind: str, layers: tuple[int, ...]) -> str:
        some = layers != self._layers(kind)
        return f"{kind} of layers {', '.join(map(str, layers))}" if some else kind


def _added(taken: Taken, kind: str, layers: tuple[int, ...]) -> Taken:
    """The exchanged groups with one kind of tensor in more layers."""
    return {**taken, kind: tuple(sorted({*taken.get(kind, ()), *layers}))}


def _regression(variant: Variant, exchanged: Variant) -> tuple[float, float]:
    """Share of the learner's change that leads towards the sampler, and its standard error."""
    now, then = variant.tokens, exchanged.tokens
    at = now.finite_N & then.finite_N
    missing_N = np.clip(-now.difference_N[at], -_CLIP, _CLIP)
    moved_N = np.clip(then.learner_N[at] - now.learner_N[at], -_CLIP, _CLIP)
    size = float(moved_N @ moved_N)
    if size == 0:
        return 0.0, 1.0
    share = float(missing_N @ moved_N) / size
    left_N = missing_N - share * moved_N
    return share, float(np.sqrt((left_N**2 * moved_N**2).sum())) / size
