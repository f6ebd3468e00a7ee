"""Whether the answers of some rows were joined to the wrong prompts.

The tests compare the table with itself. If most answers have a relation to their own prompt and
some have the same relation to another row's prompt, a join went wrong. Answers of another kind have
the relation to no prompt.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

from grpodoctor.preflight.texts.normal_form import number_of, words_of

_MIN_ROWS = 40
_MIN_MATCHED = 0.5
"""Share of answers that must occur in their own prompt."""
_MIN_MISSED, _MIN_MISSED_SHARE = 8, 0.02
_MIN_EXPLAINED = 0.9
"""Share of the other answers that must occur in another row's prompt."""
_MIN_EXCESS = 0.3
"""By how much a text must occur in the prompts of its own rows more often than in any prompt."""
_EXCHANGED = 0.8
"""Share of rows with the rare answer of another prompt, if the whole table was joined wrongly."""
_MIN_DISTINCT = 1 / 3
_MIN_REPEATED_SHARE = 0.05
_LEVEL = 1e-9
"""Probability of as many repetitions in a random order of the answers."""
_RANDOM_PAIRS = 500
_RELATED = 0.9
"""Quantile of the weight of shared words, above which two prompts are about the same."""


def answers_of_other_prompts(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Rows whose answer occurs in other rows' prompts, while most answers occur in their own.

    A text counts only if it occurs in the prompts of the rows that it answers far more often than
    in others. So yes, no and other words that occur anywhere do not count.
    """
    texts = [f" {' '.join(words_of(prompt))} " for prompt in prompts]
    keys = [
        f" {' '.join(words_of(answer))} " if number_of(answer) is None else "" for answer in answers
    ]
    rows = [at for at, key in enumerate(keys) if len(key.strip()) > 1]
    missed = [at for at in rows if keys[at] not in texts[at]]
    if everywhere := _all_exchanged(keys, texts, rows, missed):
        return everywhere
    if (
        len(rows) < _MIN_ROWS
        or len(missed) < max(_MIN_MISSED, _MIN_MISSED_SHARE * len(rows))
        or len(rows) - len(missed) < _MIN_MATCHED * len(rows)
    ):
        return []
    uses = Counter(keys[at] for at in rows)
    missed_uses = Counter(keys[at] for at in missed)
    occurrences = {key: sum(key in text for text in texts) for key in missed_uses}
    explained = [
        at for at in missed if _is_foreign(keys[at], uses, missed_uses, occurrences, len(texts))
    ]
    return explained if len(explained) >= _MIN_EXPLAINED * len(missed) else []


def _all_exchanged(
    keys: Sequence[str], texts: Sequence[str], rows: Sequence[int], missed: Sequence[int]
) -> list[int]:
    """Rows whose rare answer occurs in the prompt of another row, if nearly all are such rows."""
    uses = Counter(keys[at] for at in rows)
    if len(rows) < _MIN_ROWS or len(uses) < len(rows) / 2 or len(missed) < _EXCHANGED * len(rows):
        return []
    found = [
        at for at in missed
        if len(keys[at].split()) > 1
        and 0 < sum(keys[at] in text for text in texts) <= 2 * uses[keys[at]]
    ]  # fmt: skip
    return found if len(found) >= _EXCHANGED * len(rows) else []


def _is_foreign(
    key: str, uses: Counter[str], missed: Counter[str], occurrences: dict[str, int], rows: int
) -> bool:
    """Whether an answer that its own prompt lacks belongs to the prompt of another row."""
    found = occurrences[key]
    matched = uses[key] - missed[key]
    if not found:
        return False
    if matched:
        return matched / uses[key] >= found / rows + _MIN_EXCESS
    return len(key.split()) > 1 and found <= 2 * uses[key]  # a rare name


def filled_down(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Rows that have the answer of the row before, if far more of them do than by chance.

    A table whose empty cells were filled from above looks so. Pairs of prompts about the same
    thing do not count, nor do sorted answers and those of a closed set.
    """
    from scipy.stats import poisson

    keys = [answer.strip().casefold() for answer in answers]
    size = len(keys)
    if size < _MIN_ROWS or len(set(keys)) < _MIN_DISTINCT * size or _is_sorted(answers):
        return []
    repeated = [at for at in range(1, size) if keys[at] and keys[at] == keys[at - 1]]
    if len(repeated) < _MIN_REPEATED_SHARE * size:
        return []
    related = _related_to_previous(prompts)
    repeated = [at for at in repeated if at not in related]
    expected = size * sum((count / size) ** 2 for count in Counter(keys).values())
    if len(repeated) < _MIN_REPEATED_SHARE * size:
        return []
    # The repetitions themselves raise the expectation, so this errs to the safe side.
    return repeated if float(poisson.sf(len(repeated) - 1, expected)) < _LEVEL else []


def _is_sorted(answers: Sequence[str]) -> bool:
    numbers = [number_of(answer) for answer in answers]
    values = [number for number in numbers if number is not None]
    ordered: Sequence[float] | Sequence[str] = values if len(values) == len(answers) else answers
    pairs = list(itertools.pairwise(ordered))
    rising = sum(bool(one <= other) for one, other in pairs)  # type: ignore[operator]
    return max(rising, len(pairs) - rising) > _MIN_EXPLAINED * len(pairs)


def _related_to_previous(prompts: Sequence[str]) -> set[int]:
    """Rows whose prompt shares more rare words with the row before than random pairs do."""
    words = [set(words_of(prompt)) for prompt in prompts]
    counts = Counter(word for each in words for word in each)
    weights = {word: math.log(len(words) / count) for word, count in counts.items()}

    def shared(one: int, other: int) -> float:
        return sum(weights[word] for word in words[one] & words[other])

    rng = random.Random(0)  # noqa: S311 - a comparison, no secret
    pairs = (rng.sample(range(len(words)), 2) for _ in range(_RANDOM_PAIRS))
    usual = sorted(shared(one, other) for one, other in pairs)[int(_RELATED * _RANDOM_PAIRS)]
    return {at for at in range(1, len(words)) if shared(at, at - 1) > usual}
