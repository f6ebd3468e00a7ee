"""Notebooks: tables of transformers, printed rows, several trainings, damage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.notebook import Notebook
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.reading.opening import open_run

TITLES = ("Step", "Training Loss", "reward", "reward_std", "completions / mean_length", "kl",
          "rewards / exact_match / mean", "rewards / exact_match / std")  # fmt: skip


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, Any]:
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    markup = (
        "\n<div><progress value='3' max='3'></progress> [3/3 00:10, Epoch 1/1]</div>\n"
        f'<table border="1" class="dataframe"><thead><tr style="text-align: left;">\n{head}'
        f"</tr></thead><tbody>{body}</tbody></table><p>"
    )
    return {"output_type": "display_data", "data": {"text/html": markup.splitlines(True)}}


def printed(*lines: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [f"{line}\n" for line in lines]}


def notebook(path: Path, *cells: Sequence[dict[str, Any]]) -> Path:
    document = {
        "cells": [{"cell_type": "markdown", "source": ["# GRPO"]}]
        + [{"cell_type": "code", "source": [], "outputs": list(outputs)} for outputs in cells],
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(document))
    return path


def grpo_rows(count: int) -> list[list[object]]:
    return [
        [step, 0.01, step / 10, 0.4, 100.5, "No Log" if step == 1 else 0.1, 0.25, 0.5]
        for step in range(1, count + 1)
    ]


def test_a_table_of_transformers(tmp_path: Path) -> None:
    path = notebook(tmp_path / "train.ipynb", [table(TITLES, grpo_rows(3))])
    log_format = log_format_of(path)
    assert log_format is not None
    assert log_format.name == "notebook"
    rows = Notebook(path, RowKeys()).read().records
    assert [row.step for row in rows] == [1, 2, 3]
    assert dict(rows[1].values) == {
        "loss": 0.01, "reward": 0.2, "reward_std": 0.4, "completions/mean_length": 100.5,
        "kl": 0.1, "rewards/exact_match/mean": 0.25, "rewards/exact_match/std": 0.5,
    }  # fmt: skip
    assert "kl" not in rows[0].values


def test_a_table_that_was_shown_twice_is_one_run(tmp_path: Path) -> None:
    twice = [table(TITLES, grpo_rows(20)), table(TITLES, grpo_rows(30))]
    run = open_run(notebook(tmp_path / "train.ipynb", twice))
    assert [record.step for record in run.steps] == list(range(1, 31))
    assert run.manifest.framework == "trl"


def test_fine_tuning_before_the_run_is_left_out(tmp_path: Path) -> None:
    supervised = [table(("Step", "Training Loss"), [[step, 1.5] for step in range(10, 60, 10)])]
    path = notebook(tmp_path / "train.ipynb", supervised, [table(TITLES, grpo_rows(25))])
    chunk = Notebook(path, RowKeys()).read()
    assert [row.step for row in chunk.records] == list(range(1, 26))
    assert chunk.notes == ["cells without a reward are not used: 1 with 5 rows"]


def test_printed_rows(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': 0.1, 'reward': 0.{step}, 'completions/mean_length': 50.0, 'step': {step}}}"
        for step in range(1, 10)
    ]
    path = notebook(tmp_path / "train.ipynb", [printed("loading the model", *lines[:4]),
                                               printed(*lines[4:])])  # fmt: skip
    rows = Notebook(path, RowKeys()).read().records
    assert [row.step for row in rows] == list(range(1, 10))
    assert rows[-1].values["reward"] == 0.9


@pytest.mark.parametrize("begin", ["Step {} | ", ""], ids=["with steps", "without steps"])
def test_rewards_printed_under_a_table_of_the_loss_are_read(tmp_path: Path, begin: str) -> None:
    loss = table(("Step", "Training Loss"), [[step, 0.01] for step in range(10, 40, 10)])
    lines = [f"{begin.format(step)}reward: 1.{step} | kl: 0.1" for step in range(10, 40, 10)]
    path = notebook(tmp_path / "train.ipynb", [loss, printed(*lines)])
    records = list(open_run(path).steps)
    assert [record.values["reward/mean"].value for record in records] == [1.1, 1.2, 1.3]
    assert ("optimizer/loss" in records[0].values) is bool(begin)


def test_a_saved_notebook_is_read_again_from_its_new_rows(tmp_path: Path) -> None:
    path = notebook(tmp_path / "train.ipynb", [table(TITLES, grpo_rows(2))])
    reader = Notebook(path, RowKeys())
    assert len(reader.read().records) == 2
    assert reader.read().records == []
    notebook(path, [table(TITLES, grpo_rows(5))])
    assert [row.step for row in reader.read().records] == [3, 4, 5]


def test_next_to_a_log_a_notebook_is_not_read(tmp_path: Path) -> None:
    notebook(tmp_path / "plots.ipynb", [table(TITLES, grpo_rows(30))])
    rows = [{"step": step, "reward": 0.5 + step / 100, "loss": 0.1} for step in range(30)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    steps = list(open_run(tmp_path).steps)
    assert steps[0].step == 0
    assert len(steps) == 30


@pytest.mark.parametrize(
    "text", ["{", '{"cells": 3}', '{"cells": [1, null, {"outputs": [2, {"data": []}]}]}', "[]"]
)
def test_damaged_notebooks_are_reported_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(text)
    with pytest.raises(RunError) as error:
        list(open_run(path).steps)
    assert "\n" not in str(error.value)


def test_a_notebook_without_steps_is_not_called_a_document(tmp_path: Path) -> None:
    path = notebook(tmp_path / "train.ipynb", [printed("loading the model", "done")])
    with pytest.raises(RunError) as error:
        list(open_run(path).steps)
    assert "no cell of the notebook shows a step" in str(error.value)
    assert "JSON" not in str(error.value)
