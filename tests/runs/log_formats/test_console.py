"""Console text as eleven frameworks print it, through terminals, Ray and files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.console import Console
from grpodoctor.runs.log_formats.registry import log_format_of, open_log
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar
from tests.runs.log_formats.console_text import bar, rows_of, seen, settings_of

VERL = "step:{step} - actor/entropy:0.31 - actor/pg_loss:-0.002 - critic/score/mean:{reward}"


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


def test_prime_rl_pipes(tmp_path: Path) -> None:
    text = (
        "12:00:00    INFO Step 1 | 12.3s | Loss 0.0123 | Entropy 0.45 | Mismatch KL 0.0021 | "
        "Grad. Norm 0.33 | LR 1.00e-06 | Throughput 12,345 tokens/s | MFU 21.3% | "
        "Peak Mem. 40.1 GiB\n"
        "12:00:01 SUCCESS Step 1 | 9.8s | Reward 0.5 | Trainable 10/16 (62.5%) | "
        "Max Off-Policy 2 | Truncation 12.5%\n"
    )
    learner, orchestrator = rows_of(text, tmp_path)
    assert learner.step == orchestrator.step == 1
    assert learner.values["console/Mismatch KL"] == 0.0021
    assert learner.values["console/Throughput"] == 12345
    assert orchestrator.values["console/Truncation"] == 0.125
    run = open_run(tmp_path / "train.log")
    (step,) = run.steps
    assert run.manifest.framework == "prime-rl"
    assert scalar(step.values["reward/mean"]) == 0.5
    assert scalar(step.values["length/truncated_rate"]) == 0.125


def test_nemo_rl_bullets(tmp_path: Path) -> None:
    text = "".join(
        f"========================= Step {step}/500 =========================\n"
        "▶ Preparing batch...\n\n📊 Training Results:\n  • Loss: 0.0123\n"
        f"  • Generation KL Error: 0.001\n  • Avg Reward: 0.{step}\n"
        "  • Mean Generation Length: 512.5000\n\n⏱️  Timing:\n  • Total step time: 60.0s\n"
        for step in (1, 2)
    )
    run = open_run(_written(text, tmp_path))
    steps = list(run.steps)
    assert run.manifest.framework == "nemo-rl"
    assert [(each.step, scalar(each.values["reward/mean"])) for each in steps] == [
        (1, 0.1),
        (2, 0.2),
    ]


def _written(text: str, directory: Path) -> Path:
    path = directory / "job.log"
    path.write_text(text, encoding="utf-8")
    return path


def test_tables_of_tinker_and_areal(tmp_path: Path) -> None:
    text = (
        "            Step 3            \n"
        "┏━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┓\n"
        "┃ Metric                ┃ Value    ┃\n"
        "┡━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━┩\n"
        "│ env/all/reward/total  │ 0.400000 │\n"
        "│ optim/kl_sample_train_v1 │ -0.001 │\n"
        "└───────────────────────┴──────────┘\n"
        "Epoch 1/2 Step 4/100 Train step 4/200 done.\n"
        "│ ppo_actor/task_reward/avg │ 5.0000e-01 │ ppo_actor/update/entropy/avg │ 0.2 │\n"
    )
    rows = rows_of(text, tmp_path)
    assert [row.step for row in rows] == [3, 4]
    assert rows[0].values == {"env/all/reward/total": 0.4, "optim/kl_sample_train_v1": -0.001}
    assert rows[1].values["ppo_actor/update/entropy/avg"] == 0.2


def test_the_panel_of_open_instruct(tmp_path: Path) -> None:
    panel = (
        "╭────────────────────────── Metrics ──────────────────────────╮\n"
        "│ training_step: {step}                                        │\n"
        "│ objective/kl2_avg: 0.01 | policy/clipfrac_avg: 0.002         │\n"
        "│ scores: 0.{step}                                             │\n"
        "╰──────────────────────────────────────────────────────────────╯\n"
    )
    text = "".join(panel.format(step=step) for step in (1, 2))
    rows = rows_of(text, tmp_path, RowKeys(step=("training_step",)))
    assert [(row.step, row.values["scores"]) for row in rows] == [(1, 0.1), (2, 0.2)]


def test_lines_of_custom_scripts(tmp_path: Path) -> None:
    text = (
        "Epoch:[1/2](974/975), Reward: -1.80, KL_ref: -0.02, Actor Loss: 0.0003, "
        "Avg Response Len: 205.12, Learning Rate: 0.00000030\n"
        "Epoch:[2/2](1/975), Reward: -1.70, KL_ref: -0.02, Actor Loss: 0.0002, "
        "Avg Response Len: 201.50, Learning Rate: 0.00000029\n"
    )
    run = open_run(_written(text, tmp_path))
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
    ],
)
def test_labels_and_assignments(line: str, tmp_path: Path) -> None:
    (row,) = rows_of(f"{line}\n", tmp_path)
    assert row.step == 12
    assert (row.values["line/loss"], row.values["line/reward"]) == (0.5, 0.25)
    assert row.values["line/acc"] == 0.4


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
    steps = list(open_run(_written(text, tmp_path)).steps)
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
    run = open_run(_written(text, tmp_path))
    steps = list(run.steps)
    assert run.manifest.framework == "trl"
    assert [each.step for each in steps] == [1, 2, 3]
    assert all(scalar(each.values["reward/mean"]) == 0.25 for each in steps)
    assert all("accuracy/train" not in each.values for each in steps)


CONFIG = """\
(TaskRunner pid=9) {'actor_rollout_ref': {'actor': {'clip_ratio_high': 0.28,
(TaskRunner pid=9)                                  'clip_ratio_low': 0.2,
(TaskRunner pid=9)                                  'loss_agg_mode': 'token-mean',
(TaskRunner pid=9)                                  'policy_loss': {'loss_mode': 'gspo'},
(TaskRunner pid=9)                                  'ppo_mini_batch_size': 32,
(TaskRunner pid=9)                                  'use_kl_loss': False},
(TaskRunner pid=9)                        'rollout': {'n': 8, 'temperature': 1.0}},
(TaskRunner pid=9)  'data': {'max_response_length': 4096, 'train_batch_size': 128,
(TaskRunner pid=9)           'train_files': ['a.parquet', 'b {odd}.parquet']},
(TaskRunner pid=9)  'trainer': {'logger': ['console', 'wandb'], 'project_name': 'x'}}
"""


def test_settings_printed_by_verl_are_config_and_not_a_row(tmp_path: Path) -> None:
    found = settings_of(CONFIG, tmp_path)
    assert found["actor_rollout_ref.actor.clip_ratio_high"] == 0.28
    assert found["actor_rollout_ref.actor.use_kl_loss"] is False
    assert found["actor_rollout_ref.rollout.n"] == 8
    text = CONFIG + "".join(f"{VERL.format(step=step, reward=0.5)}\n" for step in (1, 2))
    run = open_run(_written(text, tmp_path))
    assert len(list(run.steps)) == 2
    knobs = run.manifest.knobs
    assert (knobs["loss"], knobs["clip_high"], knobs["group_size"]) == ("gspo", 0.28, 8)
    assert (knobs["updates_per_batch"], knobs["max_length"]) == (4, 4096)


def test_arguments_printed_as_a_flat_dict_are_not_a_row(tmp_path: Path) -> None:
    text = (
        "{'learning_rate': 1e-06, 'loss_type': 'grpo', 'num_generations': 8, 'bf16': True, "
        "'output_dir': '/tmp/out', 'beta': 0.0}\n"
    )
    assert rows_of(text, tmp_path) == []


def test_printed_sampling_parameters_are_not_a_row(tmp_path: Path) -> None:
    """All that a job printed that died before its first step."""
    said = "(WorkerDict pid=9) kwargs: {'n': 1, 'logprobs': 1, 'max_tokens': 64, 'top_k': -1}\n"
    changed = "new token ids: {'eos_token_id': 9, 'bos_token_id': None, 'pad_token_id': 9}\n"
    assert rows_of((said + changed) * 30, tmp_path) == []
    assert len(rows_of((said + "step:1 - actor/entropy:0.3 - actor/lr:0.1\n") * 3, tmp_path)) == 3


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


def test_json_objects_behind_a_time_and_a_level(tmp_path: Path) -> None:
    text = "".join(
        f'INFO 10:00 metrics: {{"step": {step}, "reward_mean": 0.5, "loss": 0.25, "ok": true, '
        f'"note": "x", "lr": null}}\n'
        for step in range(1, 4)
    )
    text += 'INFO request {"step": 9, "url": "/v1/completions"}\nINFO {"step": 9, "broken"\n'
    assert seen(rows_of(text, tmp_path)) == [
        (step, {"reward_mean": 0.5, "loss": 0.25, "ok": 1.0}) for step in range(1, 4)
    ]


@pytest.mark.parametrize("heading", ["Iteration {}", "=== Step {}/100 ===", "--- Update: {} ---"])
def test_lists_below_a_heading(heading: str, tmp_path: Path) -> None:
    text = "".join(
        f"{heading.format(step)}\n  Mean reward: 0.5\n  Policy loss:   0.25\n  Clipped: 12.5 %\n"
        f"saved a checkpoint\n  Unrelated: 3\n"
        for step in range(1, 4)
    )
    assert seen(rows_of(text, tmp_path)) == [
        (step, {"line/mean_reward": 0.5, "line/policy_loss": 0.25, "line/clipped": 0.125})
        for step in range(1, 4)
    ]


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


def test_settings_that_continue_after_another_process_printed(tmp_path: Path) -> None:
    text = (
        "{'actor_rollout_ref': {'rollout': {'n': 1,\n"
        "                                   'name': 'vllm'}},\n"
        "WARNING: waiting for the register center\n"
        " 'env': {'env_name': 'search', 'seed_mode': 'fixed', 'mode': 'text',\n"
        "         'rollout': {'n': 4}, 'kind': 'tool', 'server': 'local', 'max_steps': 3,\n"
        "         'search_url': 'http://127.0.0.1:8000/retrieve', 'resources': 'shared'},\n"
        " 'trainer': {'logger': 'console', 'project_name': 'a', 'experiment_name': 'b',\n"
        "             'total_training_steps': 300}}\n"
    )
    config = settings_of(text, tmp_path)
    assert config["env.rollout.n"] == 4
    assert "rollout.n" not in config


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


XTUNER = """\
[XTuner][RANK 0][2025-12-26 18:30:27][INFO][RLTrainer] Rollout {step} data statistics:
  - rewards/mean        : {reward}
  - rewards/max         : 1
  - response_len/mean   : 18985.8778
