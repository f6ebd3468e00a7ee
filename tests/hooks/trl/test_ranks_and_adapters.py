"""Two processes under accelerate, and an adapter of peft."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import grpodoctor
from grpodoctor.vocabulary.values import scalar

pytestmark = pytest.mark.filterwarnings("ignore")

SCRIPT = dedent("""
    import sys
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    import grpodoctor

    model, output, observed = sys.argv[1:]

    def share_of_sevens(completions, **_):
        return [text.count("7") / 8 for text in completions]

    trainer = GRPOTrainer(
        model=model, reward_funcs=share_of_sevens,
        args=GRPOConfig(
            output, max_steps=4, per_device_train_batch_size=8, num_generations=4,
            gradient_accumulation_steps=2, num_iterations=2,
            max_completion_length=8, learning_rate=1e-2, lr_scheduler_type="constant", use_cpu=True,
            bf16=False, gradient_checkpointing=False, logging_steps=1, disable_tqdm=True,
            save_strategy="no", report_to="none", ddp_backend="gloo",
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"{n}+{n}=" for n in range(10, 42)]}),
    )
    if observed == "yes":
        grpodoctor.attach(trainer)
    trainer.train()
    if trainer.accelerator.is_main_process:
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(output + "/trained")
        trainer.state.save_to_json(output + "/state.json")
    """)


@pytest.mark.slow
def test_two_processes_record_one_run(model_folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file
    from transformers import TrainerState

    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CI": "1"}
    saved = {}
    for observed in ("no", "yes"):
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
             "--master-port", "29541", str(script), str(model_folder), str(tmp_path / observed),
             observed],
            check=True, timeout=280, env=environment,
        )  # fmt: skip
        saved[observed] = load_file(tmp_path / observed / "trained" / "model.safetensors")
    assert all(np.array_equal(saved["no"][name], saved["yes"][name]) for name in saved["no"])
    run = grpodoctor.open_run(tmp_path / "yes" / "grpodoctor")
    assert [record.step for record in run.records] == [2, 4]
    state = TrainerState.load_from_json(str(tmp_path / "yes" / "state.json"))
    rows = [row for row in state.log_history if "reward" in row]
    for record, row in zip(run.records, rows, strict=True):
        assert scalar(record.values["reward/mean"]) == pytest.approx(row["reward"])
        assert scalar(record.values["length/mean"]) == pytest.approx(row["completions/mean_length"])
        zero_rate = scalar(record.values["groups/zero_variance_rate"])
        assert zero_rate == pytest.approx(row["frac_reward_zero_std"])
        assert scalar(record.values["instruments/failed_parts"]) == 0


def test_an_adapter_is_recorded(make_trainer: Callable[..., Any]) -> None:
    import torch
    from peft import LoraConfig

    def adapted(name: str) -> Any:
        torch.manual_seed(0)  # peft draws the adapter before the trainer sets its seed
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        return make_trainer(name, peft_config=config, beta=0.125, max_steps=3)

    bare = adapted("bare")
    bare.train()
    observed = adapted("observed")
    attachment = grpodoctor.attach(observed)
    observed.train()
    pairs = zip(bare.model.parameters(), observed.model.parameters(), strict=True)
    assert all(np.array_equal(a.detach().numpy(), b.detach().numpy()) for a, b in pairs)
    rows = [row for row in observed.state.log_history if "reward" in row]
    records = grpodoctor.open_run(attachment.run_dir).records
    for record, row in zip(records, rows, strict=True):
        assert scalar(record.values["entropy/mean"]) == pytest.approx(row["entropy"], rel=1e-4)
        assert scalar(record.values["kl/reference/k3"]) == pytest.approx(row["kl"], abs=1e-6)
        assert scalar(record.values["instruments/failed_parts"]) == 0
