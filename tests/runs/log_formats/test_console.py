"""Console text through terminals, Ray and files: numbers, wrapped lines, damaged ends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.console_reader import Console
from grpodoctor.runs.log_formats.registry import log_format_of, open_log
from grpodoctor.runs.reading.opening import open_run
from tests.runs.log_formats.console_text import VERL, bar, rows_of, seen


def test_verl_through_ray_with_colours_and_a_count_of_repetitions(tmp_path: Path) -> None:
    prefixes = (
        "\x1b[36m(TaskRunner pid=123)\x1b[0m ",
        "(main_task pid=7, ip=10.0.0.3) ",
        "(WorkerDict pid=1, ip=fe80::1) ",
        "",
    )
    text = "\n".join(
        f"{prefix}{VERL.format(step=step, reward=0.5)}\x1b[32m [repeated 3x across cluster]\x1b[0m"
        for step, prefix in enumerate(prefixes)
    )
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [0, 1, 2, 3]
    assert all(row.values["critic/score/mean"] == 0.5 for row in rows)
    assert all(row.values["actor/pg_loss"] == -0.002 for row in rows)


def test_numpy_and_torch_numbers_are_read_and_other_text_is_not(tmp_path: Path) -> None:
    text = (
        "step:3 - actor/entropy:np.float64(0.31) - actor/lr:1e-06 - a/b:tensor(0.5) - c/d:nan"
        " - e/f:inf - note:None - g/h:True\n"
    )
    (row,) = rows_of(text, tmp_path)
    assert row.step == 3
    assert row.values["actor/entropy"] == 0.31
    assert (row.values["actor/lr"], row.values["a/b"]) == (1e-06, 0.5)
    assert row.values["c/d"] != row.values["c/d"]
    assert row.values["e/f"] == float("inf")
    assert not {"note", "g/h"} & set(row.values)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_rows_wrapped_by_a_terminal_are_joined(width: int, tmp_path: Path) -> None:
    line = VERL.format(step=4, reward=0.25) + " - response_length/mean:512.0 - perf/mfu:0.3"
    wrapped = "\n".join(line[at : at + width] for at in range(0, len(line), width))
    text = f"{wrapped}\nSaving a checkpoint to /tmp/x\n{VERL.format(step=5, reward=0.75)}\n"
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [4, 5]
    assert rows[0].values["critic/score/mean"] == 0.25
    assert rows[0].values["perf/mfu"] == 0.3


def test_a_response_that_mentions_steps_is_not_a_row(tmp_path: Path) -> None:
    text = (
        "<think> Let us go step by step: - first {x} then \\boxed{42\n"
        f"{VERL.format(step=1, reward=0.5)}\n"
        "the answer is {'x': 1} and step:2 is - nothing: at all\n"
        f"{VERL.format(step=2, reward=0.5)}\n"
    )
    assert [row.step for row in rows_of(text, tmp_path)] == [1, 2]


def test_numbers_as_texts(tmp_path: Path) -> None:
    text = f"{bar(1)}\n{{'loss': '-0.0277', 'learning_rate': '1e-06', 'num_tokens': '1.5e+04'}}\n"
    (row,) = rows_of(text, tmp_path)
    assert row.values == {"loss": -0.0277, "learning_rate": 1e-06, "num_tokens": 15000.0}


def test_nested_and_long_dicts(tmp_path: Path) -> None:
    text = (
        "step 3: {'train': {'loss': 0.5, 'kl': 0.01}, 'rollout': {'reward': 1.0}}\n"
        "step 4: {\n    'train/loss': 0.25,\n    'train/kl': 0.02,\n"
        "    'rollout/raw_reward': 0.75,\n}\nnext line\n"
    )
    rows = rows_of(text, tmp_path)
    assert seen(rows)[0] == (3, {"train/loss": 0.5, "train/kl": 0.01, "rollout/reward": 1.0})
    assert seen(rows)[1][0] == 4
    assert rows[1].values["rollout/raw_reward"] == 0.75


def test_an_unclosed_dict_swallows_no_rows(tmp_path: Path) -> None:
    text = "{'broken': 1,\nand then the job went on with other things\n"
    text += f"{VERL.format(step=1, reward=0.5)}\n"
    text += f"{{'also': 2,\n'broken': 3,\n{VERL.format(step=2, reward=0.5)}\n"
    assert [row.step for row in rows_of(text, tmp_path)] == [1, 2]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "live.log"
    line = VERL.format(step=1, reward=0.5)
    path.write_text(line[:40])
    reader = Console(path, RowKeys())
    assert reader.read().records == []
    with path.open("a") as file:
        file.write(line[40:] + "\n")
    (row,) = reader.read().records
    assert row.values["critic/score/mean"] == 0.5


def test_a_last_line_without_an_end_is_read(tmp_path: Path) -> None:
    assert len(rows_of(VERL.format(step=1, reward=0.5), tmp_path)) == 1


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\x00binary \x1b[31m\xf0\x28\x8c\x28\n" * 50,
        b"{" * 100_000 + b"\n",
        b"step:1 - " + b"a" * 300_000 + b":1\n",
        b"step:1 - " + b"x:1 - " * 60_000 + b"\n",
        b"| " * 100_000 + b"\n",
        b"\r" * 100_000 + b"\n",
        b"{'a': " * 20_000 + b"\n" + b"'b': 1,\n" * 5_000,
        b"Step 1 | " + b"Loss 1 | " * 20_000 + b"\n",
        b"step:" + b" " * 100_000 + b"1 - a:1\n",
        b"'" * 100_000 + b":1}{\n",
        b"a:" * 100_000 + b"%|\n",
    ],
)
def test_hostile_lines_take_little_time(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile.log"
    path.write_bytes(text)
    reader = Console(path, RowKeys())
    begun = time.process_time()
    while reader.read().more:
        pass
    assert time.process_time() - begun < 10


def test_a_log_that_was_truncated_while_it_was_written_has_a_hole(tmp_path: Path) -> None:
    """`> job.log` by a second job: the first one goes on at its old offset, after NUL bytes."""
    path = tmp_path / "job.log"
    rows = "".join(f"{{'loss': 0.1, 'reward': 0.{step}, 'epoch': {step}.0}}\n" for step in range(5))
    path.write_bytes(b"Traceback (most recent call last):\n" + b"\0" * 400_000 + rows.encode())
    reader = open_log(path, RowKeys())
    assert reader is not None
    found: list[LogRow] = []
    more = True
    while more:
        chunk = reader.read()
        found, more = [*found, *chunk.records], chunk.more
    assert [row.values["reward"] for row in found] == [0.0, 0.1, 0.2, 0.3, 0.4]
    path.write_bytes(b"\0\x01\0\x02 binary " * 1000)
    assert open_log(path, RowKeys()) is None


def test_a_console_log_is_recognized_by_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "slurm-123.o456"
    path.write_text(f"hello\n{VERL.format(step=1, reward=0.5)}\n")
    found = log_format_of(path)
    assert found is not None
    assert found.name == "console"


def test_output_in_a_markdown_file_is_a_log_only_if_it_is_named(tmp_path: Path) -> None:
    rows = "\n".join(VERL.format(step=step, reward=0.5) for step in range(4))
    report = tmp_path / "run_terminal.md"
    report.write_text(f"# Training log\n\n```text\n{rows}\n```\n")
    assert [step.step for step in open_run(report).steps] == [0, 1, 2, 3]
    assert log_format_of(report) is None
    with pytest.raises(RunError, match="run_terminal"):
        open_run(tmp_path)


def test_a_dict_that_a_terminal_broke_into_lines_of_its_width(tmp_path: Path) -> None:
    texts = [
        str({"loss": 0.25, "grad_norm": 1.5, "completions/mean_length": 384.0, "reward": -step / 8,
             "rewards/format/mean": -0.725, "completions/clipped_ratio": 1.0, "step": step})
        for step in range(1, 4)
    ]  # fmt: skip
    broken = [text[start : start + 70].strip() for text in texts for start in range(0, 210, 70)]
    rows = rows_of("\n".join(["loading", *broken]) + "\n", tmp_path)
    assert [row.step for row in rows] == [1, 2, 3]
    assert rows[1].values["completions/mean_length"] == 384
    assert rows[1].values["rewards/format/mean"] == -0.725
    assert rows[1].values["reward"] == -0.25


def test_an_unfinished_dict_does_not_swallow_the_next_row(tmp_path: Path) -> None:
    row = "{'loss': 0.5, 'reward': 0.25, 'grad_norm': 1.5, 'kl': 0.001, 'step': 7}"
    text = f"{row[:65]}\n{row}\n"
    assert [found.step for found in rows_of(text, tmp_path)] == [7]


def test_a_line_of_times_that_is_no_heading_takes_no_time(tmp_path: Path) -> None:
    """A pattern with nested repetitions tries each way to divide such a line, for hours."""
    line = "2025-12-26 18:30:27 12:00:01,123 " * 6 + "1.5 2.5 3.5, 4/5 waiting for the engine:"
    assert rows_of(f"{line}\n" * 3 + f"{line[:79]}:\n", tmp_path) == []
