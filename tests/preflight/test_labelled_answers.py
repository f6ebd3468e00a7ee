"""Answers behind labels are found, fields of records are not."""

import random

import pytest

from grpodoctor.preflight.answers.labelled_answers import answers_behind_labels
from grpodoctor.preflight.answers.multiple_choice import closed_set, named_classes
from grpodoctor.preflight.answers.stated_answers import rows_stating_answer
from grpodoctor.preflight.inputs.prompt_rows import PromptRow

NUMBERS = [str(random.Random(3).randint(10, 10**6) + number) for number in range(40)]


@pytest.mark.parametrize(
    "line",
    [
        "\nKey: {0}",
        "\n**Expected**: {0}.",
        "\n<gold>{0}</gold>",
        "\n[target] {0}",
        " Reference = {0}",
        "\n\u53c2\u8003\uff1a{0}",
        '\n"gold": "{0}"',
        '\n{{"set": "a", "gold": {0}}}',
        "\nLanguage: en\nKey -> {0}",
    ],
)
def test_any_label_with_the_answer_is_a_leak(line: str) -> None:
    prompts = [f"How many stones has wall {at}?" + line.format(n) for at, n in enumerate(NUMBERS)]
    assert all(answers_behind_labels(prompts, NUMBERS))
    shifted = NUMBERS[1:] + NUMBERS[:1]
    assert not any(answers_behind_labels(prompts, shifted))


def test_fields_of_a_record_and_of_the_question_are_no_leak() -> None:
    record = [f"Net: {at}\nTotal: {n}\n\nWhat must be paid?" for at, n in enumerate(NUMBERS)]
    asked = [f"Total: {n}\n\nWhat is the total?" for n in NUMBERS]
    assert not any(answers_behind_labels(record, NUMBERS))
    assert not any(answers_behind_labels(asked, NUMBERS))


def test_a_label_that_is_right_by_chance_is_no_leak() -> None:
    answers = ["yes"] * 36 + ["no"] * 4
    assert not any(answers_behind_labels(["Is it so?\nDefault: yes"] * 40, answers))
    keyed = [f"Is it so?\nKey: {answer}" for answer in answers]
    assert all(answers_behind_labels(keyed, answers))


def test_a_list_of_options_states_no_answer() -> None:
    answers = random.Random(5).choices(["yes", "no"], [0.6, 0.4], k=60)
    listed = [PromptRow(f"line {at}", f"Does boat {at} float? Answer yes or no.", answer=answer)
              for at, answer in enumerate(answers)]  # fmt: skip
    stating, _ = rows_stating_answer(listed)
    assert not any(stating)
    rule = [
        PromptRow(row.location, f"Does boat {at} float? Answer yes if it does.", answer=row.answer)
        for at, row in enumerate(listed)
    ]
    stating, chance = rows_stating_answer(rule)
    assert sum(stating) / 60 == pytest.approx(chance)


def test_a_closed_set_has_few_answers_with_many_rows_each() -> None:
    classes = closed_set(["True", "false"] * 10)
    assert classes == {("true",), ("false",)}
    assert named_classes("True or False?", classes) == classes
    assert named_classes("Untrue?", classes) == frozenset()
    assert closed_set(NUMBERS) == frozenset()
    assert closed_set(["yes"] * 40) == frozenset()


def test_a_long_line_is_read_quickly() -> None:
    lines = ["." * 500_000, "\n" * 500_000, '"' * 500_000, "a " * 250_000, "x. a: " * 80_000]
    assert answers_behind_labels(lines, ["7"] * 5) == [False] * 5
