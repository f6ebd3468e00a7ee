"""The training data: prompts for engines, and rows that are written."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.preflight.answers.multiple_choice import (
    count_options,
    letter_of_number,
    lettered_options,
)
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.filtered_rows import check_output_path, write_rows
from grpodoctor.preflight.inputs.prompt_rows import (
    PromptColumns,
    PromptRow,
    read_prompt_table,
)
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.preflight.run import _rows_to_sample
from grpodoctor.probe.inputs.engine_spec import EngineSpec

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]


@pytest.mark.parametrize("name", ["left.jsonl", "left.parquet"])
def test_written_rows_are_read_again(name: str, tmp_path: Path) -> None:
    columns = {"prompt": [{"role": "user", "content": "1+1="}], "reward_model": {
        "ground_truth": "2"}, "level": 3}  # fmt: skip
    write_rows([PromptRow("row 1", "1+1=", answer="2", columns=columns)], tmp_path / name)
    (row,) = read_prompt_table(tmp_path / name).rows
    assert (row.prompt, row.answer, row.columns["level"]) == ("1+1=", "2", 3)
    assert (name == "left.parquet") == ((tmp_path / name).read_bytes()[:4] == b"PAR1")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("train.jsonl", "overwrite --prompts"),
        ("left.csv", "not as '.csv'"),
        ("nowhere/left.jsonl", "directory does not exist"),
    ],
)
def test_files_that_cannot_be_written_are_refused(target: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(ConfigError, match=told):
        check_output_path(tmp_path / target, tmp_path / "train.jsonl")


def test_prompts_as_long_as_the_context_are_not_sampled(
    dense_model: Path, context_of: Make
) -> None:
    rows = [
        PromptRow("line 1", "1" * 300),
        *(PromptRow(f"line {at}", "1+1=") for at in range(2, 12)),
    ]
    context = context_of(dense_model, rows, settings=RunSettings(limit=11))
    short = EngineSpec.parse("vllm:model?max_model_len=128")
    assert [row.location for row in _rows_to_sample(context, short)] == [
        f"line {at}" for at in range(2, 12)
    ]
    assert len(_rows_to_sample(context, EngineSpec.parse("vllm:model"))) == 11


CHOICE = "What is the capital?\nA. Paris\nB. Rome\nC. Oslo\nD. Bern"


@pytest.mark.parametrize(
    ("prompt", "answer", "columns", "options"),
    [
        (CHOICE, "B", {}, 4),
        (CHOICE, "(C) Oslo", {}, 4),
        (CHOICE, "Rome", {}, 4),
        (CHOICE.lower(), "B", {}, 4),
        ("Which one? (A) 12 (B) 13 (C) 14", "C", {}, 3),
        ("Which one?", "2", {"choices": ["a", "b", "c", "d"]}, 4),
        ("Which one?", "b", {"choices": {"text": ["x", "y"], "label": ["A", "B"]}}, 2),
        (CHOICE, "E", {}, 0),
        (CHOICE, "17", {}, 0),
        ("Find a) the area and b) the length 12 of it.", "12", {}, 0),
        ("Triangle A. B. is given; what is 3+4?", "7", {}, 0),
    ],
)
def test_the_options_of_a_question_are_counted(
    prompt: str, answer: str, columns: dict[str, object], options: int
) -> None:
    assert count_options(PromptRow("line 1", prompt, columns=columns), answer) == options


def _choices(keys: str, count: int) -> list[PromptRow]:
    return [
        PromptRow(f"line {at}", f"{at}: {CHOICE}", answer=keys[at % len(keys)])
        for at in range(count)
    ]


def test_multiple_choice_questions_are_recognized(
    dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    sums = [PromptRow(f"sum {at}", f"{at}+1=", answer=str(at + 1)) for at in range(90)]
    assert findings_of("DAT108", context_of(dense_model, sums)) == []
    (finding,) = findings_of("DAT108", context_of(dense_model, [*sums, *_choices("ABCD", 10)]))
    assert finding.severity == "info"  # the chance level is known
    assert finding.figures["guess"] == pytest.approx(0.25)
    assert finding.figures["choices"] == pytest.approx(0.1)
    assert "always" not in finding.summary
    # A few lists of options say nothing about the chance level of the set.
    assert findings_of("DAT108", context_of(dense_model, [*sums, *_choices("A", 2)])) == []


def test_a_skewed_answer_key_is_found(
    dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    (finding,) = findings_of("DAT108", context_of(dense_model, _choices("CCCCCABCDC", 60)))
    assert "always C 70%" in finding.summary


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": {"role": "user", "content": "What is it?"}},
        {"prompt": {"messages": [{"role": "user", "content": "What is it?"}]}},
        {"system": "Be brief.", "user": "What is it?"},
        {"user": "What is it?"},
    ],
)
def test_messages_in_other_places_are_read(row: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({**row, "answer": "a"}))
    (found,) = read_prompt_table(path).rows
    assert found.prompt == "What is it?"
    assert [each["role"] for each in found.messages][-1] == "user"
    assert len(found.messages) == 1 + ("system" in row)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": 7}, "the prompt is 7, neither text nor messages"),
        ({"prompt": {"text": "a?"}}, "the prompt is {'text': 'a?'}, neither text nor messages"),
        ({"prompt": None}, "the prompt is empty"),
        ({"user": "u123"}, "the row has no column with a prompt"),
    ],
)
def test_what_is_no_prompt_is_named(row: dict[str, object], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(DataError, match=re.escape(reason)):
        read_prompt_table(path)


def test_a_bad_row_is_its_own_defect(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"prompt": "a?", "answer": 1}\n{"prompt": " "}\n{broken\n[1]\n"b?"\n{"x": 1}\n'
    )
    table = read_prompt_table(path)
    assert [row.prompt for row in table.rows] == ["a?", "b?"]
    assert [row.number for row in table.rows] == [0, 4]
    reasons = [f"{defect.location}: {defect.reason}" for defect in table.defects]
    assert reasons[0] == "line 2: the prompt is empty"
    assert reasons[1].startswith("line 3: not JSON")
    assert len(reasons) == 4
    assert table.is_complete
    assert not read_prompt_table(path, most=1).is_complete


@pytest.mark.parametrize(
    ("content", "named", "message"),
    [
        (
            '{"Frage": "a?"}',
            PromptColumns(),
            "no row has a prompt.*columns: Frage.*--prompt-column",
        ),
        ('{"prompt": "a?"}', PromptColumns("text"), "no row has a prompt.*not 'text'"),
        ("", PromptColumns(), "the file has no rows"),
        ('{"prompt": "a?"', PromptColumns(), "no row can be read.*not JSON.*correct the file"),
    ],
)
def test_a_file_without_prompts_is_one_error(
    content: str, named: PromptColumns, message: str, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        read_prompt_table(tmp_path / "p.jsonl", named)


def test_layouts_of_public_data_are_read(tmp_path: Path) -> None:
    lines = [
        '{"conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]}',
        '{"Question": "1+1?", "answerKey": "B", "choices": ["1", "2"]}',
        '{"prompt": [{"role": "user", "content": [{"type": "text", "text": "1+1?"}]}]}',
        '{"prompt": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": null, '
        '"tool_calls": [{"function": {"name": "add"}}]}], "answer": null, "solution": 2.0}',
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    rows = read_prompt_table(tmp_path / "p.jsonl").rows
    assert [row.prompt for row in rows] == ["1+1?"] * 4
    assert [row.answer for row in rows] == [None, "B", None, "2"]
    assert rows[0].messages[1] == {"role": "assistant", "content": "2"}
    assert rows[3].messages[1]["tool_calls"]
    (tmp_path / "p.csv").write_text("Frage,Antwort\n1+1?,2\n")
    (row,) = read_prompt_table(tmp_path / "p.csv", PromptColumns("Frage", "Antwort")).rows
    assert (row.prompt, row.answer) == ("1+1?", "2")


@pytest.mark.parametrize(
    ("prompt", "number", "letter", "options"),
    [
        ("Which?\nA) one\nB) two \nC) three", "2", "C", "one two three"),
        ("Which?\n(A) one\n(B) two\n(C) three", "0", "A", "one two three"),
        ("Which?\na. one\nb. two\nc. three", "2", "", "one two three"),  # parts of a question
        ("Which?\nA) one\nB) two", "1", "", ""),
        ("Which?\nA) one\nB) two\nC) three", "3", "", "one two three"),
        ("I: see\nA) one\nB) two\nC) three", "1", "B", ""),
    ],
)
def test_lettered_lines(prompt: str, number: str, letter: str, options: str) -> None:
    row = PromptRow("line 1", prompt, answer=number)
    assert letter_of_number(row) == letter
    assert " ".join(lettered_options(row).values()) == options
