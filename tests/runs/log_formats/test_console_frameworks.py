"""Console text as frameworks print it: tables, bullets, panels, lists and JSON objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar
from tests.runs.log_formats.console_text import rows_of, seen, written


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
    run = open_run(written(text, tmp_path))
    steps = list(run.steps)
    assert run.manifest.framework == "nemo-rl"
    assert [(each.step, scalar(each.values["reward/mean"])) for each in steps] == [
        (1, 0.1),
        (2, 0.2),
    ]


def test_nemo_rl_validation(tmp_path: Path) -> None:
    """Its results are printed before those of the training step, under the same names."""
    text = "".join(
        f"========================= Step {step}/500 =========================\n"
        + f"📊 Validation Results:\n    • Accuracy: 0.3{step}\n"
        "    • Average response length: 722.7 tokens\n    • Samples processed: 256\n\n"
        "  ⏱️  Validation Timing:\n    • Total validation time: 30.49s\n"
        * (step % 2)
        + f"📊 Training Results:\n  • Loss: 0.01\n  • Generation KL Error: 0.001\n"
        f"  • Avg Reward: 0.{step}\n  • Accuracy: 0.9\n\n"
        for step in (1, 2, 3)
    )
    run = open_run(written(text, tmp_path))
    found = [(step.step, scalar(step.values.get("accuracy/heldout"))) for step in run.steps]
    assert run.manifest.framework == "nemo-rl"
    assert found == [(1, 0.31), (2, None), (3, 0.33)]


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


def test_the_families_of_a_wrapped_panel(tmp_path: Path) -> None:
    """A number that two decimals cannot show is printed as 0.00, a zero as 0.00e+00."""
    panel = (
        "╭──────────────────────────── Metrics ────────────────────────────╮\n"
        "│  optim   grad_norm: 0.31                                        │\n"
        "│  other   episode: 512 | training_step: {step} | lr: 1.00e-06 | scores:   │\n"
        "│          0.{step} | real_batch_size_ratio: 0.86                        │\n"
        "│  policy  clipfrac_avg: 0.00 | entropy_avg: 0.43                 │\n"
        "│  val     rho_drop_frac: 0.00e+00                                │\n"
        "╰─────────────────────────────────────────────────────────────────╯\n"
    )
    text = "".join(panel.format(step=step) for step in (1, 2))
    rows = rows_of(text, tmp_path, RowKeys(step=("training_step",)))
    assert [row.step for row in rows] == [1, 2]
    assert rows[1].values == {
        "optim/grad_norm": 0.31,
        "episode": 512,
        "lr": 1e-6,
        "scores": 0.2,
        "real_batch_size_ratio": 0.86,
        "policy/entropy_avg": 0.43,
        "val/rho_drop_frac": 0.0,
    }


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


def test_a_panel_with_two_columns_for_each_step(tmp_path: Path) -> None:
    panel = (
        "╭──────────────────────── Step {step} ────────────────────────╮\n"
        "│ reward/mean         0.5{step}                               │\n"
        "│ policy entropy note a                                       │\n"
        "│ response_length     498.5                                   │\n"
        "╰─────────────────────────────────────────────────────────────╯\n"
    )
    path = tmp_path / "train.log"
    path.write_text("".join(panel.format(step=step) for step in range(30)))
    steps = list(open_run(path).steps)
    assert [step.step for step in steps] == list(range(30))
    assert scalar(steps[7].values["reward/mean"]) == 0.57
    assert scalar(steps[7].values["length/mean"]) == 498.5
