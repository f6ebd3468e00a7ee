import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.errors import DataError
from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.registry import TASKS
from grpodoctor.trainer.model.tokenizer import ALPHABET, CharCodec


@given(st.text(alphabet=ALPHABET, min_size=1))
def test_every_printable_text_survives_the_round_trip(text: str) -> None:
    codec = CharCodec()
    ids = codec.encode(text)
    assert codec.decode(ids) == text
    assert all(0 <= each < codec.vocab_size for each in ids)
    assert not codec.end_ids & set(ids)
    assert codec.pad_id not in ids


def test_the_alphabet_has_a_token_for_every_ascii_letter_and_digit() -> None:
    codec = CharCodec()
    ids = codec.encode(ALPHABET)
    assert len(set(ids)) == len(ALPHABET)
    assert max(ids) == codec.vocab_size - 1
    assert set(string.ascii_letters + string.digits + string.punctuation + " ") == set(ALPHABET)


def test_padding_and_end_tokens_have_no_text() -> None:
    codec = CharCodec()
    assert codec.decode([codec.pad_id, *codec.encode("#7"), *codec.end_ids, codec.pad_id]) == "#7"


@pytest.mark.parametrize("letter", ["\n", "é", "\x1b", "\x7f", "語"])
def test_a_character_without_a_token_is_named(letter: str) -> None:
    with pytest.raises(DataError, match="cannot read the character") as caught:
        CharCodec().encode(f"1+1{letter}")
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(DataError, match="empty"):
        CharCodec().encode("")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_built_in_prompts_fit_the_alphabet(name: str) -> None:
    task = TASKS[name](TaskConfig(name=name))
    for problem in task.heldout(20):
        assert CharCodec().decode(CharCodec().encode(problem.prompt)) == problem.prompt
