"""Answers that are lists, notes, cells, tool calls or tests of programs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from grpodoctor.preflight.answers.answer_variants import (
    ASKED_DATE,
    OTHER_JSON,
    WITHOUT_DECIMALS,
    response_variants,
    variant_of,
)
from grpodoctor.preflight.answers.kinds.class_names import requested_names
from grpodoctor.preflight.answers.kinds.program_tests import passing_programs
from grpodoctor.preflight.answers.kinds.tool_calls import calls_in, problem_of, tools_of
from grpodoctor.preflight.answers.kinds.undeserving_answers import (
    all_labels,
    many_words,
    off_by_one,
    one_part,
    other_formula,
    parts_of,
    score_for_judge,
)
from grpodoctor.preflight.answers.kinds.unusable_answers import (
    cut_answers,
    is_note,
    is_spreadsheet_value,
)
from grpodoctor.preflight.answers.revealed_answers import is_in_file_name, solves_itself
from grpodoctor.preflight.inputs.columns import answer_of, has_blank_answer
from grpodoctor.preflight.inputs.stop_strings import stop_strings
from grpodoctor.preflight.texts.near_duplicates import near_duplicates
from grpodoctor.preflight.texts.normal_form import words_of


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        ("2, -5", ["2", "-5"]),
        ("sport and law", ["sport", "law"]),
        ("x = 2; y = 3", ["x = 2", "y = 3"]),
        ("1,234", []),  # a number
        ("(3, 5]", []),
        ("\\frac{1}{2}, 3", []),
        ("42", []),
        ("He came to the old house, and it was empty by then", []),
        ("2, 2", []),
    ],
)
def test_parts_of_a_list(answer: str, parts: list[str]) -> None:
    assert parts_of(answer) == parts
    assert one_part(answer, 0) == (parts[0] if parts else "")
    assert one_part(answer, 1) == (parts[-1] if parts else "")


def test_all_labels_of_a_closed_set() -> None:
    labels = ["law, sport", "music", "law, music", "sport, law"] * 5
    assert all_labels(labels) == "law, music, sport"
    assert all_labels(["2, 3", "3, 5"] * 9) == ""  # numbers are no labels
    assert all_labels([f"name {at}, name {at + 1}" for at in range(40)]) == ""
    assert all_labels(["yes", "no"] * 20) == ""


def test_many_words_need_sentences() -> None:
    texts = ["the cat sat down", "the dog sat up"]
    assert many_words(texts[0], texts) == "cat dog down sat the up"
    assert many_words("42", ["42", "17"]) == ""
    assert many_words(" ".join(map(str, range(500))), []) == ""


def test_counts_that_are_off_by_one() -> None:
    assert off_by_one("1,999", ["3", "1,999"]) == "2000"
    assert off_by_one("3", ["3", "2.5"]) == ""  # measured values


def test_a_score_that_is_the_answer_is_not_tried() -> None:
    assert "[[10]]" in score_for_judge("Oslo")
    assert score_for_judge("10") == score_for_judge("1") == ""


@pytest.mark.parametrize(
    ("answer", "turn", "other"),
    [
        ("3/4", 0, "4/4"),
        ("3/4", 1, "3/5"),
        ("2.5 \\times 10^{-7}", 0, "3.5 \\times 10^{-7}"),
        ("(2, 5]", 1, "[2, 5)"),
        ("(2, 5]", 2, "(3, 5]"),
        ("[2, 5)", 1, "(2, 5]"),
        ("(2, 5)", 1, "(2, 6)"),  # a point has no other brackets
        ("3\\pi", 0, "4\\pi"),
        ("3.75", 0, "375"),
        ("-12", 0, "12"),
        ("12", 0, ""),
        ("1,200", 0, ""),
        ("SELECT 1", 0, ""),
        ("volume 3", 0, ""),
    ],
)
def test_a_formula_with_another_number(answer: str, turn: int, other: str) -> None:
    assert other_formula(answer, turn) == other


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("Q.E.D.", True),
        ("See the proof above.", True),
        ("proof", True),
        ("Answers may vary.", True),
        ("not provided", True),
        ("proved", False),  # a verdict in logic tasks
        ("no answer", False),  # a verdict in reading tasks
        ("the proof of the pudding", False),
        ("42", False),
    ],
)
def test_notes_are_no_answers(answer: str, note: bool) -> None:
    assert is_note(answer) == note


@pytest.mark.parametrize(
    ("answer", "prompt", "damaged"),
    [
        ("04-Jun", "Which fraction is left?", True),
        ("Jun-84", "Which fraction is left?", True),
        ("04-Jun", "On which day does it end?", False),
        ("#DIV/0!", "On which day does it end?", True),
        ("1.23E+11", "How many?", True),
        ("1.23e-5", "How many?", False),
        ("4/6", "Which fraction is left?", False),
    ],
)
def test_cells_of_a_spreadsheet(answer: str, prompt: str, damaged: bool) -> None:
    assert is_spreadsheet_value(answer, prompt) == damaged


_TITLES = [
    "The Lighthouse Keeper", "A Winter in Bergen", "Notes on Clay", "The Glass Orchard",
    "Letters to a Cartographer", "Seven Small Harbours", "The Copper Beech", "Salt Road",
]  # fmt: skip


def test_answers_that_were_cut() -> None:
    cut = [title[:14] for title in _TITLES]
    assert cut_answers(cut) == [0, 1, 2, 3, 4, 5, 6]  # one was cut behind a blank
    assert cut_answers(_TITLES) == []
    assert cut_answers([f"room {at}, floor {at % 9}" for at in range(10, 60)]) == []  # a form
    names = (("flag", "ships"), ("flags", "boat"), ("sea", "sloops"))
    query = "SELECT {} FROM {} WHERE tons > {}"
    queries = [query.format(*each, 500 + at) for at in range(9) for each in names]
    assert cut_answers(queries) == []
    assert cut_answers([f"K{at}" for at in range(100, 160)]) == []


def test_booleans_are_answers_and_preferences_are_not() -> None:
    assert answer_of({"prompt": "p", "answer": False}) == "False"
    assert answer_of({"prompt": "p", "label": True}) is None
    assert answer_of({"prompt": "p", "label": True}, "label") == "True"
    assert not has_blank_answer({"prompt": "p", "answer": False})


_ASKED = "Is it so? End with 'Verdict: yes' or 'Verdict: no'."


@pytest.mark.parametrize(
    ("prompt", "answers", "names"),
    [
        (_ASKED, ["True", "False"], {"true": "yes", "false": "no"}),
        (_ASKED, ["yes", "no"], {}),
        ("Is it so?", ["True", "False"], {}),
        ("True or false? Do not say yes or no.", ["True", "False"], {}),
        (_ASKED, ["True", "False", "unknown"], {}),
    ],
)
def test_names_of_verdicts(prompt: str, answers: list[str], names: dict[str, str]) -> None:
    assert requested_names([prompt] * 8, answers * 4) == names


def test_programs_that_pass_tests_of_input_and_output() -> None:
    tests = [json.dumps({"inputs": ["3\n", "4\n"], "outputs": ["9\n", "16\n"]})]
    listed = [json.dumps([{"input": "3", "output": "9"}])]
    for answers in (tests, listed):
        programs = passing_programs(answers)
        assert programs
        ran = subprocess.run(
            [sys.executable, "-c", programs[0]], input="3\n", capture_output=True, text=True,
            check=True, timeout=60,
        )  # fmt: skip
        assert ran.stdout.strip() == "9"
    assert passing_programs(["42", '{"a": 1}', "[1, 2]", "{"]) is None


_PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}, "of_another_tool": None}
_SCHEMA = {
    "name": "forecast",
    "parameters": {"type": "object", "required": ["city"], "properties": _PROPERTIES},
}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"name": "forecast", "arguments": {"city": "Bari"}}', ""),
        (
            '<tool_call>{"name": "forecast", "arguments": "{\\"city\\": \\"Bari\\"}"}</tool_call>',
            "",
        ),
        ('[{"function": {"name": "forecast", "arguments": {"city": "Bari", "days": 2}}}]', ""),
        ('{"name": "forecast", "arguments": {"city": 1}}', "'city' must be of type string"),
        (
            '{"name": "forecast", "arguments": {"city": "Bari", "days": "2"}}',
            "'days' must be of type integer",
        ),
        ('{"name": "weather", "arguments": {}}', "no tool 'weather'"),
        ('{"name": "forecast", "arguments": {"town": 1}}', "forecast has no argument 'town'"),
        ('{"name": "forecast", "arguments": {"days": 1}}', "forecast lacks the argument 'city'"),
        ('{"name": "Anna", "age": 7}', None),  # no call
        ("It will rain.", None),
    ],
)
def test_tool_calls_and_their_schema(answer: str, problem: str | None) -> None:
    for tools in ([{"type": "function", "function": _SCHEMA}], json.dumps([_SCHEMA])):
        calls = calls_in(answer)
        assert [problem_of(call, tools_of({"tools": tools})) for call in calls] == (
            [] if problem is None else [problem]
        )


def test_tools_without_a_schema_take_any_argument() -> None:
    (call,) = calls_in('{"name": "f", "arguments": {"x": 1}}')
    assert problem_of(call, tools_of({"tools": [{"name": "f"}]})) == ""
    assert tools_of({"tools": "a hammer"}) == {}


def test_stop_strings_of_a_config() -> None:
    assert stop_strings({"generation_kwargs": {"stop": ["</answer>", 7]}}) == ("</answer>",)
    assert stop_strings({"rollout_stop": "END"}) == ("END",)
    assert stop_strings({"stop": ["a"], "vllm": {"include_stop_str_in_output": True}}) == ()
    assert stop_strings({"early_stopping": "yes", "stop_after": "x"}) == ()


def test_an_answer_in_the_name_of_a_file() -> None:
    assert is_in_file_name("See images/gecko_0012.jpg", words_of("gecko"))
    assert not is_in_file_name("See images/IMG_0012.jpg", words_of("gecko"))
    assert not is_in_file_name("Which animal is in gecko.jpg", words_of("gecko"))  # the whole name
    assert not is_in_file_name("A gecko_0012 and a cat", words_of("gecko"))


def test_a_refrain_is_no_solved_example() -> None:
    question = "How many pears does Ann have if she buys three bags of seven pears and eats two"
    example = f"{question} A 19 . {question} A"
    assert solves_itself(words_of(example), words_of("19"))
    refrain = "Nothing else of note was found there by the surveyors and they went home again soon."
    rooms = " ".join(f"{refrain} {refrain} The code is {code}." for code in (17, 19, 23))
    assert not solves_itself(words_of(rooms), words_of("19"))


def test_two_sentences_of_one_pattern_are_no_solved_example() -> None:
    towns = (("Bellmoor", "Uma Salazar"), ("Castrel", "Rafi Moreau"))
    passages = " ".join(
        f"{town} lies on the river Olma and is known far beyond the county for its blown glass. "
        f"The town was laid out by {who} after the great fire."
        for town, who in towns
    )
    asked = f"{passages} Question: Who laid out Bellmoor?"
    assert not solves_itself(words_of(asked), words_of("Uma Salazar"))
    pattern = "which is known far beyond the county for its blown glass, was laid out by whom? A"
    example = f"Bellmoor, {pattern} Uma Salazar. Castrel, {pattern} "
    assert solves_itself(words_of(example), words_of("Uma Salazar"))


def test_near_duplicates() -> None:
    texts = [
        "A train leaves at 7 with 40 people and 3 dogs in Rome. How many legs are on it?",
        "a train leaves at 7, with 40 people & 3 dogs in ROME: how many legs are on it",
        "A bus leaves at 7 with 40 people and 3 dogs in Rome. How many legs are on it?",
        "A train leaves at 7 with 41 people and 3 dogs in Rome. How many legs are on it?",
        "Someone counts 7 hats, 40 gloves and 3 scarves, and wonders what they cost her.",
        "What is the largest prime below 1000?",
        "Divide 7 by 40 and add 3. Which number do you get in the end?",
    ]
    words = [words_of(text) for text in texts]
    assert near_duplicates(words, ["92"] * 7) == {1: 0, 2: 0}
    assert near_duplicates(words, list("abcdefg")) == {}  # other answers, other questions
    assert near_duplicates(words, [None] * 7) == {}
    many = [words_of(f"{n} says that {at} pears with {at + 1} figs and {at + 2} nuts are enough.")
            for at in range(20) for n in ("Ann", "Bob")]  # fmt: skip
    assert near_duplicates(many, ["no"] * 40) == {}
    assert len(near_duplicates(many, [str(at // 2) for at in range(40)])) == 20
    shared = [
        words_of(f"Use 1 2 3 steps. {name} has a {thing}.") for name in "ABC" for thing in "XYZ"
    ]
    assert near_duplicates(shared, ["yes"] * 9) == {}


@pytest.mark.parametrize(
    ("kind", "answer", "other"),
    [
        (WITHOUT_DECIMALS, "42.0", "42"),
        (WITHOUT_DECIMALS, "42.5", None),
        ("plain signs", "\u221242", "-42"),
        ("plain signs", "-42", None),
        ("no full stop", "63.", "63"),
        ("no full stop", "3.5.", "3.5"),
        ("no full stop", "blue whale.", "blue whale"),
        ("no full stop", "the U.S.", None),
        ("no full stop", "It is the largest of all the animals.", None),
        (ASKED_DATE, "2020-03-17", "17/03/2020"),
        (ASKED_DATE, "17.3.2020", "17/03/2020"),
        (ASKED_DATE, "17/03/2020", None),
        (ASKED_DATE, "in March", None),
        (OTHER_JSON, '{"a": 1, "b": "x y"}', '{"b":"x y","a":1}'),
        (OTHER_JSON, "[1, 2]", None),
        (OTHER_JSON, "{", None),
    ],
)
def test_other_spellings(kind: str, answer: str, other: str | None) -> None:
    variant, prompt = response_variants("{answer}")[kind], "Write DD/MM/YYYY."
    assert variant_of(variant, "{answer}", answer, prompt) == other
