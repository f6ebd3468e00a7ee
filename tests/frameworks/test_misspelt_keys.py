"""Keys that resemble a setting."""

from __future__ import annotations

import pytest

from grpodoctor.frameworks.misspelt_keys import misspelt_keys


@pytest.mark.parametrize(
    ("key", "known", "meant"),
    [
        ("num_generation", "num_generations", True),
        ("data.train_batchsize", "data.train_batch_size", True),
        ("data.train_bacth_size", "data.train_batch_size", True),
        ("eval.train_batchsize", "data.train_batch_size", False),
        ("local_rank", "lora_rank", False),
        ("top_p", "top_k", False),
        ("vllm_max_len1", "vllm_max_len2", False),
        ("max_prompt_length", "max_length", False),
        ("min_prompt_length", "max_prompt_length", False),
    ],
)
def test_only_a_slip_is_a_misspelt_key(key: str, known: str, meant: bool) -> None:
    assert misspelt_keys({key: 1}, {known}) == ({key: known} if meant else {})
