"""Searches the what-if edit under which the learner agrees best with the sampler.

All edits are tried on a few responses first. Numbers are refined there; then the best edits are
tried on all responses of the part. Each stage loads the learner once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.probe.attribution.edit_effects import CLIP, screened
from grpodoctor.probe.attribution.edits import GENERATED, Edit, EditFamily, Edits, in_phase
from grpodoctor.probe.attribution.exact_responses import effective_gap
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import (
    between,
    contributions,
    part_regression,
    regression,
    typical_clip,
)
from grpodoctor.probe.attribution.search.edit_trials import (
    UNFIT,
    Trial,
    is_flat,
    nearer_number,
    refined_values,
)
from grpodoctor.probe.attribution.search.own_scores import differ, own_scores
from grpodoctor.probe.attribution.tokens import Floats, Integers, of_columns
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT

_REFINED = 4
"""Families of numbers that are refined."""
_MOST_NEARER = 16
"""Numbers that are tried nearer to the present one, if the listed ones change too much."""
_FINALISTS = 8
"""Edits that are tried on all responses."""
_ROUNDS = 5
_HINT = 0.1
"""Smallest share of the gap, or of its variance, that makes an edit worth refining: an edit that
explains less is not named, and an unexplained gap then costs one pass per edit."""
_WORTH = 0.4
"""Merit, relative to the best family's, from which a number is refined."""
_WITHIN = frozenset({"layer_from", "lost_part", "transposed", "weights_from"})
"""Edits of a layer or block, which are tried where the gap is."""
_PARTS = _WITHIN | {"layer_scale", "part_products", "part_rounding", "vocabulary_part"}
"""Edits of a part of the model."""
GENERIC = frozenset(
    {
        "operation", "rank_part", "row_order", "site_bound", "site_change", "site_scale",
        "site_scales",
    }
)  # fmt: skip
"""Edits of any module, for a gap that no edit of a known kind explains."""
_BLOCKS = frozenset({"layer_scale", "output_scale"})
"""Edits whose attribute is a block that has slices."""
_LINEAR = frozenset({"layer_scale", "output_scale", "vocabulary_part"})
"""Edits whose number may lie on either side of the one that changes nothing."""
_FAR = 3.0
"""Multiple of the tried change up to which the regression's number is tried."""
_MOST_SOURCES = 32
"""Layers up to which the weights of neighbors are tried in every layer."""
_SLICED = 2
"""Blocks whose slices are tried."""
_PHASED = 12
"""Edits that are tried in one phase or token by token, if only what their effect has in common with
the gap shows which."""
_WITHOUT_PHASE = _PARTS | GENERIC | {
    GENERATED, "cache_hole", "dry_penalty", "epsilon_cutoff", "frequency_penalty", "logit_bias",
    "min_tokens", "no_repeat_ngram", "open_prompt", "padded_positions",
    "padded_vocabulary", "padding", "position_gap", "position_jump", "position_limit",
    "part_frequency", "part_presence", "position_start", "part_repetition", "vocabulary_shards",
    "presence_penalty", "recent_repetition", "repetition_penalty", "top_n_sigma", "typical_p",
    "uniform_share",
}  # fmt: skip
"""Edits of whole sequences, of logits, or of a part of the model."""
SAMPLING = frozenset(
    {
        "dry_penalty", "epsilon_cutoff", "frequency_penalty", "logit_bias", "min_tokens",
        "no_repeat_ngram", "part_frequency", "part_presence", "part_repetition",
        "presence_penalty", "recent_repetition", "repetition_penalty", "top_n_sigma", "typical_p",
    }
)  # fmt: skip
"""Edits of sampling. They share one pass of the trunk, so they are tried before all others; and no
change of a model closes a gap that one of them closes, so the others are spared then."""
_REFINED_PARTS = 2
"""The same as `_REFINED`, for parts."""
_USEFUL = 0.3
"""Share of the gap that an edit must remove for its cause to be named; see `WhatIf.least`."""
_SMALL = 16
"""Values up to which a search begins even if another fault has taken all passes of edits."""
_EXPLAINED = 0.1
"""An edit of the whole that leaves less than this share of the gap is named at once."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An edit with the gap that it leaves."""

    edit: Edit
    after: Variant
    left: float
    """The gap by which edits are compared: that of some responses, if the edit closes it there."""
    is_usual: bool = True
    """Whether the value is one of those that engines use by mistake, not a fitted number."""


