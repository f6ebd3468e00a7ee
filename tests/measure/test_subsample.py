from __future__ import annotations

import numpy as np

from grpodoctor.measure.subsample import hash_ranks, lowest_ranked, name_hashes, text_fingerprints

RANDOM = np.random.default_rng(0)


def lots(prompts: list[str], texts: list[str]) -> np.ndarray:
    return hash_ranks(name_hashes(prompts), text_fingerprints([text.encode() for text in texts]))


def test_the_rank_depends_on_prompt_and_text_alone():
    one, two, other_text, other_prompt = lots(["p", "p", "p", "q"], ["a", "a", "b", "a"]).tolist()
    assert one == two
    assert len({one, other_text, other_prompt}) == 3


def test_responses_without_text_and_tokens_are_left_out():
    found = lots(["p", "p"], ["", "a"])
    assert lowest_ranked(found, 5).tolist() == [False, True]


def test_tokens_count_where_there_is_no_text():
    texts, tokens = text_fingerprints([b"", b"a"]), np.array([7, 8], np.uint64)
    prompts = name_hashes(["p", "p"])
    assert (hash_ranks(prompts, texts, tokens) != 0).all()
    assert hash_ranks(prompts, texts, tokens)[1] == hash_ranks(prompts, texts)[1]


def test_the_lowest_ranks_of_each_owner_are_selected():
    hash_ranks_B = RANDOM.integers(1, 2**63, 1000).astype(np.uint64)
    steps_B, ranks_B = RANDOM.integers(0, 3, 1000), RANDOM.integers(0, 2, 1000)
    chosen = lowest_ranked(hash_ranks_B, 10, steps_B, ranks_B)
    for step in range(3):
        for rank in range(2):
            rows = np.flatnonzero((steps_B == step) & (ranks_B == rank))
            lowest = rows[np.argsort(hash_ranks_B[rows])[:10]]
            assert (
                sorted(lowest) == np.flatnonzero(chosen & np.isin(np.arange(1000), rows)).tolist()
            )


def test_selection_is_uniform_over_texts():
    """Lots of texts that differ by one letter are spread evenly."""
    found = lots(["p"] * 4000, [f"the answer is {row}" for row in range(4000)])
    low = found < np.uint64(2**63)
    assert abs(low.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(low, np.arange(4000))[0, 1]) < 0.05


def test_the_first_of_equal_ranks_is_selected():
    assert lowest_ranked(np.array([5, 5, 5, 5], np.uint64), 2).tolist() == [
        True,
        True,
        False,
        False,
    ]
