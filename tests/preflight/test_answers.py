"""What counts as an answer in a form."""

import pytest

from grpodoctor.preflight.answers import FORMATS, is_in_form, written, wrong_answer
from grpodoctor.preflight.patient import Row


@pytest.mark.parametrize("name", FORMATS)
def test_a_written_answer_is_in_its_form(name: str) -> None:
    assert is_in_form(FORMATS[name], f"Let me see. {written(FORMATS[name], '42')} So it is.")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain", "  \n"),
        ("boxed", "the answer is 42"),
        ("boxed", "\\boxed{"),
        ("hashes", "# 42"),
        ("tags", "<think>42</think>"),
        ("tags", "<answer></answer>"),
        ("sentence", "I think 42"),
        ("answer line", "42"),
    ],
)
def test_other_texts_are_not(name: str, text: str) -> None:
    assert not is_in_form(FORMATS[name], text)


@pytest.mark.parametrize(
    ("answer", "others"), [("42", ["7"]), ("42", []), ("A", []), ("yes", ["no"]), ("x = 3", [])]
)
def test_a_wrong_answer_is_wrong(answer: str, others: list[str]) -> None:
    row = Row("line 1", "?", answer=answer)
    rows = [row, *(Row("line 2", "?", answer=other) for other in others)]
    assert wrong_answer(row, rows) != answer
