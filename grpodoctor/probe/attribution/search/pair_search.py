"""Searches two changes that close a gap together.

A search for single edits has measured, or estimated from gradients, what each of a thousand changes
does. Pairs of them are fitted to the gap (`pair_fit.py`); those that explain most are computed, and
their numbers are fitted. A pair is of use only if it leaves next to nothing: among half a million,
many explain a part of any gap.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpodoctor.probe.attribution.edit_effects import CLIP
from grpodoctor.probe.attribution.edits import OTHER_WEIGHTS, Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_estimates import EditEstimates
from grpodoctor.probe.attribution.search.edit_search import GENERIC
from grpodoctor.probe.attribution.search.pair_fit import (
    Effect,
    FittedPair,
    pairs_of,
    price_of,
)
from grpodoctor.probe.attribution.search.refit import Number, numbers_of, refitted
from grpodoctor.probe.attribution.search.refit_tensors import with_tensors_again
from grpodoctor.probe.attribution.search.selection import CLOSED, NEARLY_WHOLE, edit_key
from grpodoctor.probe.attribution.search.truncation_effects import truncation_effects
from grpodoctor.probe.attribution.tokens import Floats, difference_gap
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import TEMPERATURES, Processing
from grpodoctor.probe.engines.first_order import EstimatedEdit

_COMPUTED = 32
"""Pairs that are computed, of measured changes, and as many with estimated ones."""
_PER_CHANGE = 10
"""Pairs of one change that are computed, so that no change takes all of them."""
_PER_COUPLE = 2
"""Pairs of the same two changes, with other numbers."""
_LISTED = 20_000
"""Pairs of the fit from which these are taken."""
_ESTIMATED = 1500
"""Estimated changes that are paired, those that explain most alone."""
_REFITTED = 4
"""Pairs whose numbers are fitted."""
_SIMILAR = 3.0
"""A pair that leaves more than this multiple of the best one's gap is no rival."""
_BIAS = "logit_bias"
"""An edit of a list of tokens and numbers."""
_AS_COMPUTED, _ANY_NUMBER, _ROUGH = (0.5, 1.6), (0.05, 20.0), (0.2, 5.0)
_FACTORS = (0.05, 3.0)
"""Multiples of an effect: of a change as it was computed, of a number, and of an estimate;
of the effect of adding 1 to a factor."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the learner: an edit, a temperature, or a truncation."""

    edit: Edit | None
    temperature: float = 0.0
    truncation: tuple[str, float] | None = None
    """The setting and its value."""

    def applied(self, setup: Setup) -> Setup:
        """The setup with the change."""
        if self.edit is not None:
            return replace(setup, edits=(*setup.edits, self.edit))
        name, value = self.truncation or ("temperature", self.temperature)
        changes: dict[str, Any] = {name: int(value) if name == "top_k" else value}
        return replace(setup, processing=replace(setup.processing, **changes))

    @property
    def key(self) -> tuple[str, str]:
        """What is changed, whatever the number."""
        if self.edit is None or self.edit[0] == _BIAS:
            return self.place, ""
        return edit_key(self.edit)

    @property
    def place(self) -> str:
        """What a second change would replace; empty if there can be several."""
        if self.edit is None:
            return "truncation" if self.truncation else "temperature"
        name, value = self.edit[0], json.loads(self.edit[1])
        if name in GENERIC:
            return ""
        if name == _BIAS:
            return f"{name} {value[0][0]}"
        return f"{name} {value[0]}" if isinstance(value, list) else name


@dataclass(frozen=True, slots=True)
class ClosedPair:
    """Two changes under which the learner agrees with the sampler."""

    first: Change
    second: Change
    after: Variant
    others: tuple[tuple[Change, Change], ...] = ()
    """Pairs that leave about as much of the gap."""


