"""Logs in which a launcher or a notebook service wraps the lines of a training."""

from __future__ import annotations

import json
from pathlib import Path

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.kaggle import KaggleLog
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.reading.opening import open_run
from tests.cli.in_process import run
from tests.runs.log_formats.console_text import rows_of

LINE = "step {step}/200 loss=-0.5 reward_mean={reward} reward_std=0.5"
ROW = "{{'loss': 0.01, 'reward': {reward}, 'grad_norm': 0.2, 'completions/mean_length': 90.0}}"


def sweep(*jobs: str, steps: int = 40) -> str:
    """Jobs that print in turns; the reward of those named `sick` breaks down."""
    printed = []
    for step in range(1, steps + 1):
        for job in jobs:
            reward = 0.0 if "sick" in job and step > 20 else 0.5 + step % 3 / 50
            line = LINE.format(step=step, reward=reward)
            printed.append(f"\x1b[36m({job}, pid=27{step % 10})\x1b[0m {line}\n")
    return "".join(printed)


def test_the_jobs_of_a_launcher_are_separate_runs(tmp_path: Path) -> None:
    path = tmp_path / "sweep.log"
    path.write_text(sweep("lr1e-5-sick", "lr1e-6", "lr5e-7"))
    printed = run("check", str(path)).stdout
    assert "1 sick" in printed
    assert "  run_name=lr1e-5-sick  " in printed  # whole at 80 columns, as --where takes it
    command = f"grpodoctor check {path} --where run_name=lr1e-5-sick"
    assert command == printed.splitlines()[-1].strip()
    report = json.loads(run("check", str(path), "--where", "run_name=lr1e-6", "--json").stdout)
    assert report["verdict"]["kind"] == "flat"


def test_a_single_job_and_the_ranks_of_one_job_are_one_run(tmp_path: Path) -> None:
    rows = rows_of(sweep("train"), tmp_path)
    assert [row.step for row in rows] == list(range(1, 41))
    text = sweep("train").replace("(train, pid", "(head, rank=0, pid")
    assert all(not row.texts for row in rows_of(text, tmp_path))


def pieces(rows: int) -> list[str]:
    """Printed text as Kaggle cuts it: a row of TRL in two pieces, and a progress bar."""
    found = ["0.00s - Debugger warning\n"]
    for step in range(1, rows + 1):
        row = ROW.format(reward=step / 10)
        found += [f"\r  1%|▌  | {step}/300 [00:10<09:00, 5.4s/it]\n", row[:30], f"{row[30:]}\n"]
    return found


def kaggle(path: Path, texts: list[str], *, ends: bool = True) -> Path:
    entries = [
        json.dumps({"stream_name": "stdout", "time": number / 2, "data": text})
        for number, text in enumerate(texts)
    ]
    path.write_text("[" + "\n,".join(entries) + ("\n]" if ends else '\n,{"stream_na'))
    return path


def test_the_log_of_a_kaggle_notebook(tmp_path: Path) -> None:
    path = kaggle(tmp_path / "grpo.log", pieces(5))
    log_format = log_format_of(path)
    assert log_format is not None
    assert log_format.name == "kaggle"
    steps = list(open_run(path).steps)
    assert [step.step for step in steps] == [1, 2, 3, 4, 5]
    assert "reward/mean" in steps[0].values


def test_a_kaggle_log_that_grows_and_is_cut_off(tmp_path: Path) -> None:
    path = kaggle(tmp_path / "grpo.log", pieces(3), ends=False)
    reader = KaggleLog(path, RowKeys())
    assert [row.values["reward"] for row in reader.read().records] == [0.1, 0.2, 0.3]
    kaggle(path, pieces(4))
    assert [row.values["reward"] for row in reader.read().records] == [0.4]