[XTuner][RANK 0][2025-12-26 18:35:55][INFO][TrainingWorker] Rollout {step}: avg entropy: 0.7321
 rollout mismatch metrics:
{{
    "mismatch/mismatch_kl": 0.0005,
    "mismatch/mismatch_k3_kl": 0.0006
}}
 rollout importance sampling metrics:
{{
    "mismatch/rollout_is_mean": 0.9,
    "mismatch/rollout_is_max": 5.5
}}
[XTuner][INFO][TrainingWorker] Rollout {step} Step 0: total_loss=-0.2, max_ratio=1.0, grad_norm=0.1
[XTuner][INFO][TrainingWorker] Rollout {step} Step 12: total_loss=-0.4, max_ratio=2.0, grad_norm=0.3
[XTuner][RANK 0][2025-12-26 18:53:08][INFO][RLTrainer] Rollout {step} training finished and timing:
  - generation               : 3259.97s
"""
"""XTuner counts rollouts, and in each of them the responses behind each update."""


def test_lists_behind_a_time_and_the_updates_of_a_rollout(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(XTUNER.format(step=step, reward=0.5 + step / 10) for step in (1, 2, 3)))
    records = list(open_run(path).steps)
    assert [record.step for record in records] == [1, 2, 3]
    names = {name: scalar(reading) for name, reading in records[1].values.items()}
    assert names["reward/mean"] == 0.7
    assert names["length/mean"] == 18985.8778
    assert names["optimizer/grad_norm"] == pytest.approx(0.2), "the mean of the updates"
    assert names["correction/weight_mean"] == 0.9
    assert names["mismatch/kl_k1"] == 0.0005
    assert names["entropy/mean"] == 0.7321


def test_a_line_of_times_that_is_no_heading_takes_no_time(tmp_path: Path) -> None:
    """A pattern with nested repetitions tries each way to divide such a line, for hours."""
    line = "2025-12-26 18:30:27 12:00:01,123 " * 6 + "1.5 2.5 3.5, 4/5 waiting for the engine:"
    assert rows_of(f"{line}\n" * 3 + f"{line[:79]}:\n", tmp_path) == []


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
    run = open_run(_written(text, tmp_path))
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
    path = _written("* Rent: 1200\n* Utilities: 150\nreward is 0.9\n" * 20, tmp_path)
    with pytest.raises(
        RunError, match="no line of the text has a step and a known metric"
    ) as error:
        list(open_run(path).steps)
    assert "Rent" not in str(error.value)