class PairSearch:
    """One search for two changes.

    Args:
        experiments: of the case.
        variant: the gap.
        estimates: of generic edits in its setup, to be paired, too; None for measured ones alone.
        scaled: sites at which a factor is no temperature.
    """

    def __init__(
        self,
        experiments: Experiments,
        variant: Variant,
        estimates: EditEstimates | None,
        scaled: Set[str] = frozenset(),
    ) -> None:
        self._scaled = scaled
        self._experiments, self._variant, self._estimates = experiments, variant, estimates
        self._folder, at = experiments.sub_sample(variant)
        self._at = at
        tokens = variant.tokens
        self._counted = tokens.counted_N[at]
        self._target, self._base = tokens.sampler_N[at], tokens.learner_N[at]
        with np.errstate(invalid="ignore"):
            missing_N = self._target - self._base
        self._missing = np.where(self._counted & np.isfinite(missing_N), missing_N, np.nan)

    def best(self) -> ClosedPair | None:
        """The pair that leaves the smallest gap, if that is next to nothing.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        known = self._experiments.effects.in_first(self._variant.setup, self._folder)
        kind = f"{self._variant.setup!r} {self._folder} {self._estimates is None}"
        done = self._experiments.pair_searches
        if known is None or kind in done or not self._experiments.has_passes:
            return None
        done.add(kind)
        measured = [*self._of_edits(known.effects), *self._of_temperatures()]
        measured += self._of_truncations()
        pairs = self._chosen(measured)
        gaps = self._gaps(pairs)
        most = self._most(measured)
        order = sorted(range(len(pairs)), key=gaps.__getitem__)
        for number in order[:_REFITTED]:
            first, second = pairs[number]
            after = self._fitted(first, second, most)
            if after is not None and self._closes(after):
                alike = (n for n in order if n != number and gaps[n] < _SIMILAR * gaps[number])
                near = [pairs[n] for n in alike][:_REFITTED]
                return ClosedPair(*_named_after(first, second, after), after, tuple(near))
        return None

    def _most(self, measured: Sequence[tuple[Change, Effect]]) -> float:
        """The gap that a pair may leave on the sample: it must be better than single changes."""
        alone = [self._gap(self._base + effect.moved_N) for _, effect in measured]
        count = int(np.isfinite(self._missing).sum())
        best = min(alone, default=np.inf)
        return float(best * np.exp(-price_of(len(measured), max(count, 1))))

    def _closes(self, after: Variant) -> bool:
        """Whether next to nothing is left: with much rounding, a pair may leave it by chance."""
        share = after.gap / self._variant.gap
        is_rounding = not self._experiments.is_loud(after.gap)
        return share < (1 - NEARLY_WHOLE if is_rounding else CLOSED)

    def _of_edits(self, effects: dict[Edit, Floats]) -> Iterator[tuple[Change, Effect]]:
        for edit, moved_N in effects.items():
            change = Change(edit)
            least, most = _ANY_NUMBER if _is_number(edit) else _AS_COMPUTED
            yield change, Effect(moved_N, least, most, place=change.place)

    def _of_temperatures(self) -> Iterator[tuple[Change, Effect]]:
        """The columns of other temperatures, which the first scoring has."""
        columns_NT = self._variant.tokens.at_temperature_NT
        now = self._variant.setup.processing.temperature
        if columns_NT is None or self._variant.setup.rescored is not None:
            return
        for at, temperature in enumerate(TEMPERATURES[: columns_NT.shape[1]]):
            if temperature != now:
                with np.errstate(invalid="ignore"):
                    moved_N = columns_NT[self._at, at].astype(np.float64) - self._base
                moved_N = np.where(np.isfinite(moved_N), moved_N, np.nan)
                yield (
                    Change(None, float(temperature)),
                    Effect(moved_N, *_AS_COMPUTED, place="temperature"),
                )

    def _of_truncations(self) -> Iterator[tuple[Change, Effect]]:
        """Truncations of the learner, from its likeliest tokens in the first scoring."""
        likeliest_NM = self._variant.tokens.likeliest_logprob_NM
        setup = self._variant.setup
        is_whole = setup.processing == Processing(temperature=setup.processing.temperature)
        if likeliest_NM is None or setup.rescored is not None or not is_whole:
            return
        for name, value, moved_N in truncation_effects(likeliest_NM[self._at]):
            change = Change(None, truncation=(name, value))
            yield change, Effect(moved_N, *_AS_COMPUTED, place=change.place)

    def _chosen(self, measured: Sequence[tuple[Change, Effect]]) -> list[tuple[Change, Change]]:
        """The pairs to compute: of measured changes on all tokens, then with estimated ones."""
        chosen: dict[tuple[Change, Change], None] = {}
        self._add(chosen, self._listed(measured, self._missing))
        if self._estimates is not None:
            at_N = self._estimates.token_N
            some = [
                (change, replace(effect, moved_N=effect.moved_N[at_N]))
                for change, effect in measured
            ]
            estimated = [
                _estimated(edit, moved_N)
                for edit, moved_N in self._estimates.most_promising(_ESTIMATED)
                if edit.name != "site_scale" or edit.site.rpartition(":")[2] in self._scaled
            ]
            self._add(chosen, self._listed([*some, *estimated], self._missing[at_N]))
        return list(chosen)

    @staticmethod
    def _add(
        chosen: dict[tuple[Change, Change], None], listed: Sequence[tuple[Change, Change]]
    ) -> None:
        """Add the best pairs, each couple of changes a few times."""
        counts: Counter[Any] = Counter()
        kept = 0
        for pair in listed:
            keys = [each.key for each in pair]
            if counts[tuple(keys)] >= _PER_COUPLE or pair in chosen:
                continue
            if max(counts[key] for key in keys) >= _PER_CHANGE:
                continue
            counts.update([*keys, tuple(keys)])
            chosen[pair] = None
            kept += 1
            if kept == _COMPUTED:
                return

    def _listed(
        self, changes: Sequence[tuple[Change, Effect]], missing_N: Floats
    ) -> list[tuple[Change, Change]]:
        if len(changes) < 2:
            return []
        pairs = pairs_of([effect for _, effect in changes], missing_N, _LISTED)
        return [_pair(changes, each) for each in pairs]

    def _gaps(self, pairs: Sequence[tuple[Change, Change]]) -> list[float]:
        """The gap that each pair leaves on the sample."""
        setups = [second.applied(first.applied(self._variant.setup)) for first, second in pairs]
        return [self._gap(learner_N) for learner_N in self._scored(setups)]

    def _scored(self, setups: Sequence[Setup]) -> list[Floats | None]:
        """The learner's values of the sample in some setups."""
        found: list[Floats | None] = [None] * len(setups)
        for processing in dict.fromkeys(setup.processing for setup in setups):
            numbers = [n for n, setup in enumerate(setups) if setup.processing == processing]
            plain = replace(self._variant.setup, processing=processing)
            scores = self._experiments.score_edits(
                plain, [setups[n].edits for n in numbers], self._folder
            )
            for n, learner_N in zip(numbers, scores, strict=True):
                found[n] = None if learner_N is None else learner_N[: self._target.size]
        return found

    def _gap(self, learner_N: Floats | None) -> float:
        if learner_N is None:
            return np.inf
        at_N = self._counted & np.isfinite(self._target) & np.isfinite(learner_N)
        known = (self._counted & np.isfinite(self._target)).sum()
        if at_N.sum() < _KEPT * known or not at_N.any():
            return float("inf")
        return difference_gap(learner_N[at_N], self._target[at_N])

    def _fitted(self, first: Change, second: Change, most: float) -> Variant | None:
        """All tokens with both changes, their numbers fitted; None if much remains."""
        setup = second.applied(first.applied(self._variant.setup))
        setup, gap = self._with_numbers(setup, most)
        if not gap < most:
            return None
        (learner_N,) = self._experiments.score_edits(setup, [setup.edits])
        if learner_N is None:
            return None
        size = self._variant.tokens.sampler_N.size
        after = Variant(setup, self._variant.tokens.with_learner(learner_N[:size]))
        if after.gap > _NEAR * self._variant.gap:
            return None
        original = self._variant.setup
        for _ in range(_TENSOR_ROUNDS):
            after = refitted(self._experiments, after, original)
            again = with_tensors_again(self._experiments, after, self._variant)
            if again is None:
                break
            setup, _ = self._with_numbers(again.setup, np.inf)
            after = self._experiments.vary(again, processing=setup.processing, edits=setup.edits)
        return after

    def _with_numbers(self, setup: Setup, most: float) -> tuple[Setup, float]:
        """The setup with the numbers that fit best, by Gauss-Newton steps on all of them.

        Args:
            setup: with the first numbers.
            most: gap from which only one step is made.

        Returns:
            the setup, and its gap on the sample.
        """
        (base_N,) = self._scored([setup])
        gap = self._gap(base_N)
        for _ in range(_STEPS):
            numbers = list(numbers_of(setup, self._variant.setup))
            if not numbers or base_N is None or not self._experiments.is_loud(gap):
                break
            sizes = [_STEP * max(abs(one.value), _SMALL) for one in numbers]
            near = [one.put(setup, one.value + by) for one, by in zip(numbers, sizes, strict=True)]
            moved = [each for each in self._scored(near) if each is not None]
            if len(moved) < len(numbers):
                break
            # Forbidden tokens have -inf on both sides; the fit leaves their NaN out.
            with np.errstate(invalid="ignore"):
                columns = [(each - base_N) / by for each, by in zip(moved, sizes, strict=True)]
                missing_N = self._target - base_N
            step_K = _least_squares(np.stack(columns, axis=1), missing_N)
            tried = [_stepped(setup, numbers, step_K * length) for length in _LENGTHS]
            scores = self._scored(tried)
            gaps = [self._gap(one) for one in scores]
            best = int(np.argmin(gaps))
            if gaps[best] >= _BETTER * gap:
                break
            setup, base_N, gap = tried[best], scores[best], gaps[best]
            if not gap < most:
                break
        return setup, gap


