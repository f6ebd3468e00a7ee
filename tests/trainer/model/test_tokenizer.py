import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.errors import DataError
from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.registry import TASKS
from grpodoctor.trainer.model.tokenizer import ALPHABET, CharTokenizer


@given(st.text(alphabet=ALPHABET, min_size=1))
def test_every_printable_text_survives_the_round_trip(text: str) -> None:
    tokenizer = CharTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= each < tokenizer.vocab_size for each in ids)
    assert not tokenizer.end_ids & set(ids)
    assert tokenizer.pad_id not in ids


def test_the_alphabet_has_a_token_for_every_ascii_letter_and_digit() -> None:
    tokenizer = CharTokenizer()
    ids = tokenizer.encode(ALPHABET)
    assert len(set(ids)) == len(ALPHABET)
    assert max(ids) == tokenizer.vocab_size - 1
    assert set(string.ascii_letters + string.digits + string.punctuation + " ") == set(ALPHABET)


def test_padding_and_end_tokens_have_no_text() -> None:
    tokenizer = CharTokenizer()
    assert (
        tokenizer.decode(
            [tokenizer.pad_id, *tokenizer.encode("#7"), *tokenizer.end_ids, tokenizer.pad_id]
        )
        == "#7"
    )


@pytest.mark.parametrize("letter", ["\n", "é", "\x1b", "\x7f", "語"])
def test_a_character_without_a_token_is_named(letter: str) -> None:
    with pytest.raises(DataError, match="cannot read the character") as caught:
        CharTokenizer().encode(f"1+1{letter}")
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(DataError, match="empty"):
        CharTokenizer().encode("")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_built_in_prompts_fit_the_alphabet(name: str) -> None:
    task = TASKS[name](TaskConfig(name=name))
    for problem in task.heldout(20):
        assert CharTokenizer().decode(CharTokenizer().encode(problem.prompt)) == problem.prompt
