"""Searches the tensors of another checkpoint that the sampler uses.

The learner takes tensors of the other checkpoint, and the remaining gap decides. Groups of tensors
are added as long as the gap falls. Then each tensor is restored on its own, and only those without
which the gap grows are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.probe.attribution.edits import OTHER_WEIGHTS, Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.tensor_groups import (
    COUNTS,
    Names,
    grouped,
    is_part,
    parts_of,
    place_of,
    rank_shards,
    tensor_of,
)
from grpodoctor.probe.attribution.tensors import kind_of, layer_of
from grpodoctor.probe.attribution.tokens import difference_gap
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT

_LOWERS = 0.9
"""Largest share of the gap that may remain after adding a group."""
_GROWS = 1.05
"""Factor by which the gap grows without a tensor that is needed."""
_STARTS = 3
"""First groups from which the search starts again if the gap does not close."""
_DONE = 0.005
"""Share of the gap at which it counts as closed."""
_COMMON = 0.05
"""Smallest share of the variance that a tensor explains whose parts are tried."""
_DIVIDED = 4
"""Further tensors whose parts are tried."""
_DIVIDED_KINDS = ("embeddings", "output head", "experts")
"""Kinds of tensors that are divided by rows among ranks."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token in that share."""
_ROUNDS = 8
_PRUNINGS = 24
_MOST_AT_ONCE = 256
"""Sets of tensors per load of the learner."""
_MOST_SINGLE = 1024
"""Tensors up to which each one is tried alone."""


