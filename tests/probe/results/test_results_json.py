"""A result is written and read again as it was; damaged ones are refused in a line."""

import math
from pathlib import Path

import orjson
import pytest

from grpodoctor.errors import RunError
from grpodoctor.probe.results.results_json import read_result, to_json, write_result
from tests.report.probed import result


def test_a_written_result_is_read_unchanged(tmp_path: Path) -> None:
    written = result()
    write_result(written, tmp_path / "probe.json")
    read = read_result(tmp_path / "probe.json")
    effects = [
        cell.comparison.effects["ppo_clip/0.2_0.28"] for cell in read.cells if cell.comparison
    ]
    assert all(math.isnan(effect) for effect in effects)
    assert to_json(read) == to_json(written)
    assert read.engines == written.engines
    assert read.cells[0].causes == written.cells[0].causes
    assert read.cells[0].comparison
    assert written.cells[0].comparison
    assert read.cells[0].comparison.readings == written.cells[0].comparison.readings


def test_it_is_valid_json_for_strict_readers() -> None:
    content = orjson.dumps(to_json(result()))  # which knows no NaN
    assert orjson.loads(content)["cells"][0]["comparison"]["effects"]["ppo_clip/0.2_0.28"] == "NaN"


def test_a_result_of_schema_1_still_loads() -> None:
    """Written by version 0.1.0; schema 2 renamed some fields."""
    path = Path(__file__).parents[2] / "data" / "probe-schema-1.json"
    stored = orjson.loads(path.read_bytes())["cells"]
    cells = read_result(path).cells
    assert [cell.reason for cell in cells] == [cell["told"] for cell in stored]
    for cell, former in zip(cells, stored, strict=True):
        assert [cause.summary for cause in cell.causes] == [
            each["told"] for each in former["causes"]
        ]
        assert [control.summary for control in cell.controls] == [
            control["told"] for control in former["controls"]
        ]
    assert any(cell.causes for cell in cells)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"schema_version": 99}',
        b'{"schema_version": 1, "cells": 3}',
        b"\xff\xfe",
    ],
)
def test_invalid_results_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "probe.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match="probe"):
        read_result(path)
