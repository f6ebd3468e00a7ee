"""Some of the sampler's tensors are those of another checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
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

_PATTERNS = KINDS | PROJECTIONS
_SURE = 4.0
"""Standard errors above zero, from which on a group counts as holding something old."""
_PERHAPS = 1.0
"""The same for several layers together, in which old and new may work against each other."""
_WHOLE = 0.8
"""Of a group, from which on all of it counts as old."""
_LOWERS = 0.9
"""Of the gap: a group that is added to others must leave less than this."""
_DONE = 0.05
_PASSES = 3
_MOST_RUNS = 48
_MOST_NAMES = 64
"""Tensors that are exchanged by name."""
_CLIP = 3.0
"""|Δlogp| beyond which a token counts as this far off."""

Taken = dict[str, tuple[int, ...]]
"""Layers by kind of tensors; all of them, or none where a kind has no layers, mean the whole."""


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

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Whether another checkpoint is known that the sampler may hold in part."""
        if not other_checkpoints(experiments) or variant.setup.learner.options.get("weights"):
            return None
        return Hypothesis(0.5)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Kinds of tensors one by one, those that help together, then their layers by halves.

        Where that does not do, the single projections in the same way.
        """
        best: tuple[Variant, list[str], str] | None = None
        for folder in other_checkpoints(experiments):
            search = _Search(experiments, variant, folder)
            found = search.known() or search.run()
            if found and (best is None or found[0].gap < best[0].gap):
                best = (*found, folder.name)
        if best is None:
            return None
        after, groups, name = best
        return ExperimentResult(
            told=(
                f"with only {', '.join(groups)} of {name} the learner is k3 {after.gap:.2g} "
                f"instead of {variant.gap:.2g} nats per token from the sampler"
            ),
            after=after,
            details=tuple(groups),
        )


class _Search:
    """One other checkpoint, whose tensors are exchanged group by group.

    Exchanging a group moves the learner's log-probabilities by b; what is missing to the sampler's
    is a. If the sampler holds the group old, a has b as a part, otherwise the two have nothing in
    common: the regression of a on b is the share of the group that is old.
    """

    def __init__(self, experiments: Experiments, variant: Variant, folder: Path) -> None:
        self.experiments, self.variant = experiments, variant
        self.own, self.folder = self._separable(folder)
        self.names = tensor_names(self.folder)
        self.runs = 0

    def _separable(self, folder: Path) -> tuple[Path, Path]:
        """Learner and other checkpoint, with heads that can be exchanged without embeddings."""
        own = model_path(self.variant.setup.learner)
        apart = untied(self.experiments, own), untied(self.experiments, folder)
        if (apart[0] == own) != (apart[1] == folder):
            return own, folder
        return apart

    def known(self) -> tuple[Variant, list[str]] | None:
        """The learner with those tensors that differ by checksum, if it is they."""
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
            return None  # the checkpoint has none of them
        return (after, list(differing)) if after.gap <= _DONE * self.variant.gap else None

    def run(self) -> tuple[Variant, list[str]] | None:
        """The learner with what is old, and that in words.

        Groups may work against each other: what is found is exchanged, the rest looked at anew.
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
        return (base, [self._label(*each) for each in taken.items()]) if taken else None

    def _grown(
        self, base: Variant, taken: Taken, among: Mapping[str, str]
    ) -> tuple[Variant, Taken] | None:
        """What is old besides what was taken, added group by group as long as the gap falls."""
        found: list[tuple[float, str, tuple[int, ...]]] = []
        for kind in kinds_of(self.names, among):
            every = self._layers(kind)
            left = tuple(layer for layer in every if layer not in taken.get(kind, ()))
            if (every and not left) or (not every and kind in taken):
                continue
            old = self._old(base, taken, kind, left)
            if old is not None:
                found.append((self._with(_added(taken, kind, old)).gap, kind, old))
        best: tuple[Variant, Taken] | None = None
        for _, kind, layers in sorted(found):
            more = _added(best[1] if best else taken, kind, layers)
            tried = self._with(more)
            if tried.gap < _LOWERS * (best[0] if best else base).gap:
                best = tried, more
        return best

    def _old(
        self, base: Variant, taken: Taken, kind: str, layers: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """The layers in which a kind of tensors is old, found by halves; None if in none."""
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
        """The learner with the other checkpoint's tensors of some kinds and layers."""
        self.runs += 1
        patterns = [self._pattern(*each) for each in taken.items()]
        learner = with_model(self.variant.setup.learner, self.own).with_options(
            weights=str(self.folder), weights_only="|".join(f"(?:{each})" for each in patterns)
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
    """What was taken, with one kind of tensors in more layers."""
    return {**taken, kind: tuple(sorted({*taken.get(kind, ()), *layers}))}


def _regression(variant: Variant, exchanged: Variant) -> tuple[float, float]:
    """How much of a move of the learner leads to the sampler, and the standard error of that."""
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
