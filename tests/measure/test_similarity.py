from __future__ import annotations

import random

import numpy as np
import pytest

from grpodoctor.measure.similarity import SHINGLE, group_similarity, signature
from grpodoctor.vocabulary.values import Mean, NotApplicable, scalar


def sentence(generator: random.Random, words: int = 200) -> list[bytes]:
    return [bytes(generator.choices(b"abcdefghijklmnop", k=6)) for _ in range(words)]


def variant(generator: random.Random, base: list[bytes], changed: float) -> bytes:
    fresh = sentence(generator, len(base))
    pairs = zip(base, fresh, strict=True)
    return b" ".join(new if generator.random() < changed else old for old, new in pairs)


def jaccard(first: bytes, second: bytes) -> float:
    pieces = [{t[i : i + SHINGLE] for i in range(len(t) - SHINGLE + 1)} for t in (first, second)]
    return len(pieces[0] & pieces[1]) / len(pieces[0] | pieces[1])


@pytest.mark.parametrize("changed", [0.0, 0.02, 0.1, 0.5, 1.0])
def test_the_estimate_is_near_the_jaccard_similarity(changed: float) -> None:
    """Forty prompts with four responses each; eight hash functions err by .18 per pair."""
    generator = random.Random(1)
    texts, groups = [], []
    for group in range(40):
        base = sentence(generator)
        texts += [variant(generator, base, changed) for _ in range(4)]
        groups += [group] * 4
    exact = [
        jaccard(texts[i], texts[j])
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
        if groups[i] == groups[j]
    ]
    signatures = np.array([signature(text) for text in texts], np.uint64)
    found = scalar(group_similarity(signatures, np.array(groups)) or Mean.of([]))
    assert found == pytest.approx(float(np.mean(exact)), abs=0.06)


def test_only_pairs_within_a_group_count() -> None:
    same, other = signature(b"the answer is 42"), signature(b"something else entirely")
    pairs = np.array([same, other, same, other], np.uint64)
    assert scalar(group_similarity(pairs, np.array([1, 2, 1, 2])) or Mean.of([])) == 1.0
    apart = group_similarity(pairs, np.array([1, 1, 2, 2]))
    assert isinstance(apart, Mean)
    assert (apart.count, apart.value < 0.2) == (2, True)


def test_short_texts_and_lone_responses_have_none() -> None:
    assert signature(b"7") == 0
    assert group_similarity(np.zeros(3, np.uint64), np.arange(3)) is None
    alone = group_similarity(np.array([signature(b"a lone response")], np.uint64), np.array([1]))
    assert isinstance(alone, NotApplicable)


def test_parts_of_a_step_merge_into_the_whole() -> None:
    generator = random.Random(2)
    base = sentence(generator)
    signatures = np.array([signature(variant(generator, base, 0.1)) for _ in range(12)], np.uint64)
    groups = np.repeat([1, 2, 3], 4)
    whole = group_similarity(signatures, groups)
    parts = [group_similarity(signatures[groups == g], groups[groups == g]) for g in (1, 2, 3)]
    assert all(isinstance(part, Mean) for part in parts)
    merged = parts[0].merge(parts[1]).merge(parts[2])  # type: ignore[union-attr,arg-type]  # means
    assert merged == whole
