"""Ranks the generic edits of a learner by what they would do to a gap, to first order.

An edit's estimated effect on each token is compared with the gap. The estimate of a large change is
poor, but among thousands of edits it leaves few: what has little in common with the gap is not
tried. Edits of a place compete with each other first, so that no place takes all tries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grpodoctor.probe.attribution.edits import EditFamily, as_json
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.engines.first_order import EstimatedEdit, Estimates, read_estimates
from grpodoctor.probe.engines.jobs import FirstOrderJob

TOKENS = 128
"""Tokens whose gradients are taken."""
_FEWEST = 24
"""Tokens below which an effect fits a gap by chance."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token."""
_SHARES = (0.05, 2.0)
"""The gap as a multiple of an edit's estimated effect. In six families, nine in ten planted edits
were about 0.02 to 1.4 times their estimate (`tests/benchmarks/bench_edit_ranking.py`); a tiny
effect that happens to have the gap's direction is further off."""
_SAME = 1e-3
"""Relative difference below which two edits have the same effect."""
_PER_PLACE = 12
"""Edits of one place that are tried before those of others. Of 2, 4 and 12, this lists most planted
edits, whichever of the six families is left out (the same command)."""
_KEPT = 400
"""Edits that are compared with each other."""
_GAP_APART = 0.05
"""Largest difference of the measured log-probabilities from the learner's, relative to the gap."""
_STRUCTURAL = re.compile(r"later |twice |exchanged |axes$|last$|first$|overwrites$|reversed$")
"""Changes of order, axes and repetitions: there are few in all layers together, and they change so
much that the estimate says little."""
_USUAL = (0.0, -1.0, 0.5, 2.0)
"""Factors of common faults: a part that is lost, negated, halved or doubled."""
_NEAR = 0.25
"""Distance from an estimated factor at which a usual one is tried, too."""


@dataclass(frozen=True, slots=True)
class RankedEdit:
    """An edit with the share of the gap's variance that its estimated effect explains."""

    family: EditFamily
    explained: float
    is_structural: bool = False


class EditEstimates:
    """The estimates of a learner's edits in one variant.

    Args:
        estimates: as the engine returned them.
        missing_N: what the sampler's values exceed the learner's by, for the same tokens.
    """

    def __init__(self, estimates: Estimates, missing_N: Floats) -> None:
        self._edits = estimates.edits
        at_N = np.isfinite(missing_N) & np.isfinite(estimates.effects_EN).all(axis=0)
        self.token_N = estimates.token_N[at_N]
        """The tokens of the estimates, among those of the sample."""
        self._effects_EN = np.clip(estimates.effects_EN[:, at_N].astype(np.float64), -_CLIP, _CLIP)
        self._missing_N = np.clip(missing_N[at_N], -_CLIP, _CLIP)
        cross_E = self._effects_EN @ self._missing_N
        size_E = np.square(self._effects_EN).sum(axis=1) + 1e-300
        whole = float(self._missing_N @ self._missing_N) + 1e-300
        self._share_E = cross_E / size_E
        self._explained_E = cross_E**2 / (size_E * whole)

    @property
    def is_usable(self) -> bool:
        """Whether enough tokens were measured."""
        return self._missing_N.size >= _FEWEST and len(self._effects_EN) > 0

    @property
    def sites(self) -> frozenset[str]:
        """The sites with an estimate."""
        return frozenset(edit.site for edit in self._edits[: len(self._effects_EN)])

    def most_promising(self, most: int) -> list[tuple[EstimatedEdit, Floats]]:
        """Edits of different effects with these, those that explain most of the gap first."""
        order = np.argsort(-self._explained_E, kind="stable")
        units_EN = self._effects_EN / (np.abs(self._effects_EN).max(axis=1, keepdims=True) + 1e-300)
        kept: list[int] = []
        kept_KN = np.empty((most, units_EN.shape[1]))
        for number in order.tolist():
            if len(kept) >= most:
                break
            apart_KN = np.abs(kept_KN[: len(kept)] - units_EN[number])
            if not kept or apart_KN.max(axis=1).min() > _SAME:
                kept_KN[len(kept)] = units_EN[number]
                kept.append(number)
        return [(self._edits[n], self._effects_EN[n]) for n in kept]

    def structural(self) -> list[RankedEdit]:
        """Edits in all layers that are tried whatever their estimate, the likeliest first."""
        numbers = [
            n
            for n, edit in enumerate(self._edits)
            if not edit.site[:1].isdigit() and _is_structural(edit)
        ]
        ranked = sorted(numbers, key=lambda n: -self._of(n))
        return [
            RankedEdit(_family(self._edits[n]), self._of(n), is_structural=True) for n in ranked
        ]

    def ranked(self) -> list[RankedEdit]:
        """All other edits, the likeliest first, a few of each place before further ones."""
        distinct = list(self._distinct())
        places: Counter[str] = Counter()
        turns = {}
        for number in distinct:
            place = re.split(r"[/#]", self._edits[number].site)[0]
            turns[number] = places[place] // _PER_PLACE
            places[place] += 1
        order = sorted(distinct, key=lambda n: (turns[n], -self._of(n)))
        return [RankedEdit(self._with_number(n), self._of(n)) for n in order]

    def _of(self, number: int) -> float:
        return float(self._explained_E[number]) if number < len(self._explained_E) else 0.0

    def _distinct(self) -> Iterator[int]:
        """The likeliest edits without those that have the effect of a likelier one."""
        least, most = _SHARES
        chosen = [
            n
            for n, share in enumerate(self._share_E)
            if self._edits[n].is_number or least <= share <= most
        ]
        chosen.sort(key=lambda n: (-round(self._of(n), 3), _simplicity(self._edits[n])))
        kept: list[int] = []
        for number in chosen:
            if len(kept) >= _KEPT:
                return
            effect = self._unit(number)
            if all(
                np.abs(effect - self._unit(one)).max() > _SAME for one in kept[-_PER_PLACE * 8 :]
            ):
                kept.append(number)
                yield number

    def _unit(self, number: int) -> Floats:
        effect: Floats = self._effects_EN[number]
        if self._edits[number].is_number:
            effect = effect * self._share_E[number]
        unit: Floats = effect / (np.abs(effect).max() + 1e-300)
        return unit

    def _with_number(self, number: int) -> EditFamily:
        edit = self._edits[number]
        if not edit.is_number or edit.value:
            return _family(edit)
        factor = 1 + float(self._share_E[number])
        near = [usual for usual in _USUAL if abs(usual - factor) < _NEAR]
        values = dict.fromkeys((float(f"{factor:.2g}"), *near))
        return EditFamily(edit.name, tuple(values), "number", 1.0, edit.site)

    def by_layer(self) -> list[tuple[float, str]]:
        """The sites of factors, by the share that a factor for each layer explains together."""
        layers: dict[str, dict[int, int]] = {}
        for number, edit in enumerate(self._edits[: len(self._effects_EN)]):
            layer, colon, site = edit.site.partition(":")
            if edit.name == "site_scale" and colon:
                layers.setdefault(site, {})[int(layer)] = number
        found = []
        for site, numbers in layers.items():
            if 1 < len(numbers) < self._missing_N.size / 2:
                effects_NL = self._effects_EN[[numbers[layer] for layer in sorted(numbers)]].T
                left = effects_NL @ np.linalg.lstsq(effects_NL, self._missing_N, rcond=None)[0]
                rest = self._missing_N - left
                whole = float(self._missing_N @ self._missing_N) + 1e-300
                found.append((1 - float(rest @ rest) / whole, site))
        return sorted(found, reverse=True)


