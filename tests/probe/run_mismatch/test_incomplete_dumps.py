"""Dumps with both sides of which a part is missing, damaged or padded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from grpodoctor.cli.main import app
from grpodoctor.frameworks.rollout_formats.base import DamageLog, FilePart
from grpodoctor.frameworks.verl.rollouts import FORMAT
from grpodoctor.probe.run_mismatch.run_mismatch import RunMismatch, measure_run

Row = dict[str, Any]
_ROWS, _TOKENS, _STEPS = 20, 30, 4


def write(folder: Path, edit: Callable[[int, int, Row], None]) -> Path:
    """Dumps as verl writes them, with both sides added and each row edited."""
    rng = np.random.default_rng(5)
    for step in range(1, _STEPS + 1):
        rows: list[Row] = []
        for number in range(_ROWS):
            sampler = -rng.exponential(1.0, _TOKENS) - 1e-3
            rows.append({
                "input": f"q{number // 4}", "output": "a", "score": 1.0, "step": step,
                "responses": rng.integers(3, 99, _TOKENS).tolist(),
                "rollout_log_probs": sampler.tolist(),
                "old_log_probs": (sampler + rng.normal(0, 0.01, _TOKENS)).tolist(),
            })  # fmt: skip
            edit(step, number, rows[-1])
        (folder / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def measured(folder: Path, edit: Callable[[int, int, Row], None]) -> RunMismatch:
    return measure_run(write(folder, edit), 9)


def test_responses_without_a_side_do_not_hide_the_others(tmp_path: Path) -> None:
    def edit(_: int, number: int, row: Row) -> None:
        if number % 2:
            del row["rollout_log_probs"]
        if number == 4:
            row["old_log_probs"] = "[-1.0, -2.0]"
        if number == 6:
            row["old_log_probs"] = row["old_log_probs"][:-3]

    result = measured(tmp_path, edit)
    assert [step.tokens for step in result.steps] == [8 * _TOKENS] * _STEPS
    assert result.incomplete == 12 * _STEPS
    assert result.steps[0].kl_k3 == pytest.approx(5e-5, rel=0.3)


@pytest.mark.parametrize("masked", [False, True])
def test_padding_is_no_token(masked: bool, tmp_path: Path) -> None:
    def edit(_step: int, _number: int, row: Row) -> None:
        for name, filler in (("responses", 0), ("rollout_log_probs", 0.0), ("old_log_probs", 0.0)):
            row[name] = row[name] + [filler] * 20
        if masked:
            row["response_mask"] = [1] * 10 + [0] * 5 + [1] * 15 + [0] * 20

    result = measured(tmp_path, edit)
    kept = _TOKENS - 5 * masked
    assert [step.tokens for step in result.steps] == [_ROWS * kept] * _STEPS
    (part,) = FORMAT.read(FilePart(str(tmp_path / "1.jsonl"), 0, 1 << 30, 1), DamageLog())
    assert part.tokens is not None
    assert part.tokens.lengths_B.tolist() == [kept] * _ROWS


def test_a_token_of_probability_one_at_the_end_is_kept(tmp_path: Path) -> None:
    def edit(_step: int, _number: int, row: Row) -> None:
        row["rollout_log_probs"][-1] = row["old_log_probs"][-1] = 0.0

    assert measured(tmp_path, edit).steps[0].tokens == _ROWS * _TOKENS


def test_last_steps_without_a_side_are_reported(tmp_path: Path) -> None:
    def edit(step: int, _: int, row: Row) -> None:
        if step > 2:
            del row["old_log_probs"]

    result = measured(tmp_path, edit)
    assert (result.steps[-1].step, result.newest_step, result.is_outdated) == (2, _STEPS, True)
    shown = CliRunner().invoke(app, ["probe", "--run", str(tmp_path)]).output
    assert shown.startswith("within limits")
    assert "to step 4, but the steps after 2" in " ".join(shown.split())
    gate = CliRunner().invoke(app, ["probe", "--run", str(tmp_path), "--accept", "k3=0.01"])
    assert "those after 2 lack a side" in gate.output


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 3.0])
def test_values_that_are_no_log_probabilities_reject_a_run(value: float, tmp_path: Path) -> None:
    def edit(_: int, number: int, row: Row) -> None:
        if number == 3:
            row["old_log_probs"][4] = value

    result = measured(tmp_path, edit)
    assert (result.unusable, result.steps[0].tokens) == (_STEPS, _ROWS * _TOKENS - 1)
    assert result.severity == "info"
    gate = CliRunner().invoke(app, ["probe", "--run", str(tmp_path), "--accept", "k3=0.01"])
    assert (gate.exit_code, gate.output.split()[:3]) == (1, ["rejected:", "4", "tokens"])


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, lambda *_: None)
    (tmp_path / "5.jsonl").touch()
    (tmp_path / "server.json").touch()  # of another kind
    result = measure_run(tmp_path, 9)
    assert (result.empty, len(result.steps)) == (("5.jsonl",), _STEPS)
    shown = CliRunner().invoke(app, ["probe", "--run", str(tmp_path)]).output
    assert "Left out, because it has 0 bytes: 5.jsonl." in " ".join(shown.split())


@pytest.mark.parametrize("is_folder", [False, True])
def test_an_empty_file_alone_is_one_clear_line(is_folder: bool, tmp_path: Path) -> None:
    file = tmp_path / "5.jsonl"
    file.touch()
    run = tmp_path if is_folder else file
    ended = CliRunner().invoke(app, ["probe", "--run", str(run)])
    assert ended.exit_code == 2
    assert " ".join(ended.output.split()) == (
        f"error: no rollout dump: the file has 0 bytes ({file}); copy it again from the disk of "
        "the trainer, or record the step again"
    )


def test_an_unreadable_file_is_counted(trained: Path, tmp_path: Path) -> None:
    for file in (trained / "rollouts").glob("*.parquet"):
        content = file.read_bytes()
        is_last = "000003" in file.name
        (tmp_path / file.name).write_bytes(content[: len(content) // 2] if is_last else content)
    result = measure_run(tmp_path, 9)
    assert (result.damaged, result.steps[-1].step) == (1, 2)