class EditSearch:
    """One search for the next edit of a variant."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self.experiments, self.variant = experiments, variant
        self._folder: Path | None
        self._at: Integers
        self._folder, self._at = experiments.sub_sample(variant)
        self._take(variant)
        if self._gap(self._base) <= EXACT:  # the few responses agree: the gap is in others
            self._folder, self._at = None, np.arange(variant.tokens.sampler_N.size)
            self._take(variant)
        self.excluded: dict[str, float] = {}
        """Edits that were tried, by name, with the smallest gap that each left on the part tried,
        relative to the gap before."""

    def _take(self, variant: Variant) -> None:
        """The columns of the responses on which edits are tried first."""
        self._counted = variant.tokens.counted_N[self._at]
        self._target = variant.tokens.sampler_N[self._at]
        self._base = variant.tokens.learner_N[self._at]
        self._rows = variant.tokens.rows_N[self._at]

    def best(self, families: Iterable[EditFamily]) -> list[Candidate]:
        """The best edits on all responses, smallest gap first; one per family.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        families = list(families)
        is_small = sum(len(family.values) for family in families) <= _SMALL
        if not self._gap(self._base) > 0 or not (is_small or self.experiments.has_passes):
            return []
        unused = [family for family in families if not self._is_used(family)]
        fresh = self._promising([family for family in unused if family.name not in GENERIC])
        before = self._gap(self._base)
        trials = self._tried(family for family in fresh if family.name in SAMPLING)
        self._refine(trials, _REFINED)
        best = min((trial.best_gap for trial in trials), default=before)
        if best <= _EXPLAINED * before and not self.experiments.is_loud(best):
            return self._finals([t for t in trials if t.merit >= _HINT])
        others = self._tried(f for f in fresh if f.name not in _PARTS | SAMPLING)
        self._try_nearer(others)
        self._refine(others, _REFINED)
        trials = sorted([*trials, *others], key=lambda trial: -trial.merit)
        best = min((trial.best_gap for trial in trials), default=before)
        if best > _EXPLAINED * before and self.experiments.is_loud(best):
            trials += self._parts(trials, fresh)
            best = min((trial.best_gap for trial in trials), default=before)
        is_open = best > _EXPLAINED * before and self.experiments.is_loud(best)
        if is_open and self._is_one_pass and not self._is_of_generation():
            trials += self._generic(trials, unused, best)
        worth = [t for t in trials if t.merit >= _HINT and t.best_gap < before]
        return self._finals(worth)

    @property
    def _is_one_pass(self) -> bool:
        """Whether the learner scores whole sequences."""
        return all(name != GENERATED for name, _ in self.variant.setup.edits)

    def _is_of_generation(self) -> bool:
        """Whether the sampler agrees with the learner when it scores its own tokens in one pass.

        Then no module computes differently there, and a change of one would only imitate the gap.
        """
        variant = self.variant
        if variant.setup.swapped or variant.setup.rescored or variant.setup.behind:
            return False
        own_N = own_scores(self.experiments, variant)
        return own_N is not None and not differ(
            self.experiments, variant, own_N, variant.tokens.learner_N
        )

    def _generic(
        self, known: Sequence[Trial], families: Sequence[EditFamily], best: float
    ) -> list[Trial]:
        """Edits of any module, for a gap of which the best edit of a known kind leaves much."""
        return []

    def _promising(self, families: Sequence[EditFamily]) -> list[EditFamily]:
        """The families worth their cost: all, unless the learner scores as it generates.

        That takes a pass for each token. One pass over whole sequences has nearly the same effect.
        So only those remain whose effect there has most in common with the gap, and those without
        one: an edit of the cache acts during generation alone.
        """
        setup = self.variant.setup
        kept = tuple(edit for edit in setup.edits if edit[0] != GENERATED)
        if kept == setup.edits:
            return list(families)
        wanted = [(number, value) for number, f in enumerate(families) for value in f.values]
        edits = [(*kept, families[number].edit(value)) for number, value in wanted]
        plain_N, *scores = self.experiments.score_edits(setup, [kept, *edits], self._folder)
        if plain_N is None:
            return list(families)
        trials = [Trial(family) for family in families]
        acting = set()
        for (number, value), edited_N in zip(wanted, scores, strict=True):
            if edited_N is not None and not np.array_equal(edited_N, plain_N, equal_nan=True):
                acting.add(number)
                moved_N = finite_or_nan(edited_N) - finite_or_nan(plain_N)
                expected_N = self._base + moved_N[: self._base.size]
                self._judge(trials[number], value, self._gap(expected_N), expected_N)
        ranked = sorted(
            acting, key=lambda number: -max(trials[number].merit, trials[number].common)
        )
        left_out = set(ranked[_PHASED:])
        return [family for number, family in enumerate(families) if number not in left_out]

    def _tried(self, families: Iterable[EditFamily], *, is_aside: bool = False) -> list[Trial]:
        """Try the values of families; returns them, the largest merit first.

        Args:
            families: to try.
            is_aside: whether they are compared with other values than the reported ones.
        """
        trials = [Trial(family) for family in families]
        self._screen([(trial, value) for trial in trials for value in trial.family.values])
        trials = [trial for trial in trials if trial.gaps]
        before = self._gap(self._base)
        for trial in () if is_aside else trials:
            self.excluded[trial.family.name] = min(
                trial.best_gap / before, self.excluded.get(trial.family.name, 1.0)
            )
        return sorted(trials, key=lambda trial: -trial.merit)

    def _screen(self, wanted: Sequence[tuple[Trial, Any]]) -> None:
        """Try values, but those that cannot explain the gap, judging by another setup.

        Without effects of another setup, all of them.
        """
        setup = self.variant.setup
        known = self.experiments.effects.of(setup, self._folder)
        effects = {} if known is None else known.effects

        def effect(one: tuple[Trial, Any]) -> Floats:
            return effects[one[0].family.edit(one[1])]

        estimated = [(t, value) for t, value in wanted if t.family.edit(value) in effects]
        self._try([(t, value) for t, value in wanted if t.family.edit(value) not in effects])
        screened(
            estimated, effect, self._try, finite_or_nan(self._target) - finite_or_nan(self._base),
            explained=_USEFUL, either=lambda one: one[0].family.name in _LINEAR,
        )  # fmt: skip

    def _parts(self, known: Sequence[Trial], families: Sequence[EditFamily]) -> list[Trial]:
        """Try edits of a part of the model, for a gap that no edit of the whole explains.

        There are as many as the model has layers and slices. So the layer is found first, by what
        the gap has in common with the effect of its blocks, and then the slice within.
        """
        whole = self._tried(f for f in families if f.name in _PARTS - _WITHIN)
        blocks = [trial for trial in (*known, *whole) if trial.family.name in _BLOCKS]
        blocks.sort(key=lambda trial: -trial.merit)
        layers = [trial for trial in blocks if trial.family.name == "layer_scale"]
        together = contributions([t.effect_N for t in layers], self._target - self._base)
        most = sorted(zip(together, layers, strict=True), key=itemgetter(0), reverse=True)
        first = [*blocks[:_SLICED], *(trial for _, trial in most[:_SLICED])]
        chosen = {trial.family.attribute for trial in first}
        # The fault may be in all layers, and one layer's block fits better than all blocks at zero.
        chosen |= {part for block in chosen for part in block.split(".")}
        within = [family for family in families if family.name in _WITHIN]
        sources = [family for family in within if family.name == "layer_from"]
        # Another layer's effect has little in common with that of none.
        everywhere = sources if len(sources) <= _MOST_SOURCES else []
        slices = self._tried(f for f in within if f in everywhere or _is_in(f, chosen))
        best = min((trial.best_gap for trial in slices), default=math.inf)
        if self.experiments.is_loud(best):
            self._refine(whole, _REFINED_PARTS)
        return [*whole, *slices]

    def _refine(self, trials: Sequence[Trial], most: int) -> None:
        """Refine the numbers of the most promising families."""
        numbers = self._worth_refining(trials)[:most]
        for trial in numbers:
            if trial.family.now is not None:
                trial.gaps[json.dumps(trial.family.now)] = self._gap(self._base)
        for _ in range(_ROUNDS):
            self._try([(trial, value) for trial in numbers for value in refined_values(trial)])
            numbers = [trial for trial in numbers if not is_flat(trial)]

    def _try_nearer(self, trials: list[Trial]) -> None:
        """Try a number nearer to the present one where the tried ones change too much.

        An effect turns as it grows: an adapter twice as strong has little in common with one that
        is 1.3 times as strong, and would not be refined. So the numbers that the regressions
        suggest are tried before families are compared.
        """
        least = min((trial.best_gap for trial in trials), default=0.0)
        if least <= _EXPLAINED * self._gap(self._base) or not self.experiments.is_loud(least):
            return
        found = [(trial, nearer) for trial in trials if (nearer := nearer_number(trial))]
        found.sort(key=lambda pair: -pair[1].explained)
        self._try([(trial, nearer.value) for trial, nearer in found[:_MOST_NEARER]])
        trials.sort(key=lambda trial: -trial.merit)

    def _worth_refining(self, trials: Sequence[Trial]) -> list[Trial]:
        """The numbers that may explain more than the best edit so far."""
        if not trials or not self.experiments.is_loud(min(t.best_gap for t in trials)):
            return []
        numbers = [trial for trial in trials if trial.family.kind != "choice"]
        least = max(_HINT, _WORTH * trials[0].merit)
        return [trial for trial in numbers if trial.merit >= least]

    def best_in_phase(
        self, phases: Sequence[str], families: Iterable[EditFamily], own_N: Floats | None
    ) -> list[Candidate]:
        """The best edits that act in one phase only, smallest gap first; one per family.

        The edits that act everywhere show which of them to try. If the sampler's own scores of
        whole sequences are known, and are not the learner's either, the edits that explain them
        are tried. Otherwise those are whose effect has most in common with the gap.

        Args:
            phases: `in_prompt`, `in_response` or both.
            families: edits that act everywhere.
            own_N: the sampler's scores of all tokens.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        if not self._gap(self._base) > 0 or not self.experiments.has_passes:
            return []
        wanted = [f for f in families if has_phases(f) and not self._is_used(f)]
        wanted = self._promising(wanted)
        if own_N is None:
            whole = sorted(self._tried(wanted), key=lambda trial: -trial.common)[:_PHASED]
            tried = [
                in_phase(phase, trial.family, () if _is_number(trial) else (trial.nearest,))
                for trial in whole
                for phase in phases
                if trial.nearest is not None
            ]
        else:
            whole = self._explaining(wanted, own_N)
            tried = [
                in_phase(phase, replace(trial.family, kind="choice"), (trial.best,))
                for trial in whole
                for phase in phases
            ]
        trials = self._tried(tried)
        self._refine(trials, _REFINED_PARTS)
        before = self._gap(self._base)
        return self._finals([t for t in trials if t.merit >= _HINT and t.best_gap < before])

    def _explaining(self, families: Sequence[EditFamily], own_N: Floats) -> list[Trial]:
        """The best families for the sampler's own scores, with refined numbers."""
        reported, self._target = self._target, own_N[self._at]
        try:
            trials = self._tried(families, is_aside=True)
            self._refine(trials, _REFINED)
            before = self._gap(self._base)
            fitting = [trial for trial in trials if trial.best_gap < before]
            return sorted(fitting, key=lambda trial: trial.best_gap)[:_FINALISTS]
        finally:
            self._target = reported

    def _is_used(self, family: EditFamily) -> bool:
        """Whether the variant has an edit of this family, which a second one would replace."""
        return any(
            name == family.name
            and family.inner is None
            and (name == "logit_bias" or not family.attribute or f'"{family.attribute}"' in value)
            for name, value in self.variant.setup.edits
        )

    def _try(self, wanted: Sequence[tuple[Trial, Any]]) -> list[Floats | None]:
        """Compute values of families; returns their effects, None for one that does not fit."""
        setup = self.variant.setup
        edits = [trial.family.edit(value) for trial, value in wanted]
        scores = self.experiments.score_edits(
            setup, [(*setup.edits, each) for each in edits], self._folder
        )
        effects: list[Floats | None] = []
        for (trial, value), edit, learner_N in zip(wanted, edits, scores, strict=True):
            gap = UNFIT if learner_N is None else self._gap(learner_N)
            trial.gaps[json.dumps(value)] = gap
            if learner_N is None:
                effects.append(None)
                continue
            self._judge(trial, value, gap, learner_N)
            moved_N = self._moved(learner_N)
            effects.append(moved_N)
            self.experiments.effects.note(setup, self._folder, edit, moved_N)
        return effects

    def _moved(self, learner_N: Floats) -> Floats:
        """What an edit does to the log-probabilities."""
        edited_N = finite_or_nan(learner_N[: self._base.size])
        moved_N: Floats = edited_N - finite_or_nan(self._base)
        return moved_N

    def _judge(self, trial: Trial, value: Any, gap: float, learner_N: Floats) -> None:
        trial.merit = max(trial.merit, 1 - gap / self._gap(self._base))
        target_N, base_N, edited_N = map(
            finite_or_nan, (self._target, self._base, learner_N[: self._target.size])
        )
        missing_N, moved_N = target_N - base_N, edited_N - base_N
        fits = [regression(missing_N, moved_N, c) for c in (CLIP, typical_clip(missing_N))]
        fits.append(part_regression(missing_N, moved_N, self._rows, CLIP))
        share, explained = max(fits, key=itemgetter(1))
        if share > 0 and explained > trial.common:
            trial.common, trial.nearest = explained, value
        if trial.family.kind == "choice":
            return
        is_linear = trial.family.name in _LINEAR
        if share > 0 or is_linear:
            trial.merit = max(trial.merit, explained)
        if is_linear:
            trial.effect_N = moved_N
        now = trial.family.now
        is_known = trial.family.kind == "number" and now is not None
        if is_known and (0 < share < 1 or (is_linear and abs(share) < _FAR)):
            trial.guesses.append((explained, between(now or 0.0, float(value), share)))

    def _gap(self, learner_N: Floats) -> float:
        learner_N = learner_N[: self._target.size]
        at = self._counted & np.isfinite(self._target) & np.isfinite(learner_N)
        lost = 1 - at.sum() / max((self._counted & np.isfinite(self._target)).sum(), 1)
        if not at.any() or lost > _MOST_LOST:
            return UNFIT
        _, lengths_B = np.unique(self._rows[at], return_counts=True)
        before, after = (
            of_columns(each[at], self._target[at], lengths_B) for each in (self._base, learner_N)
        )
        return effective_gap(before, after, self.experiments.limit)

    def _finals(self, trials: Sequence[Trial]) -> list[Candidate]:
        chosen = sorted(trials, key=lambda trial: trial.best_gap)[:_FINALISTS]
        best = [trial.likeliest for trial in chosen]
        edits = [
            (*self.variant.setup.edits, trial.family.edit(value))
            for trial, value in zip(chosen, best, strict=True)
        ]
        scores = self.experiments.score_edits(self.variant.setup, edits)
        found = [
            self._candidate(whole, learner_N, is_usual=value in trial.family.values)
            for trial, value, whole, learner_N in zip(chosen, best, edits, scores, strict=True)
            if learner_N is not None
        ]
        return sorted(found, key=lambda each: each.left)

    def _candidate(self, edits: Edits, learner_N: Floats, *, is_usual: bool) -> Candidate:
        setup = replace(self.variant.setup, edits=edits)
        tokens = self.variant.tokens.with_learner(learner_N[: self.variant.tokens.sampler_N.size])
        after = Variant(setup, tokens)
        left = self.experiments.effective_gap(self.variant, after)
        return Candidate(edits[-1], after, left, is_usual)


def has_phases(family: EditFamily) -> bool:
    """Whether an edit can act in one phase only; of generic edits those outside of the layers."""
    is_outside = family.name == "site_scale" and family.attribute.startswith("^")
    return is_outside or family.name not in _WITHOUT_PHASE


def _is_number(trial: Trial) -> bool:
    return trial.family.kind != "choice"


def _is_in(family: EditFamily, places: set[str]) -> bool:
    """Whether an edit concerns one of some blocks or layers, or all layers: `*.o_proj`."""
    attribute = family.attribute
    if family.name not in ("transposed", "weights_from"):
        return attribute in places
    return attribute.startswith("*.") or attribute.partition(".")[0] in places


_MOST_LOST = 0.02
"""Share of tokens that an edit may leave without a finite log-probability."""


def finite_or_nan(logprobs_N: Floats) -> Floats:
    """A truncated token has -inf on both sides of a difference, which is no number."""
    return np.where(np.isfinite(logprobs_N), logprobs_N, np.nan)
