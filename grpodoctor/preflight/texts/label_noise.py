"""An estimate of the share of wrong labels, by a classifier of words that is tested on other rows.

A hard question is one about which the classifier is unsure. A wrong label is also found where the
classifier is sure: labels that were changed at random do not depend on the text, so that its errors
do not become rarer with its confidence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.normal_form import words_of

_FOLDS = 5
_MIN_WORD_ROWS = 3
_MAX_WORDS = 2000
"""Words of one group, the most frequent first; rarer ones tell little, and take memory and time."""
_MIN_ROWS_PER_LABEL = 20
_MIN_SKILL = 0.3
"""Part of a fixed answer's errors that the classifier must avoid: words must decide."""
_SURE = 0.4
"""Share of rows, the most confident ones, in which the errors are counted."""
_MIN_NOISE = 0.04
"""Lower limit of the share of errors among them. Classifiers of words make few errors there."""
_DEVIATIONS = 2.5
_MIN_SEVERAL, _MOST_ERRORS, _MANY_TIMES = 4, 0.5, 2.0
"""Labels, and the share of errors that point to one of them, also compared with its frequency."""


@dataclass(frozen=True, slots=True)
class LabelNoise:
    """Labels that contradict those of similar rows."""

    rows: tuple[int, ...]
    """Rows about which the classifier is sure, most confident first."""
    sure: int
    """Rows about which it is sure."""


def label_noise(prompts: Sequence[str], labels: Sequence[str]) -> LabelNoise | None:
    """Wrong labels among the rows about which a classifier is sure; None if there is no sign."""
    counts = Counter(labels)
    if len(counts) < 2 or min(counts.values()) < _MIN_ROWS_PER_LABEL:
        return None
    predicted, margins = _cross_validated(prompts, labels)
    if _attracts(predicted, labels, counts):
        return None
    wrong = np.array([one != other for one, other in zip(predicted, labels, strict=True)])
    always = max(counts.values()) / len(labels)
    if 1 - wrong.mean() < always + _MIN_SKILL * (1 - always):
        return None
    order = np.argsort(-margins, kind="stable")
    sure = order[: int(_SURE * len(order))]
    rate = wrong[sure].mean()
    error = math.sqrt(max(rate * (1 - rate), 1e-9) / len(sure))
    if rate - _DEVIATIONS * error < _MIN_NOISE or _falls(wrong[order]):
        return None
    return LabelNoise(tuple(int(at) for at in sure if wrong[at]), len(sure))


def word_label_scores(
    texts: Sequence[set[str]],
    target: NDArray[np.int64],
    known: NDArray[np.bool_],
    tested: NDArray[np.bool_],
) -> float:
    """Share of the tested rows whose label, of two, the words of the known rows tell.

    If both are the same rows, each half is tested by the other one.
    """
    uses = Counter(word for at in np.flatnonzero(known) for word in texts[int(at)])
    kept = [word for word, count in uses.most_common(_MAX_WORDS) if count >= _MIN_WORD_ROWS]
    table = _word_table(texts, kept)
    if (known == tested).all():
        rows = np.random.default_rng(0).permutation(np.flatnonzero(known))
        parts = [(rows[::2], rows[1::2]), (rows[1::2], rows[::2])]
    else:
        parts = [(np.flatnonzero(known), np.flatnonzero(tested))]
    hits = total = 0
    for one, other in parts:
        scores = _scores(table[one], target[one], table[other], 2)
        hits += int((scores.argmax(axis=1) == target[other]).sum())
        total += len(other)
    return hits / max(total, 1)


def _attracts(predicted: Sequence[str], labels: Sequence[str], counts: Counter[str]) -> bool:
    """Whether one label takes most errors of several others: a weakness of the classifier.

    Labels that were changed at random point to all labels as often as these occur.
    """
    errors = Counter(one for one, other in zip(predicted, labels, strict=True) if one != other)
    if len(counts) < _MIN_SEVERAL or not errors:
        return False
    label, most = errors.most_common(1)[0]
    usual = _MANY_TIMES * counts[label] / len(labels)
    return most > max(_MOST_ERRORS, usual) * errors.total()


def _falls(wrong: NDArray[np.bool_]) -> bool:
    """Whether errors become rarer with confidence, as they do where questions are hard.

    Args:
        wrong: by falling confidence.
    """
    most, least = np.array_split(wrong, 2)
    difference = least.mean() - most.mean()
    error = math.sqrt(float(wrong.var()) * 2 / max(len(most), 1))
    return bool(difference > _DEVIATIONS * error or most.mean() < wrong.mean() / 2)


def _cross_validated(
    prompts: Sequence[str], labels: Sequence[str]
) -> tuple[list[str], NDArray[np.float64]]:
    """A label for each row from the other rows, and how clearly it wins, per word.

    The classifier is naive Bayes for the words that a prompt contains, without numbers.
    """
    texts = [sorted({word for word in words_of(text) if word.isalpha()}) for text in prompts]
    uses = Counter(word for words in texts for word in words)
    kept = [word for word, count in uses.items() if _MIN_WORD_ROWS <= count <= 0.9 * len(texts)]
    names = sorted(set(labels))
    target = np.array([names.index(label) for label in labels])
    table = _word_table(texts, kept)
    fold = np.random.default_rng(0).permutation(len(texts)) % _FOLDS
    scores = np.zeros((len(texts), len(names)))
    for number in range(_FOLDS):
        scores[fold == number] = _scores(
            table[fold != number], target[fold != number], table[fold == number], len(names)
        )
    ranked = np.sort(scores, axis=1)
    sizes = np.sqrt(np.maximum(table.sum(axis=1), 1))
    best = scores.argmax(axis=1)
    return [names[at] for at in best], (ranked[:, -1] - ranked[:, -2]) / sizes


def _word_table(texts: Sequence[Collection[str]], kept: Sequence[str]) -> NDArray[np.float32]:
    """Whether each text has each word, [texts, words]."""
    place = {word: at for at, word in enumerate(kept)}
    table = np.zeros((len(texts), len(kept)), np.float32)
    for at, words in enumerate(texts):
        table[at, [place[word] for word in words if word in place]] = 1.0
    return table


def _scores(
    known: NDArray[np.float32], target: NDArray[np.int64], tested: NDArray[np.float32], labels: int
) -> NDArray[np.float64]:
    """Logarithms of the probability of each label, but for a constant."""
    scores = np.zeros((len(tested), labels))
    for label in range(labels):
        rows = known[target == label]
        share = (rows.sum(axis=0) + 1.0) / (len(rows) + 2.0)
        weight = np.log(share / (1 - share))
        scores[:, label] = math.log(max(len(rows), 1)) + np.log(1 - share).sum() + tested @ weight
    return scores
