"""JSON files that are one object, and the NaN that Python writes for a missing cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.errors import DataError
from grpodoctor.probe.inputs.prompt_files import DamagedRow, file_rows

ROWS = [{"prompt": f"What is {at} + 1?", "answer": at + 1} for at in range(3)]
CHAT = {"messages": [{"role": "user", "content": "Hello?"}]}
LAYOUTS: dict[str, Any] = {
    "a list below a key": {"version": "1.1", "data": ROWS},
    "columns as lists": {name: [row[name] for row in ROWS] for name in ROWS[0]},
    "columns by index": {
        name: {str(at): row[name] for at, row in enumerate(ROWS)} for name in ROWS[0]
    },
    "rows by id": {f"q{at}": row for at, row in enumerate(ROWS)},
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_found_in_an_object(layout: str, indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(LAYOUTS[layout], indent=indent))
    assert [row for _, row in file_rows(path)] == ROWS


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "row",
    [ROWS[0], CHAT, {"question": "a?", "tools": [{"name": "f"}], "steps": [{"at": 1}]}, {"x": 1}],
)
def test_a_single_row_remains_a_row(
    row: dict[str, Any], indent: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "row.json"
    path.write_text(json.dumps(row, indent=indent))
    assert list(file_rows(path)) == [("line 1", row)]


def test_two_rows_on_two_lines_are_two_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in (ROWS[0], CHAT)))
    assert [row for _, row in file_rows(path)] == [ROWS[0], CHAT]


def test_several_lists_of_rows_are_an_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"train": ROWS, "test": ROWS[:1]}))
    with pytest.raises(
        DataError, match=r"several lists of rows: test, train .*a file of their own"
    ):
        list(file_rows(path))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(("suffix", "text"), [("json", "[{}]"), ("jsonl", "{}\n")])
def test_numbers_that_only_python_writes_are_read(
    suffix: str, text: str, number: str, tmp_path: Path
) -> None:
    path = tmp_path / f"rows.{suffix}"
    path.write_text(text.replace("{}", f'{{"prompt": "a?", "answer": {number}}}'))
    ((_, row),) = file_rows(path)
    assert str(row["answer"]) == {"NaN": "nan"}.get(number, number.replace("Infinity", "inf"))


def test_a_cut_off_object_is_a_damaged_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(LAYOUTS["rows by id"])[:-10])
    ((_, row),) = file_rows(path)
    assert isinstance(row, DamagedRow)
