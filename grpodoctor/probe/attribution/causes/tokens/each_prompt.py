"""Tries changes of prompts, the n-th of all prompts at once; each prompt keeps its best one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from grpodoctor.probe.attribution.causes.tokens.prompt_search import At, Whole, edit_by_prompt
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import regression, total_gap
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.attribution.variant import Variant

CLOSES = 0.05
"""Largest share of the gap that may remain. Each prompt takes the best of many changes, so chance
lowers the gap, too, but no choice by chance closes that of responses to which it was not fitted."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token in what an effect has in common with the gap."""
Change = TypeVar("Change")


class EachPrompt(Generic[Change]):
    """The best change of each prompt, judged by one of its responses.

    Args:
        experiments: of the case.
        variant: the gap.
        listed: a change as the edit lists it.
    """

    def __init__(
        self,
        experiments: Experiments,
        variant: Variant,
        listed: Callable[[Change], Iterable[At | Whole]],
    ) -> None:
        self._experiments, self._setup, self._listed = experiments, variant.setup, listed
        self._folder, at = experiments.one_of_each_prompt(variant)
        tokens = variant.tokens
        self._target, self._base = tokens.sampler_N[at], tokens.learner_N[at]
        prompt_N = tokens.prompt_B[tokens.rows_N[at]]
        self.at = {int(n): tokens.finite_N[at] & (prompt_N == n) for n in np.unique(prompt_N)}
        """The tokens of each prompt."""
        self._before = {n: total_gap(self._base, self._target, own) for n, own in self.at.items()}
        self._best: dict[int, tuple[float, Change | None]] = {
            n: (gap, None) for n, gap in self._before.items()
        }

    def loud(self) -> list[int]:
        """The prompts whose gap exceeds rounding."""
        return [n for n in self.at if self._is_loud(n, self._before[n])]

    def still_loud(self, prompts: Iterable[int]) -> list[int]:
        """Those prompts of which the best change leaves more than rounding."""
        return [n for n in prompts if self._is_loud(n, self._best[n][0])]

    def _is_loud(self, number: int, gap: float) -> bool:
        return self._experiments.is_loud(gap / max(int(self.at[number].sum()), 1))

    def tried(self, changes: Mapping[int, Sequence[Change]]) -> dict[int, list[float]]:
        """Compute the changes of each prompt, and keep the best ones.

        Returns:
            what each has in common with its prompt's gap.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        merits: dict[int, list[float]] = {n: [] for n in changes}
        rounds = max(map(len, changes.values()), default=0)
        sets = [{n: own[k] for n, own in changes.items() if k < len(own)} for k in range(rounds)]
        edits = [(*self._setup.edits, self.edit(each)) for each in sets]
        scores = self._experiments.score_edits(self._setup, edits, self._folder)
        unfit_N = np.full(self._base.size, np.nan)
        for each, learner_N in zip(sets, scores, strict=True):
            own_N = unfit_N if learner_N is None else learner_N[: unfit_N.size]
            for number, change in each.items():
                merits[number].append(self._judged(number, change, own_N))
        return merits

    def edit(self, changes: Mapping[int, Change]) -> tuple[str, str]:
        """The edit with one change of each prompt."""
        return edit_by_prompt({number: self._listed(one) for number, one in changes.items()})

    def _judged(self, number: int, change: Change, learner_N: Floats) -> float:
        at_N = self.at[number]
        left = total_gap(learner_N, self._target, at_N)
        if left < self._best[number][0]:
            self._best[number] = left, change
        missing_N, moved_N = (each[at_N] - self._base[at_N] for each in (self._target, learner_N))
        return regression(missing_N, moved_N, _CLIP)[1]

    def is_closed(self, prompts: Iterable[int]) -> bool:
        """Whether the best changes leave next to nothing of the gap of some prompts."""
        chosen = list(prompts)
        left = sum(self._best[number][0] for number in chosen)
        return left <= CLOSES * sum(self._before[number] for number in chosen)

    def best(self) -> dict[int, Change]:
        """The best change of each prompt whose gap one lowers."""
        return {n: change for n, (_, change) in self._best.items() if change is not None}
