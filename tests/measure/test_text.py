from dataclasses import replace

import numpy as np
import pytest

from grpodoctor.measure.text import text_readings
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, scalar


def _of_tokens(core_batch, responses, *, truncated=True, texts=None):
    """A batch of the given token sequences."""
    count, width = len(responses), max(map(len, responses))
    names = [f"s{i}" for i in range(count)]
    tokens_BT = np.full((count, width), -5)
    mask_BT = np.zeros((count, width), dtype=bool)
    for row, tokens in enumerate(responses):
        tokens_BT[row, : len(tokens)], mask_BT[row, : len(tokens)] = tokens, True
    return replace(
        core_batch,
        sequence_ids=names,
        group_ids_B=np.zeros(count, dtype=int),
        prompt_ids=names,
        prompts=names,
        references=names,
        texts=texts or names,
        tokens_BT=tokens_BT,
        mask_BT=mask_BT,
        rewards_B=np.zeros(count),
        truncated_B=np.full(count, truncated),
        correct_B=None,
        advantages_B=None,
        learner_logprobs_BT=None,
        sampler_logprobs_BT=None,
        old_logprobs_BT=None,
        entropy_BT=None,
    )


def test_distinct_trigrams_agree_with_the_vectors(core_batch, vectors):
    texts, rates = vectors["distinct3"]["texts"], vectors["distinct3"]["rates"]
    for text, rate in zip(texts, rates, strict=True):
        batch = _of_tokens(core_batch, [[ord(letter) for letter in text]])
        assert scalar(text_readings(batch)["text/unique_ngram_rate"]) == pytest.approx(rate)
    both = _of_tokens(core_batch, [[ord(letter) for letter in text] for text in texts])
    assert text_readings(both)["text/unique_ngram_rate"] == Mean.of(rates)


def test_trigrams_of_a_large_vocabulary_do_not_collide(core_batch):
    """Distinct by one high bit of one token: no id may spill into its neighbour's."""
    high = 1 << 20
    batch = _of_tokens(core_batch, [[1, 2, 3, 1 | high, 2, 3, 1, 2 | high, 3, 1, 2, 3 | high]])
    assert scalar(text_readings(batch)["text/unique_ngram_rate"]) == 1.0


def test_responses_too_short_for_a_trigram_are_left_out(core_batch):
    short = text_readings(_of_tokens(core_batch, [[1, 2], [1]]))
    assert isinstance(short["text/unique_ngram_rate"], NotApplicable)
    mixed = text_readings(_of_tokens(core_batch, [[1, 2], [1, 1, 1, 1]]))
    assert mixed["text/unique_ngram_rate"] == Mean.of([0.5])


RNG = np.random.default_rng(0)
PROSE = RNG.integers(0, 50, 300).tolist()


@pytest.mark.parametrize(
    ("tokens", "loops"),
    [
        (PROSE, False),
        ([1, 2, 3] + [9] * 16, True),
        ([1, 2, 3] + [9] * 15, False),
        ([9] * 16 + [1], False),
        ([1, 2, 3] * 6, True),
        (PROSE[:40] + [4, 5, 6, 7, 8] * 4 + [4, 5], True),
        (PROSE[:40] + list(range(100, 164)) * 4, True),
        (PROSE[:40] + list(range(100, 164)) * 3, False),
        ([1], False),
    ],
)
def test_a_loop_is_a_block_repeated_to_the_end(core_batch, tokens, loops):
    batch = _of_tokens(core_batch, [tokens, PROSE[:30]])
    assert text_readings(batch)["text/repetition_rate"] == Rate(int(loops), 2)


def test_the_end_token_does_not_hide_a_loop(core_batch):
    batch = _of_tokens(core_batch, [[1, 2, 3, *[9] * 16, 0], PROSE[:30]], truncated=False)
    assert text_readings(batch)["text/repetition_rate"] == Rate(1, 2)


def test_a_gap_in_the_mask_is_excluded(core_batch):
    """Tokens that a tool wrote stand between generated ones."""
    batch = _of_tokens(core_batch, [[9] * 8 + [70, 71, 72] + [9] * 8])
    mask_BT = batch.mask_BT.copy()
    mask_BT[0, 8:11] = False
    assert text_readings(replace(batch, mask_BT=mask_BT))["text/repetition_rate"] == Rate(1, 1)


def test_second_thoughts_are_whole_words(core_batch):
    texts = ["Wait, 3+4", "the waiter came", "ALTERNATIVELY 7", "let me recheck", "3+4=7"]
    batch = _of_tokens(core_batch, [[1, 2, 3]] * 5, texts=texts)
    assert text_readings(batch)["text/reflection_rate"] == Rate(3, 5)


def test_compression_distinguishes_repetition_from_prose(core_batch):
    prose = "".join(chr(97 + i % 26) + chr(97 + i * i % 23) for i in PROSE)

    def ratio(text):
        batch = _of_tokens(core_batch, [[1, 2, 3]] * 2, texts=[text, text])
        return scalar(text_readings(batch)["text/compression_ratio"])

    assert ratio("no no " * 100) > 10 > 3 > ratio(prose)
    assert ratio("\ud800 broken \x1b[31m") > 0
    assert ratio("") is None