def edit_estimates(
    experiments: Experiments, variant: Variant, folder: Path, target_N: Floats, base_N: Floats
) -> EditEstimates | None:
    """The estimates of a learner's generic edits; None if they are of other values.

    Args:
        experiments: of the case.
        variant: the learner's setup.
        folder: of the responses on which edits are tried.
        target_N: the sampler's values of their tokens.
        base_N: the learner's values.

    Raises:
        EngineError: if the learner cannot make any.
        BudgetSpentError: if the time budget is used up.
    """
    setup = variant.setup
    if setup.learner_map is not None:
        return None
    job = FirstOrderJob(
        rollouts=folder,
        tokens=TOKENS,
        processing=setup.processing,
        what_if=as_json(setup.edits),
    )
    (done,) = experiments.runner.run(setup.learner, [job])
    read = read_estimates(done)
    if not read.token_N.size or read.token_N.max() >= base_N.size:
        return None
    missing_N = (target_N - base_N)[read.token_N]
    apart_N = np.abs(read.logprob_N - base_N[read.token_N])
    typical = float(np.nanmedian(np.abs(missing_N)))
    if not float(np.nanmedian(apart_N)) <= _GAP_APART * typical:
        return None
    found = EditEstimates(read, missing_N)
    return found if found.is_usable else None


def _family(edit: EstimatedEdit) -> EditFamily:
    if edit.is_number:
        return EditFamily(edit.name, (float(edit.value),), "number", None, edit.site)
    return EditFamily(edit.name, (edit.value,), "choice", None, edit.site)


def _simplicity(edit: EstimatedEdit) -> tuple[int, int]:
    """Of edits with the same effect, the one that says least else comes first."""
    kinds: Sequence[str] = ("site_scale", "site_change", "operation", "site_bound")
    kind = kinds.index(edit.name) if edit.name in kinds else len(kinds)
    return kind, len(edit.value)


def _is_structural(edit: EstimatedEdit) -> bool:
    """Whether an edit changes so much that its estimate says little."""
    if edit.name == "rank_part":  # of the projections of whole blocks
        return edit.site.endswith("*")
    if not _STRUCTURAL.match(edit.value):
        return False
    return edit.name == "operation" or (edit.value == "reversed" and _is_kernel(edit))


def _is_kernel(edit: EstimatedEdit) -> bool:
    return edit.site.endswith("/weight") and "conv" in edit.site


def families_of(ranked: Iterable[RankedEdit]) -> list[EditFamily]:
    """The edits as families of the search."""
    return [each.family for each in ranked]
