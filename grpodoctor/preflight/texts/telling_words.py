"""Places and words of prompts that tell the answer by themselves.

Each rule is learned on one half of the rows and tested on the other, so that a rule that only
repeats its rows does not count.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
_ID = re.compile(r"\w+(?:[-_/:.#]\w+)+")
"""A name of several parts, such as ward-017-b."""
_PLACES = 14
"""Words at the beginning and at the end of a prompt that are examined."""
_MIN_USE, _MAX_USE = 0.1, 0.9
"""Share of the prompts that must have a word, so that it can tell two answers apart."""
_MAX_WORDS = 300
_BINS = 8
"""Ranges of a length, each with as many prompts."""
_EDGE = 400
"""Characters at the beginning and at the end of a prompt that are examined."""


@dataclass(frozen=True, slots=True)
class TellingRule:
    """A rule that finds answers by one feature of the prompts."""

    description: str
    rate: float
    """Share of rows of the other half that the rule gets right."""
    example: str


def best_rule(
    prompts: Sequence[str], answers: Sequence[str], *, only_ids: bool
) -> TellingRule | None:
    """The one feature that finds most answers; None without rows.

    Args:
        prompts: texts of the prompts.
        answers: answers of a closed set.
        only_ids: leave out words, which may be what the question is about.
    """
    rules: list[TellingRule] = []
    for name, features in _features(prompts, only_ids=only_ids).items():
        rate, example = _rate(features, answers)
        rules.append(TellingRule(name, rate, example))
    return max(rules, key=lambda rule: rule.rate, default=None)


def _features(prompts: Sequence[str], *, only_ids: bool) -> dict[str, list[Hashable]]:
    features: dict[str, list[Hashable]] = {
        "the last part of an id": [_id_part(text, -1) for text in prompts],
        "the first part of an id": [_id_part(text, 0) for text in prompts],
        "the blanks at the end": [text[len(text.rstrip()) :] for text in prompts],
        "the number of line breaks": [text.count("\n") for text in prompts],
    }
    if only_ids:
        return features
    features["the length of the prompt"] = _binned([len(text) for text in prompts])
    features["the number of capital letters"] = _binned(
        [sum(sign.isupper() for sign in text) for text in prompts]
    )
    tokens = [_edges(text) for text in prompts]
    for place in range(_PLACES):
        # Numbers are what a question is about.
        firsts, lasts = zip(
            *((_at(first, place), _at(last, -place - 1)) for first, last in tokens), strict=True
        )
        for name, values in (("of the prompt", firsts), ("from the end", lasts)):
            features[f"word {place + 1} {name}"] = ["0" if v.isdigit() else v for v in values]
    sets = [{*first, *last} for first, last in tokens]
    uses = Counter(token for each in sets for token in each)
    size = len(prompts)
    chosen = [
        token for token, count in uses.most_common(_MAX_WORDS)
        if not token.isdigit() and _MIN_USE * size <= count <= _MAX_USE * size
    ]  # fmt: skip
    for token in chosen:
        features[f"the word {token!r}"] = [token in each for each in sets]
    return features


def _binned(values: Sequence[int]) -> list[Hashable]:
    """The eighth of the range of ranks in which each value is; equal values are in the same one."""
    ranked = sorted(values)
    places = {value: at for at, value in reversed(list(enumerate(ranked)))}
    return [places[value] * _BINS // max(len(values), 1) for value in values]


def _edges(text: str) -> tuple[list[str], list[str]]:
    """The words at the beginning and at the end, in lower case."""
    return (
        _TOKEN.findall(text[:_EDGE].casefold()),
        _TOKEN.findall(text[-_EDGE:].casefold()),
    )


def _at(tokens: Sequence[str], place: int) -> str:
    return tokens[place] if -len(tokens) <= place < len(tokens) else ""


def _id_part(text: str, place: int) -> str:
    """A part of the first name of several parts; empty if there is none."""
    found = _ID.search(text)
    return re.split(r"[-_/:.#]", found[0])[place].casefold() if found else ""


def _rate(features: Sequence[Hashable], answers: Sequence[str]) -> tuple[float, str]:
    """Share of answers that a feature finds, learned on the other half, and its best value."""
    order = list(range(len(answers)))
    random.Random(0).shuffle(order)  # noqa: S311 - a choice of rows
    hits, halves = 0, [order[::2], order[1::2]]
    best: Counter[tuple[Hashable, str]] = Counter()
    for learned, tested in (halves, halves[::-1]):
        counts: dict[Hashable, Counter[str]] = defaultdict(Counter)
        overall: Counter[str] = Counter()
        for at in learned:
            counts[features[at]][answers[at]] += 1
            overall[answers[at]] += 1
        usual = overall.most_common(1)[0][0]
        guesses = {value: known.most_common(1)[0][0] for value, known in counts.items()}
        for at in tested:
            if guesses.get(features[at], usual) == answers[at]:
                hits += 1
                best[features[at], answers[at]] += 1
    examples = [f"{value!r:.40}: {answer!r:.40}" for (value, answer), _ in best.most_common(3)]
    return hits / max(len(answers), 1), "; ".join(examples)
