"""What counts as an answer in a form."""

import pytest

from grpodoctor.preflight.answers.constructed_answers import (
    FORMATS,
    format_answer,
    matches_format,
    nearly_right,
    several_answers,
    wrong_answer,
)
from grpodoctor.preflight.answers.stated_answers import final_answer


@pytest.mark.parametrize("name", FORMATS)
def test_a_written_answer_is_in_its_form(name: str) -> None:
    assert matches_format(
        FORMATS[name], f"Let me see. {format_answer(FORMATS[name], '42')} So it is."
    )


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
    assert not matches_format(FORMATS[name], text)


@pytest.mark.parametrize(
    ("answer", "others"), [("42", ["7"]), ("42", []), ("A", []), ("yes", ["no"]), ("x = 3", [])]
)
def test_a_wrong_answer_is_wrong(answer: str, others: list[str]) -> None:
    assert wrong_answer(answer, [answer, *others]) != answer


@pytest.mark.parametrize("others", [[], ["7"], ["7", "8"], ["1", "2", "3", "4", "5"]])
def test_the_correct_answer_is_neither_first_nor_last(others: list[str]) -> None:
    told = several_answers("42", ["42", *others], "#### {answer}").split("#### ")[1:]
    assert "42" in [each.strip() for each in told[1:-1]]
    assert "42" not in (told[0].strip(), told[-1].strip())


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("42", "42"),
        ("She sold 48/2 = <<48/2=24>>24 clips.\n#### 72", "72"),
        ("so it is $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("$42$", "42"),
        ("$x$ and $y$", "$x$ and $y$"),
        ("$$ \\frac{1}{2} $$", "\\frac{1}{2}"),
        ("first \\boxed{1}, then \\boxed{2}", "2"),
        ("<think>x</think><answer> 7 </answer>", "7"),
        ("\\boxed{open", "\\boxed{open"),
        ("####", "####"),
    ],
)
def test_the_answer_of_a_solution_is_found(solution: str, answer: str) -> None:
    assert final_answer(solution) == answer


@pytest.mark.parametrize(
    ("answer", "turn", "near"),
    [
        ("1234", 0, "12"),
        ("123", 3, "12"),
        ("42", 1, "420"),
        ("42", 2, "47"),
        ("-50", 2, "-45"),
        ("7", 0, "8"),  # too short to lose a digit
        ("0", 1, "1"),
        ("00", 0, "1"),  # "0" would be right
        ("1.5", 0, "91.5"),  # the right number is a part of it
        ("x = 3", 2, ""),
    ],
)
def test_a_nearly_right_number(answer: str, turn: int, near: str) -> None:
    assert nearly_right(answer, turn) == near
