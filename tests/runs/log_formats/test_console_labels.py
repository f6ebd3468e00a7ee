"""Console lines with labeled numbers, as users' scripts print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar
from tests.runs.log_formats.console_text import bar, rows_of, written


def test_lines_of_custom_scripts(tmp_path: Path) -> None:
    text = (
        "Epoch:[1/2](974/975), Reward: -1.80, KL_ref: -0.02, Actor Loss: 0.0003, "
        "Avg Response Len: 205.12, Learning Rate: 0.00000030\n"
        "Epoch:[2/2](1/975), Reward: -1.70, KL_ref: -0.02, Actor Loss: 0.0002, "
        "Avg Response Len: 201.50, Learning Rate: 0.00000029\n"
    )
    run = open_run(written(text, tmp_path))
    steps = list(run.steps)
    assert run.manifest.framework == "generic"
    assert [each.step for each in steps] == [974, 976]
    assert scalar(steps[0].values["reward/mean"]) == -1.8
    assert scalar(steps[1].values["length/mean"]) == 201.5


@pytest.mark.parametrize(
    "line",
    [
        "[2025-03-01 10:00:00] step 12 | loss: 0.5 | reward: 0.25 | acc: 40.0%",
        "INFO iter=12 loss=0.5 reward=0.25 acc=0.4 lr=1e-6",
        "Step [12/500], Loss: 0.5, Reward: 0.25, Acc: 0.4",
        "Iter: 1/1, Step: 12/200, Loss: 0.5, Reward: 0.25, Acc: 0.4",
    ],
)
def test_labels_and_assignments(line: str, tmp_path: Path) -> None:
    (row,) = rows_of(f"{line}\n", tmp_path)
    assert row.step == 12
    assert (row.values["line/loss"], row.values["line/reward"]) == (0.5, 0.25)
    assert row.values["line/acc"] == 0.4


def test_the_value_of_a_batch_and_a_fraction_are_no_steps(tmp_path: Path) -> None:
    lines = [f"Episode: {n}, loss: 5.5, sum of rewards in batch: {n}.25\n" for n in range(4)]
    rows = rows_of("".join(lines) + "Episode: 4, loss: 5.5, reward: 1, per batch: 7\n", tmp_path)
    assert [row.values["line/episode"] for row in rows] == [0, 1, 2, 3, 4]
    assert {row.step for row in rows} == {None}


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("[gsm8k_8B]   7/100 | loss=-4.6162 | reward=0.625", 7),
        ("step 7: loss 0.1 reward=0.625, loss=-4.6162", 7),
        ("Epoch 1/3 | Step 7 | loss=-4.6162 | reward=0.625", 7),
    ],
)
def test_a_line_with_step_reward_and_loss_is_a_row(line: str, step: int, tmp_path: Path) -> None:
    (row,) = rows_of(f"{line}\n", tmp_path)
    assert row.step == step
    assert (row.values["line/loss"], row.values["line/reward"]) == (-4.6162, 0.625)


@pytest.mark.parametrize(
    ("line", "step", "key"),
    [
        ("[Step 240] Loss = 0.4250 -  Avg Reward = 0.625", 240, "line/avg_reward"),
        ("Batch 10/50 | Avg Reward: 0.625 | Best: 0.471", 10, "line/avg_reward"),
        ("Step 3: Mean Reward=0.625", 3, "line/mean_reward"),
    ],
)
def test_a_mean_reward_with_a_step_is_a_row(line: str, step: int, key: str, tmp_path: Path) -> None:
    (row,) = rows_of(f"{line}\n", tmp_path)
    assert (row.step, row.values[key]) == (step, 0.625)
    assert rows_of("Turn 1: reward=0.03 fixed=False\n", tmp_path) == []


def test_a_number_in_parentheses_by_itself_is_a_value(tmp_path: Path) -> None:
    """A public notebook of RLHF prints the mean reward so."""
    text = "".join(
        f"step {step} -- mean_reward: ({step / 10 - 1:.3g}) -- decoding 5 samples:\n"
        for step in range(20)
    )
    steps = list(open_run(written(text, tmp_path)).steps)
    assert [each.step for each in steps] == list(range(20))
    assert scalar(steps[3].values["reward/mean"]) == -0.7


def test_the_rewards_of_a_group_are_read_where_the_line_has_a_step(tmp_path: Path) -> None:
    text = (
        "[step 1/200] correct=3/4 rewards=['0.80', '0.80', '0.00', '0.80'] loss=-0.0051\n"
        "  [attempt 9] SKIP (ALL_CORRECT, rewards=[1.0, 1.0, 1.0, 1.0]), resampling\n"
        "[step 2/200] correct=4/4 rewards=[0.5, 0.5, 0.5, 0.5] loss=0.0\n"
    )
    first, second = rows_of(text, tmp_path)
    assert (first.step, second.step) == (1, 2)
    assert first.values["line/reward_mean"] == pytest.approx(0.6)
    assert (first.values["line/zero_variance_rate"], second.values["line/zero_variance_rate"]) == (
        0,
        1,
    )
    steps = list(open_run(written(text, tmp_path)).steps)
    assert scalar(steps[1].values["reward/mean"]) == 0.5


def test_two_numbers_without_a_step_are_not_a_row(tmp_path: Path) -> None:
    assert rows_of("best so far: reward=0.5, loss=0.25\n", tmp_path) == []
    assert rows_of("Epoch 1/3 | loss=0.25 | reward=0.5\n", tmp_path) == []


def test_custom_lines_do_not_replace_a_frameworks_rows(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 4):
        text += f"  [{step:03d}] ROLLOUT | reward=0.9 | loss=7 | acc=0.1 | step={step}\n"
        text += f"{bar(step)}{bar(step)}\n{{'loss': 0.5, 'reward': 0.25, 'reward_std': 0.1, "
        text += "'completion_length': 12.0}\n"
    run = open_run(written(text, tmp_path))
    steps = list(run.steps)
    assert run.manifest.framework == "trl"
    assert [each.step for each in steps] == [1, 2, 3]
    assert all(scalar(each.values["reward/mean"]) == 0.25 for each in steps)
    assert all("accuracy/train" not in each.values for each in steps)


def test_assigned_numbers_in_parts_of_a_line(tmp_path: Path) -> None:
    line = (
        "[Step {step}/50] loss=-0.0000 grad=0.1967 clip=0.000 | reward=0.125 (std=0.333) | "
        "accuracy=0.125 fmt=0.250 | ratio=0.98 seq_len=253 | t_roll=2.6s t_train=5.3s"
    )
    rows = rows_of("\n".join(line.format(step=step) for step in (1, 2)), tmp_path)
    assert [row.step for row in rows] == [1, 2]
    assert rows[0].values["line/reward"] == 0.125
    assert rows[0].values["line/grad"] == 0.1967
    assert rows[0].values["line/accuracy"] == 0.125


@pytest.mark.parametrize(
    "line",
    [
        "[step {step}] avg_loss=0.5 acc=0.4",
        "step {step}/900 acc 0.40 kl 0.002 len 184 tok",
        "2026-01-02 10:00:00,123 - INFO - Step {step}/900 | Loss: 0.5 | Accuracy: 40.0%",
        "iter: {step}, acc: 26/65, time: 3s",
        "Training step {step} - Accuracy: 0.4 ± 0.1 - Completion length: 1,220.4",
        "[{step}/900] acc=0.4 kl=0.01",
    ],
)
def test_labeled_lines_that_recur_with_a_growing_step_are_rows(line: str, tmp_path: Path) -> None:
    text = "The answer at step 3: accuracy 5\n"
    for step in (10, 20, 30, 40):
        text += "Step 1: He has 240 apples, 25% of them red.\n" + line.format(step=step) + "\n"
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [10, 20, 30, 40]
    values = {"line/acc", "line/accuracy"} & rows[0].values.keys()
    assert rows[0].values[values.pop()] == pytest.approx(0.4)


def test_a_held_out_line_is_kept_apart_from_training(tmp_path: Path) -> None:
    text = "".join(
        f"step {step}: acc=0.4, len=120\n[eval] step {step}: acc=0.7\n" for step in range(5)
    )
    run = open_run(written(text, tmp_path))
    steps = list(run.steps)
    assert scalar(steps[-1].values["accuracy/train"]) == 0.4
    assert scalar(steps[-1].values["accuracy/heldout"]) == 0.7
    assert scalar(steps[-1].values["length/mean"]) == 120


@pytest.mark.parametrize(
    "text",
    [
        "step 1: acc=0.4\nstep 2: acc=0.5\n",
        "".join(f"step {step}: acc={part / 4}\n" for step in range(9) for part in range(4)),
        "".join(f"sample {step} step {step}: acc=0.5\n" for step in range(9)),
        "".join(f"Step {9 - step}: accuracy 0.5\n" for step in range(9)),
        "".join(f"Step {step}: mass 0.5, height=3\n" for step in range(9)),
        "".join(f"[{step}00/900] acc=0.5 | errors=0\n" for step in range(9)),
    ],
    ids=["too few", "parts of a step", "samples", "counts down", "unknown labels", "evaluation"],
)
def test_labeled_lines_that_do_not_stand_for_steps_are_no_rows(text: str, tmp_path: Path) -> None:
    assert rows_of(text, tmp_path) == []


def test_a_progress_bar_with_labels_is_read_once_per_step(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 6):
        drawn = f"Epoch 1:  10%|#   | {step}/50 [00:10<01:30,  2.00s/it, acc=0.{step}"
        text += f"\r{drawn}, len=9]\r{drawn}5, len=10]"
    rows = rows_of(text + "\n", tmp_path)
    assert [(row.step, row.values["line/acc"]) for row in rows] == [
        (step, pytest.approx(step / 10 + 0.05)) for step in range(1, 6)
    ]


def test_prose_with_labels_is_no_log(tmp_path: Path) -> None:
    path = written("* Rent: 1200\n* Utilities: 150\nreward is 0.9\n" * 20, tmp_path)
    with pytest.raises(
        RunError, match="no line of the text has a step and a known metric"
    ) as error:
        list(open_run(path).steps)
    assert "Rent" not in str(error.value)


def test_a_bar_over_held_out_prompts_is_no_training_reward(tmp_path: Path) -> None:
    """A public notebook prints two bars per iteration: of held-out and of training prompts."""
    text = "".join(
        f"val: 100%|####| 64/64 [01:35<00:00, 1.5s/it, completion_tokens=36, "
        f"reward={0.4 + i / 10}, token_logprobs=23{i}]\n"
        f"train: 100%|####| 320/320 [02:36<00:00, 9.1it/s, completion_tokens=40, reward=0.{i}5, "
        f"token_logprobs=12{i}]\n"
        f"1|5|Loss: -0.0060: 100%|####| 5/5 [02:15<00:00, 25.6s/it, entropy=0.{i}, kl_div=nan, "
        f"loss=-0.006, policy=-0.002]\n"
        for i in range(1, 5)
    )
    run = open_run(written(text, tmp_path))
    steps = list(run.steps)
    held_out = [scalar(s.values["reward/heldout"]) for s in steps if "reward/heldout" in s.values]
    rewards = [scalar(s.values["reward/mean"]) for s in steps if "reward/mean" in s.values]
    assert held_out == pytest.approx([0.5, 0.6, 0.7, 0.8])
    assert rewards == [0.15, 0.25, 0.35, 0.45]


def test_two_lines_of_a_step_in_different_notations_are_one_row(tmp_path: Path) -> None:
    """A public script prints its loss in one line and its accuracy in the next."""
    text = "".join(
        f"Step: {i} | Loss: 0.00{i} | KL: -0.0{i}\n[step {i}] avg_loss=0.004 acc=0.{i}\n"
        for i in range(1, 9)
    )
    run = open_run(written(text, tmp_path))
    steps = list(run.steps)
    assert [each.step for each in steps] == list(range(1, 9))
    assert [scalar(s.values["accuracy/train"]) for s in steps] == [i / 10 for i in range(1, 9)]
    assert all("optimizer/loss" in s.values for s in steps)


def test_a_piped_line_without_the_time_of_the_step_is_a_scripts_own(tmp_path: Path) -> None:
    """prime-rl prints the time after the step; a public script prints its losses."""
    text = "".join(
        f"Step {i} | Loss: 0.77 | Pol: 0.71 | Val: 0.059\n[step {i}] avg_loss=0.0 acc=0.{i}\n"
        for i in range(1, 9)
    )
    run = open_run(written(text, tmp_path))
    assert run.manifest.framework == "generic"
    assert [scalar(s.values["accuracy/train"]) for s in run.steps] == [i / 10 for i in range(1, 9)]


def test_lines_without_an_outcome_that_stand_alone_keep_their_order(tmp_path: Path) -> None:
    text = "".join(f"Step: {i} | Loss: 0.00{i} | KL: -0.0{i}\n" for i in range(1, 4))
    assert [row.step for row in rows_of(text, tmp_path)] == [1, 2, 3]
    rest = 'INFO {"step": 4, "loss": 0.1, "reward": 0.5}\n'
    assert [row.step for row in rows_of(text + rest, tmp_path)] == [1, 2, 3, 4]


def test_dotted_names_of_metrics_are_no_settings(tmp_path: Path) -> None:
    text = "step=3 train.reward.mean=0.5 train.loss.policy=0.25 train.kl.ref=nan\n"
    (row,) = rows_of(text, tmp_path)
    assert (row.step, row.values["line/train.reward.mean"]) == (3, 0.5)


def test_a_count_of_a_total_is_a_share(tmp_path: Path) -> None:
    """As the count itself, one and no correct response would be all of them and none."""
    text = "".join(
        f"[step {step}/40] correct={correct}/8 rewards=['0.9', '0.1'] loss=0.01 lr=1e-6 epoch=1/2\n"
        for step, correct in enumerate((0, 1, 6, 8), start=1)
    )
    rows = rows_of(text, tmp_path)
    assert [row.values["line/correct"] for row in rows] == [0, 0.125, 0.75, 1]
    assert rows[0].values["line/reward_mean"] == 0.5


def test_a_label_with_a_total_is_a_share_unless_it_counts_steps(tmp_path: Path) -> None:
    (row,) = rows_of("step 7 | Batch: 3/10 | Solved: 3/12 | Loss: 0.5 | Reward: 5/4\n", tmp_path)
    assert row.values == {"line/solved": 0.25, "line/loss": 0.5, "line/reward": 5.0}


def test_labels_before_the_dict_of_a_line_belong_to_its_row(tmp_path: Path) -> None:
    text = "".join(
        f"10:0{step} - INFO - step {step} done\n"
        f"10:0{step} - INFO - loss: 0.0{step}, entropy: 0.5, rewards: "
        f"{{'mean_reward': 0.{step}, 'format_reward': 0.9}}\n"
        for step in range(1, 4)
    )
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [1, 2, 3]
    assert rows[1].values == {
        "line/loss": 0.02,
        "line/entropy": 0.5,
        "mean_reward": 0.2,
        "format_reward": 0.9,
    }


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-01-02 03:04:05,678 - pkg.trainer - INFO - ",
        "2026-01-02 03:04:05,678 - INFO - ",
        "2026-01-02 03:04:05,678 INFO     __main__ - ",
        "2026-01-02 03:04:05.678 | INFO     | __main__:train:112 - ",
        "[2026-01-02 03:04:05,678][INFO] ",
        "[2026-01-02 03:04:05,678] [INFO] [trainer.py:23:train] ",
        "INFO:pkg.trainer:",
    ],
)
def test_the_prefix_of_a_logger_hides_no_list_below_a_heading(prefix: str, tmp_path: Path) -> None:
    lines = [
        each
        for step in range(1, 4)
        for each in (
            f"📊 Iteration {step} metrics:",
            f"  - Average Reward: 0.{step}",
            "  - KL: 0.01",
        )
    ]
    rows = rows_of("".join(f"{prefix}{line}\n" for line in lines), tmp_path)
    assert [(row.step, row.values["line/average_reward"]) for row in rows] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
    ]


def test_a_message_that_begins_like_a_loggers_name_keeps_its_labels(tmp_path: Path) -> None:
    text = "2026-01-02 03:04:05,678 INFO step: 7, loss: 0.5, reward: 0.25, kl: 0.1\n"
    (row,) = rows_of(text, tmp_path)
    assert (row.step, row.values["line/reward"], row.values["line/kl"]) == (7, 0.25, 0.1)


def test_a_list_below_a_heading_may_state_spreads(tmp_path: Path) -> None:
    text = "".join(
        f"===== GRPO step {step} =====\nmean reward: 0.{step} (std: 0.2)\n"
        "  pass@1   : 25%\nkl: 0.01 ± 0.001\n"
        for step in range(1, 4)
    )
    rows = rows_of(text, tmp_path)
    assert [(row.step, row.values["line/mean_reward"]) for row in rows] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
    ]
    assert (rows[0].values["line/pass@1"], rows[0].values["line/kl"]) == (0.25, 0.01)


def test_the_steps_of_an_episode_are_its_length(tmp_path: Path) -> None:
    text = "".join(f"Episode {each} | Return: {each}.5 | Steps: 12\n" for each in range(1, 8))
    steps = list(open_run(written(text, tmp_path)).steps)
    assert [each.step for each in steps] == list(range(1, 8))
    assert scalar(steps[0].values["reward/mean"]) == 1.5


def test_a_mean_reward_below_the_losses_has_their_step(tmp_path: Path) -> None:
    """DeepSpeed-Chat prints the reward on a line of its own."""
    text = "".join(
        f"epoch: 0|step: {step}|ppo_ep: 1|act_loss: 0.2{step}|cri_loss: 0.1|unsuper_loss: 0.0\n"
        f"average reward score: {step / 8 - 1}\n"
        "---------------------------------------------------------------------\n"
        f"|E2E latency=7.99s |Generate time=5.26s (65.81%) |CurSamplesPerSec={step}.01\n"
        "[2023-04-18 08:48:05,282] [INFO] [deepspeed] OVERFLOW! Rank 0 Skipping step.\n"
        for step in range(8)
    )
    steps = list(open_run(written(text, tmp_path)).steps)
    assert [each.step for each in steps] == list(range(8))
    assert [scalar(each.values["reward/mean"]) for each in steps] == [
        step / 8 - 1 for step in range(8)
    ]
    assert scalar(steps[3].values["optimizer/loss"]) == 0.23


def test_a_mean_reward_far_below_a_row_is_not_its_reward(tmp_path: Path) -> None:
    text = "".join(
        f"step: {step}|act_loss: 0.2|cri_loss: 0.1|lr: 1e-6\n"
        + "a response\n" * 4
        + "average reward score: 5\n"
        for step in range(5)
    )
    rows = rows_of(text, tmp_path)
    assert not any("line/average_reward" in row.values for row in rows)


def test_total_rewards_of_a_counted_batch_are_means(tmp_path: Path) -> None:
    text = "".join(
        f"2025-09-24 22:47:46,402 - train - INFO - rl_loss: 0.001, l2_norm: 0.15, reward_data: "
        f"{{'total_num': 256, 'total_reward': {64 + step}.0, 'total_format_reward': 128.0}}\n"
        for step in range(4)
    )
    rows = rows_of(text, tmp_path)
    assert [row.values["total_reward"] for row in rows] == [(64 + step) / 256 for step in range(4)]
    assert rows[0].values["total_format_reward"] == 0.5
    other = text.replace("'total_num': 256, ", "'total_len': 256, ")
    assert rows_of(other, tmp_path)[0].values["total_reward"] == 64