_TENSOR_ROUNDS = 3
"""Times that tensors of another checkpoint are searched next to the other change."""
_STEPS = 6
"""Most steps of one fit; each needs a pass per number."""
_STEP = 0.02
"""Relative change of a number by which its effect is measured."""
_SMALL = 0.1
"""Number below which changes are not relative."""
_LENGTHS = (1.0, 0.5, 0.2)
"""Parts of a step that are tried."""
_FARTHEST = 0.5
"""Largest relative change of a number in a step."""
_BETTER = 0.98
"""Factor by which the gap falls in a step, otherwise it is the last one."""
_NEAR = 0.1
"""Share of the gap that a pair may leave for its numbers to be fitted to all digits."""


def _least_squares(moved_NK: Floats, missing_N: Floats) -> Floats:
    at_N = np.isfinite(moved_NK).all(axis=1) & np.isfinite(missing_N)
    step_K, *_ = np.linalg.lstsq(moved_NK[at_N], np.clip(missing_N[at_N], -CLIP, CLIP), rcond=None)
    return np.asarray(step_K, np.float64)


def _stepped(setup: Setup, numbers: Sequence[Number], step_K: Floats) -> Setup:
    for number, by in zip(numbers, step_K.tolist(), strict=True):
        most = _FARTHEST * max(abs(number.value), _SMALL)
        setup = number.put(setup, number.value + float(np.clip(by, -most, most)))
    return setup


