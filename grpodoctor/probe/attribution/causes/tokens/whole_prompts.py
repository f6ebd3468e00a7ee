"""One side reads a part of each prompt only, or the prompt of another row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from grpodoctor.probe.attribution.causes.tokens.each_prompt import CLOSES, EachPrompt
from grpodoctor.probe.attribution.causes.tokens.prompt_search import (
    OtherPrompts,
    PromptSearch,
    Whole,
    edit_of_all,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT

_ALL_SIZES, _MOST_SIZES = 48, 96
"""Numbers of tokens up to which each is tried, and how many are tried in all."""
_DIVISIONS = (2, 3, 4)
"""A part of each prompt that is lost, such as the reasoning of an earlier turn."""
_CUT = 0.25
"""Largest share of the gap that a cut of all prompts may leave next to another fault. After hardly
any prompt, no token is as unlikely as after a wrong one, so a short one lowers a large gap."""
_ROWS = 8
"""Rows before and after a prompt whose prompts are tried in its place."""
_MOST_TOKENS = 200_000
"""Prompt tokens of all those rows: each edit lists them."""


class WholePrompts(PromptSearch):
    """Same cause as `PromptIds`, where prompts are cut, or belong to other rows."""

    remedies = (
        "Compare the prompts that both sides read row by row: limits on prompts keep their first "
        "or last tokens, templates drop the reasoning of earlier turns, and a batch that is sorted "
        "or repeated must keep prompts and responses together.",
        *PromptSearch.remedies,
    )
    strength = 0.41
    """Before hundreds of edits of the model: it takes fewer passes than any of these searches."""

    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """Cut all prompts; if that leaves much, try the prompts of other rows."""
        cut, left = _cut(experiments, variant)
        rows = _of_other_rows(experiments, variant) if left > CLOSES else None
        return rows or (cut if left <= _CUT else None)


def _cut(experiments: Experiments, variant: Variant) -> tuple[OtherPrompts | None, float]:
    """The cut of all prompts that leaves the smallest share of the gap, and the share."""
    gaps = EditGaps(experiments, variant)
    whole = gaps.gap(gaps.base_N)
    if not EXACT < whole < np.inf:  # the few responses agree: the gap is in others
        return None, np.inf
    prompts = experiments.sampled_prompts.values()
    changes = list(_cuts(max(map(len, prompts), default=0)))
    left = gaps.of([edit_of_all([change]) for change in changes])
    best = int(np.argmin(left)) if left else 0
    if not left:
        return None, np.inf
    words = _in_words(changes[best])
    found = OtherPrompts(edit_of_all([changes[best]]), words, details=(words,), figures={})
    return found, left[best] / whole


def _cuts(longest: int) -> Iterator[Whole]:
    sizes = [size for size in _sizes() if size < longest]
    yield from (("last", size) for size in sizes)
    yield from (("first", size) for size in sizes)
    for count in _DIVISIONS:
        for part in range(count):
            yield "without", [part + 1, count]


def _sizes() -> list[int]:
    """Each small number, then such as usual limits are: 64, 96, 128 and so on."""
    further = (size for power in range(6, 20) for size in (2**power, 3 * 2 ** (power - 1)))
    return [*range(1, _ALL_SIZES + 1), *further][:_MOST_SIZES]


def _in_words(change: Whole) -> str:
    how, value = change
    if how == "without":
        part, count = value
        return f"each prompt without part {part} of {count} of its tokens"
    return f"the {how} {value} tokens of each prompt"


def _of_other_rows(experiments: Experiments, variant: Variant) -> OtherPrompts | None:
    """Other rows' prompts in place of some prompts; None if they do not close the gap."""
    prompts = experiments.sampled_prompts
    sets = list(_rows(prompts))
    if not sets or sum(map(len, prompts.values())) > _MOST_TOKENS:
        return None
    search = EachPrompt[Whole](experiments, variant, lambda change: [change])
    search.tried({n: [each[n] for each in sets] for n in search.at})
    if not search.is_closed(search.at):
        return None
    chosen = search.best()
    words = f"the prompts of other rows in {len(chosen)} of {len(search.at)} rows"
    return OtherPrompts(
        search.edit(chosen), words, details=(words,), figures={"differing": float(len(chosen))}
    )


def _rows(prompts: Mapping[int, Sequence[int]]) -> Iterator[dict[int, Whole]]:
    """For all prompts at once: the prompt of a row nearby in place of its own, or before it."""
    numbers = sorted(prompts)
    for far in range(1, min(_ROWS, len(numbers) - 1) + 1):
        for step in (-far, far):
            moved = [numbers[(at + step) % len(numbers)] for at in range(len(numbers))]
            for how in ("all", "after") if far == 1 else ("all",):
                yield {
                    number: (how, list(prompts[other]))
                    for number, other in zip(numbers, moved, strict=True)
                }
