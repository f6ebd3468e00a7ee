"""The steps of console text: progress bars, and steps that are printed before a row."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.decoding.console_reader import Console
from tests.runs.log_formats.console_text import bar, rows_of, seen


def test_dicts_printed_into_a_progress_bar_line_are_read(tmp_path: Path) -> None:
    text = ""
    for step in (5, 10, 15):
        text += "".join(bar(each) for each in range(step - 4, step + 1))
        text += f"{' ' * 20}\r{{'loss': 0.0, 'grad_norm': 0.25, 'reward': 0.5, 'epoch': 0.1}}\n"
        text += f"\r{'Processed prompts: 100%|███| 8/8 [00:01<00:00]'}\n"
    text += "{'eval_loss': 0.1, 'eval_reward': 0.6, 'epoch': 0.1}\n"
    text += "{'train_runtime': 10.0, 'train_loss': 0.0, 'epoch': 0.1}\n"
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [5, 10, 15, 15, 15]
    assert rows[0].values["reward"] == 0.5
    assert rows[3].values["eval_reward"] == 0.6


def test_bars_of_one_line_without_carriage_returns(tmp_path: Path) -> None:
    """As text looks once it went through an editor or a notebook."""
    text = ""
    for step in (2, 4):
        text += f"{bar(step - 1)}{bar(step)}".replace("\r", " ")
        text += "{'loss': 0.0, 'reward': 0.5}\n"
        text += "Training Progress:   7%|▋| 3/4 [00:01<00:00]\n" if step == 2 else ""
    assert [row.step for row in rows_of(text, tmp_path)] == [2, 4]


def test_progress_bars_before_the_first_row_are_not_steps(tmp_path: Path) -> None:
    text = "".join(bar(step, 8) for step in range(9)) + "\n"
    text += "".join(f"{{'loss': {step}.0, 'reward': 0.5}}\n" for step in range(1, 5))
    rows = rows_of(text, tmp_path)
    assert seen(rows)[1] == (4, {"loss": 2.0, "reward": 0.5})  # eight steps, a row for two
    assert [row.step for row in rows] == [2, 4, 6, 8]


def test_a_progress_bar_redrawn_after_a_row_gives_its_step(tmp_path: Path) -> None:
    """Standard output went through a buffer: a row for each twenty steps, all of them late."""
    text = "".join(bar(step, 95) + (bar(step, 95) if step % 20 == 0 else "") for step in range(96))
    text += "\n" + "".join(f"{{'loss': {step}.0, 'reward': 0.5}}\n" for step in range(4))
    assert [row.step for row in rows_of(text, tmp_path)] == [20, 40, 60, 80]


def test_a_stopped_progress_bar_is_noticed_in_a_growing_log(tmp_path: Path) -> None:
    path = tmp_path / "live.log"
    path.write_text(f"{bar(1)}\n{{'loss': 1.0, 'reward': 0.5}}\n")
    reader = Console(path, RowKeys())
    assert [row.step for row in reader.read().records] == [1]
    with path.open("a") as file:
        file.write("{'loss': 2.0, 'reward': 0.5}\n{'loss': 3.0, 'reward': 0.5}\n")
    chunk = reader.read()
    assert [row.step for row in chunk.records] == [2, 3]
    assert "counted by rows" in chunk.notes[0]


def test_a_step_printed_before_a_dict_is_its_step(tmp_path: Path) -> None:
    text = (
        "INFO 07-01 12:00:00 ppo_trainer.py:123] ✨ Global step 5: {'policy_loss': 0.01, "
        "'reward': 0.4}\n"
        "[2026-07-01 12:00:00] loss.py:10 - step 6: {'train/loss': 0.1, 'train/kl_loss': 0.0}\n"
        "rollout 7: {'rollout/raw_reward': 0.5, 'rollout/response_lengths': 312.5}\n"
        "Step 8: \n{'policy/policy_entropy': '0.1234',\n 'reward/avg_raw_reward': '0.5'}\n"
    )
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [5, 6, 7, 8]
    assert rows[3].values == {"policy/policy_entropy": 0.1234, "reward/avg_raw_reward": 0.5}


def test_a_progress_bar_over_the_data_counts_no_steps(tmp_path: Path) -> None:
    """Rows that say their own step, and a summary at the end that says none."""
    text = (
        "Generating train split: 100%|####| 7000/7000 [00:00<00:00, 3e5 examples/s]\n"
        "[run] 1/2 | loss=0.5 | reward=0.1\n[run] 2/2 | loss=0.4 | reward=0.2\n"
        "[run] Steps: 2 | Group: 4 | LR: 3e-05\n[run] Peak accuracy: 60.0%\n"
    )
    assert [row.step for row in rows_of(text, tmp_path) if row.step is not None] == [1, 2]


def test_steps_of_bars_that_are_printed_as_text_alone(tmp_path: Path) -> None:
    text = "".join(
        f" {step}% {step}/100 [00:{step:02}<01:00,  1.00s/it]\n"
        f"{{'loss': 0.1, 'reward': 0.5, 'grad_norm': {step}.5}}\n"
        for step in (5, 10, 15)
    )
    assert [row.step for row in rows_of(text, tmp_path)] == [5, 10, 15]


def test_bars_that_follow_the_rows_of_their_steps(tmp_path: Path) -> None:
    text = "".join(
        f"  {step}% {step}/100 [00:00<01:00,  1.00s/it]\n"
        f"{{'loss': 0.1, 'reward': 0.5, 'grad_norm': {step}.5}}\n"
        for step in (0, 1, 2)
    )
    assert [row.step for row in rows_of(text, tmp_path)] == [1, 2, 3]


def test_results_after_a_training_keep_its_last_step(tmp_path: Path) -> None:
    rows = [f"{{'loss': 0.1, 'reward': 0.{step}, 'grad_norm': 1.5}}" for step in (1, 2, 3)]
    end = ["{'train_runtime': 9.5, 'train_loss': 0.1}", "{'accuracy': 0.5, 'recall': 0.25}"]
    text = "  0%|          | 0/200 [00:00<?, ?it/s]\n" + "\n".join([*rows, *end, *rows]) + "\n"
    assert [row.step for row in rows_of(text, tmp_path)] == [1, 2, 3, 3, 3, 1, 2, 3]


def _row(number: int) -> str:
    return f"{{'loss': {number}.0, 'reward': 0.5}}\n"


def test_a_step_in_the_middle_of_a_message_is_no_heading(tmp_path: Path) -> None:
    message = "Dropped the graph @ step 0 and layer {}: it has only 0 layers\n"
    text = "".join(
        bar(step) + "\n" + message.format(7 * step) * 2 + _row(step) for step in range(1, 5)
    )
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [1, 2, 3, 4]


def test_a_heading_that_never_counts_on_numbers_one_row_only(tmp_path: Path) -> None:
    text = "".join(f"Plan of step 0 is stale\n{bar(step)}\n{_row(step)}" for step in range(1, 5))
    assert [row.step for row in rows_of(text, tmp_path)][1:] == [2, 3, 4]


def test_dicts_below_one_heading_share_its_step(tmp_path: Path) -> None:
    """Two kinds of rows per step, and two updates of the first step with the same keys."""
    times = "{'rollout_time': 2.0, 'train_time': 1.0}\n"
    text = "Step 1:\n" + _row(1) + _row(1) + times
    text += "".join(f"Step {step}:\n{_row(step)}Step {step}:\n{times}" for step in (2, 3))
    assert [row.step for row in rows_of(text, tmp_path)] == [1, 1, 1, 2, 2, 3, 3]


def test_tables_below_a_repeated_heading_are_not_one_step(tmp_path: Path) -> None:
    table = "| reward | 0.5 |\n| loss | {}.0 |\n"
    text = "".join(f"Plan of step 0 is stale\n{table.format(step)}" for step in range(1, 5))
    rows = rows_of(text, tmp_path)
    assert len(rows) == 4
    assert [row.step for row in rows].count(0) == 1


def _batch(number: int) -> str:
    return f"INFO - rollout batch {number} generated\n{{'loss': 0.1, 'mean_reward': 0.{number}}}\n"


def test_batches_count_the_rows_between_rare_steps(tmp_path: Path) -> None:
    """An evaluation prints the step of every third row; its step would merge the rows below it."""
    text = ""
    for number in range(7):
        text += _batch(number)
        text += f"INFO - in step {number} the best checkpoint\n" if number % 3 == 0 else ""
    assert [row.step for row in rows_of(text, tmp_path)] == list(range(7))


def test_batches_of_a_restarted_job_count_anew(tmp_path: Path) -> None:
    text = "".join(map(_batch, [*range(4), *range(3)]))
    assert [row.step for row in rows_of(text, tmp_path)] == [0, 1, 2, 3, 0, 1, 2]


def test_batches_that_are_counted_in_each_step_are_no_steps(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 5):
        text += f"Step {step}:\n"
        text += "".join(f"rollout batch {number} generated\n" for number in range(2))
        text += f"{{'loss': 0.1, 'mean_reward': 0.{step}}}\n"
    assert [row.step for row in rows_of(text, tmp_path)][1:] == [2, 3, 4]