_KEPT = 0.98
"""Share of the tokens that must keep a finite log-probability."""


def _estimated(edit: EstimatedEdit, moved_N: Floats) -> tuple[Change, Effect]:
    """An estimated edit as a change; the factor of one that has any is not known yet."""
    if edit.is_number and not edit.value:
        unknown = Change((edit.name, json.dumps([edit.site, None])))
        return unknown, Effect(moved_N, *_FACTORS, may_be_opposite=True)
    value = float(edit.value) if edit.is_number else edit.value
    return Change((edit.name, json.dumps([edit.site, value]))), Effect(moved_N, *_ROUGH)


def _pair(changes: Sequence[tuple[Change, Effect]], pair: FittedPair) -> tuple[Change, Change]:
    """The changes of a fitted pair, with the factors that fit."""
    first, second = (
        _with_factor(changes[number][0], share)
        for number, share in zip((pair.first, pair.second), pair.shares, strict=True)
    )
    return first, second


def _with_factor(change: Change, share: float) -> Change:
    if change.edit is None:
        return change
    name, content = change.edit
    value = json.loads(content)
    if name != "site_scale" or value[1] is not None:
        return change
    return Change((name, json.dumps([value[0], float(f"{1 + share:.2g}")])))


def _is_number(edit: Edit) -> bool:
    value: Any = json.loads(edit[1])
    number = value[-1] if isinstance(value, list) and value else value
    return isinstance(number, float)


def _named_after(first: Change, second: Change, after: Variant) -> tuple[Change, Change]:
    """The changes with their fitted numbers and tensors."""

    def final(change: Change) -> Change:
        if change.truncation is not None:
            name, _ = change.truncation
            return Change(None, truncation=(name, getattr(after.setup.processing, name)))
        if change.edit is None:
            return Change(None, after.setup.processing.temperature)
        key, name = edit_key(change.edit), change.edit[0]
        return next(
            Change(edit)
            for edit in reversed(after.setup.edits)
            if edit_key(edit) == key or name == edit[0] == OTHER_WEIGHTS
        )

    return final(first), final(second)