class TensorSearch:
    """One search in one other checkpoint.

    Args:
        experiments: runs the learner.
        variant: the remaining gap.
        folder: directory of the other checkpoint.
        names: names of the learner's tensors that may differ there.
    """

    def __init__(
        self, experiments: Experiments, variant: Variant, folder: Path, names: Sequence[str]
    ) -> None:
        self._experiments, self._variant, self._folder = experiments, variant, folder
        self.names = frozenset(names)
        self._rollouts: Path | None
        self._rollouts, at = experiments.sub_sample(variant)
        base = self._restrict(variant, at)
        if base <= EXACT:  # the few responses agree: the gap is in others
            self._rollouts = None
            base = self._restrict(variant, np.arange(variant.tokens.sampler_N.size))
        self._gaps: dict[Names, float] = {frozenset(): base}
        self._shares: dict[Names, float] = {}
        """Share of the variance that the effect of a set explains."""
        experts = experiments.case.learner_facts.settings.get("experts")
        self._experts = experts if isinstance(experts, int) else 0

    def _restrict(self, variant: Variant, at: np.ndarray) -> float:
        """Try sets of tensors on some tokens only; returns the gap of these tokens."""
        self._counted = variant.tokens.counted_N[at]
        self._target = variant.tokens.sampler_N[at]
        self._base = variant.tokens.learner_N[at]
        return difference_gap(*self._counting(variant.tokens.learner_N[at]))

    def run(self) -> Names:
        """The tensors that leave the smallest gap; empty if no group lowers it.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        nothing: Names = frozenset()
        starts = [*self._grown(nothing), *self._helpful(rank_shards(self.names), nothing)]
        best = self._best_from(sorted(starts, key=self._order)[:_STARTS], nothing)
        if not self._is_closed(best):
            # Whole tensors imitate a part of another one, which alone closes the gap.
            parts = (self._helpful(groups, nothing)[:1] for groups in self._parts(nothing))
            best = self._best_from([start for part in parts for start in part], best)
        return best

    def _order(self, taken: Names) -> tuple[float, int]:
        """Smallest gap first; of sets with the same gap, the smallest: the others are equal."""
        return round(float(np.log10(self._gaps[taken] + EXACT)), 1), len(taken)

    def _best_from(self, starts: Sequence[Names], best: Names) -> Names:
        """The set with the smallest gap after each start was completed."""
        for start in starts:
            taken = self._completed(start)
            if self._gaps[taken] < self._gaps[best]:
                best = taken
            if self._is_closed(best):
                break
        return best

    def _is_closed(self, taken: Names) -> bool:
        return self._gaps[taken] <= max(EXACT, _DONE * self._gaps[frozenset()])

    def run_from(self, start: Names) -> Names:
        """The same from a set that was found next to other causes.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        return self._completed(start) if self._measure([start]) else start

    def _completed(self, start: Names) -> Names:
        """Add groups to a set, and restore tensors, until no group lowers the gap."""
        taken = self._pruned(start)
        for _ in range(_ROUNDS):
            grown = self._grown(taken) if self._gaps[taken] > EXACT else []
            if not grown:
                break
            taken = self._pruned(grown[0])
        return taken

    def edit(self, names: Names) -> Edit:
        """The edit that takes tensors, and parts of tensors, of the other checkpoint."""
        whole = sorted(name for name in names if not is_part(name))
        pattern = "|".join(re.escape(name) for name in whole)
        value: dict[str, Any] = {"from": str(self._folder), "only": f"^(?:{pattern})$"}
        parts = sorted(name for name in names if is_part(name) and tensor_of(name) not in names)
        return OTHER_WEIGHTS, json.dumps(value | ({"parts": parts} if parts else {}))

    def _grown(self, taken: Names) -> list[Names]:
        """With one more group that lowers the gap, smallest gap first; groups before tensors."""
        for groups in self._levels():
            if helpful := self._helpful(groups, taken):
                return helpful
        return next(filter(None, (self._helpful(each, taken) for each in self._parts(taken))), [])

    def _helpful(self, groups: Iterable[Names], taken: Names) -> list[Names]:
        """The set with one more group each, if that lowers the gap; smallest gap first."""
        sets = dict.fromkeys(taken | group for group in groups if not group <= taken)
        gaps = self._measure(sets)
        helpful = [each for each in gaps if gaps[each] < _LOWERS * self._gaps[taken]]
        return sorted(helpful, key=self._order)

    def _levels(self) -> Iterable[list[Names]]:
        """Groups from coarse to fine: kinds, layers and kinds of a layer, then single tensors."""
        by_kind, by_layer = grouped(self.names, kind_of), grouped(self.names, layer_of)
        by_both = grouped(self.names, place_of)
        biases = frozenset(name for name in self.names if name.endswith("bias"))
        groups = [self.names, *by_kind.values(), *by_layer.values(), *by_both.values(), biases]
        yield [group for group in groups if group]
        if len(self.names) <= _MOST_SINGLE:
            yield [frozenset({name}) for name in self.names]

    def _parts(self, taken: Names) -> Iterator[list[Names]]:
        """Parts of tensors: what a rank holds, the rows of single tensors, an expert.

        Of single tensors, those that engines divide by rows come first. Then come those whose
        effect has most in common with the gap; that of a whole tensor hides that of a small part.
        """
        yield rank_shards(self.names)
        names = sorted(self.names - taken, key=lambda name: -self._shares.get(taken | {name}, 0.0))
        divided = [name for name in names if kind_of(name) in _DIVIDED_KINDS]
        yield [part for name in divided for part in parts_of(name, self._counts_of(name))][
            :_MOST_AT_ONCE
        ]
        for name in [name for name in names if name not in divided][:_DIVIDED]:
            if self._shares.get(taken | {name}, 0.0) >= _COMMON:
                yield parts_of(name)

    def _counts_of(self, name: str) -> Sequence[int]:
        is_experts = kind_of(name) == "experts" and self._experts > 1
        return (self._experts,) if is_experts else COUNTS

    def _pruned(self, taken: Names) -> Names:
        """Without the tensors that are not needed: first the kinds of a layer, then single ones."""
        for parts in (self._by_layer_and_kind, self._by_name):
            for _ in range(_PRUNINGS):
                fewer = self._restored(taken, parts(taken))
                if fewer is None:
                    break
                taken = fewer
        return taken

    @staticmethod
    def _by_layer_and_kind(taken: Names) -> list[Names]:
        return list(grouped(taken, place_of).values())

    @staticmethod
    def _by_name(taken: Names) -> list[Names]:
        return [frozenset({name}) for name in taken] if len(taken) <= _MOST_SINGLE else []

    def _restored(self, taken: Names, parts: Sequence[Names]) -> Names | None:
        """Without all parts that are not needed, or without one; None if all are needed."""
        gaps = self._measure([taken - part for part in parts if part < taken])
        most = max(_GROWS * self._gaps[taken], EXACT)
        spare = [part for part in parts if gaps.get(taken - part, np.inf) <= most]
        if not spare:
            return None
        together = taken.difference(*spare)
        joint = self._measure([together]) if together else {}
        if joint.get(together, np.inf) <= most:
            return together
        return min((taken - part for part in spare), key=lambda each: gaps[each])

    def _measure(self, sets: Iterable[Names]) -> dict[Names, float]:
        """The gap that each set leaves on a few responses; without sets that do not fit."""
        wanted = list(dict.fromkeys(each for each in sets if each))
        missing = [each for each in wanted if each not in self._gaps]
        for start in range(0, len(missing), _MOST_AT_ONCE):
            part = missing[start : start + _MOST_AT_ONCE]
            setup = self._variant.setup
            edits = [(*setup.edits, self.edit(each)) for each in part]
            scores = self._experiments.score_edits(setup, edits, self._rollouts)
            for each, score_N in zip(part, scores, strict=True):
                if score_N is not None:
                    moved_N = score_N[: self._base.size] - self._base
                    self._experiments.effects.note(setup, self._rollouts, self.edit(each), moved_N)
                    self._gaps[each] = difference_gap(*self._counting(score_N))
                    self._shares[each] = self._explained(score_N)
        return {each: self._gaps[each] for each in wanted if each in self._gaps}

    def _explained(self, learner_N: np.ndarray) -> float:
        """Share of the variance of the difference that a change explains, up to a factor."""
        missing_N, moved_N = self._target - self._base, learner_N[: self._base.size] - self._base
        at = self._counted & np.isfinite(missing_N) & np.isfinite(moved_N)
        missing, moved = (np.clip(each[at], -_CLIP, _CLIP) for each in (missing_N, moved_N))
        whole = float(missing @ missing) * float(moved @ moved)
        return float(missing @ moved) ** 2 / whole if whole else 0.0

    def _counting(self, learner_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        learner_N = learner_N[: self._target.size]
        at = self._counted & np.isfinite(self._target) & np.isfinite(learner_N)
        return learner_N[at], self._target[at]
