"""The framework and the method that a launch command or a config names."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.frameworks.complete_config import framework_of_config
from grpodoctor.frameworks.launch_command import (
    DISTILLATION,
    PREFERENCES,
    REWARD_MODEL,
    RL,
    SFT,
)
from grpodoctor.frameworks.launch_script import launch_of_script
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.run_config import flattened, read_file
from grpodoctor.frameworks.training_method import other_method
from grpodoctor.preflight.config_lint import check_config
from grpodoctor.rules.lint import config_rules
from grpodoctor.vocabulary.knobs import Setting

RATE = "--learning_rate 1e-4"
COMMANDS = [
    (f"NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo {RATE} --beta 0.04", "ms-swift", ""),
    (f"swift rlhf --rlhf_type dpo {RATE} --beta 0.1", "ms-swift", PREFERENCES),
    (f"swift rlhf --rlhf_type gkd {RATE} --beta 0.1", "ms-swift", DISTILLATION),
    (f"megatron rlhf --rlhf_type rm {RATE} --beta 0.1", "ms-swift", REWARD_MODEL),
    (f"swift sft {RATE}", "ms-swift", SFT),
    (f"trl grpo {RATE} --num_generations 8", "trl", ""),
    (f"accelerate launch --config_file x.yaml src/open_r1/grpo.py {RATE}", "trl", ""),
    (f"trl dpo {RATE} --beta 0.1", "trl", PREFERENCES),
    ("python3 -m verl.trainer.main_ppo trainer.total_epochs=3", "verl", ""),
    ("torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer optim.lr=1e-4", "verl", SFT),
    ("ray job submit --address=x -- python3 -m openrlhf.cli.train_ppo_ray --x 1", "openrlhf", ""),
    ("deepspeed --module openrlhf.cli.train_dpo --learning_rate 5e-7", "openrlhf", PREFERENCES),
    ("deepspeed --module openrlhf.cli.train_kd --learning_rate 5e-7", "openrlhf", DISTILLATION),
    ("uv run rl @ configs/math.toml --max-steps 20", "prime-rl", ""),
    ("uv run sft @configs/sft.toml --max-steps 20", "prime-rl", SFT),
    ("uv run examples/run_grpo.py grpo.num_prompts_per_step=32", "nemo-rl", ""),
    ("uv run --isolated -m skyrl_train.entrypoints.main_base trainer.epochs=2", "skyrl", ""),
    ("python -m skyrl.train.main_sft trainer.epochs=2", "skyrl", SFT),
    ("python -m tinker_cookbook.recipes.math_rl.train learning_rate=1e-4", "tinker-cookbook", ""),
    ("python -m tinker_cookbook.recipes.preference.dpo.train learning_rate=1e-5",
     "tinker-cookbook", PREFERENCES),
    ("python open_instruct/grpo_fast.py --beta 0.01", "open-instruct", ""),
    ("accelerate launch open_instruct/finetune.py --learning_rate 5e-6", "open-instruct", SFT),
    ("python examples/start_rlvr_pipeline.py --config_name x", "roll", ""),
    ("python3 train.py --hf-checkpoint m --n-samples-per-prompt 8", "slime", ""),
    ("python3 train_async.py --hf-checkpoint m --n-samples-per-prompt 8 --loss-type sft_loss",
     "slime", SFT),
]  # fmt: skip


@pytest.mark.parametrize(("command", "framework", "method"), COMMANDS)
def test_a_command_names_its_framework_and_method(
    command: str, framework: str, method: str, tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/bash\nset -e\nmkdir -p out\n{command} \\\n  --seed 1 | tee log\n")
    settings = dict(flattened(read_file(script)))
    assert framework_of_config(settings).name == framework
    assert other_method(framework, settings) == method
    checked = check_config(script, None, config_rules())
    assert checked.framework == framework
    reasons = [each.reason for each in checked.skipped if each.code == "CFG"]
    assert len(reasons) == bool(method)
    assert all(method in reason for reason in reasons)
    if method:
        assert not checked.findings


def test_a_command_in_an_array_or_a_variable_is_followed() -> None:
    launch = launch_of_script('BIN="swift rlhf"\nCMD=(python -m verl.trainer.main_ppo)\n$BIN --a 1')
    assert launch is not None
    assert launch.framework == "ms-swift"
    launch = launch_of_script('CMD=(-m verl.trainer.main_ppo)\npython "${CMD[@]}" --a 1')
    assert launch is not None
    assert (launch.framework, launch.method) == ("verl", RL)


@pytest.mark.parametrize(
    "script",
    [
        "echo swift rlhf-like text",
        "python my_train.py --beta 0.1",
        "tail -f trl.log\npython grpo.py --learning_rate 1e-6",
        "cat <<EOF\ntrl sft --x 1\nEOF",
    ],
)
def test_a_script_of_one_s_own_names_no_framework(script: str) -> None:
    assert launch_of_script(script) is None


def test_a_common_program_name_decides_only_between_equals(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("python train.py trainer.algorithm.eps_clip_high=0.28 --eps_clip_low 0.2\n")
    assert framework_of_config(dict(flattened(read_file(script)))).name == "skyrl"


def test_flags_of_earlier_versions_of_openrlhf_are_read() -> None:
    table = configurable_framework_named("openrlhf").knobs
    former: dict[str, Setting] = {"num_episodes": 3, "n_samples_per_prompt": 4, "init_kl_coef": 0.1}
    assert table.read(former)["group_size"] == 4
    assert table.read_facts(former)["epochs"] == 3
    assert table.read_facts({**former, "train.num_episodes": 2})["epochs"] == 2


CONFIGS: list[tuple[str, dict[str, Setting], str]] = [
    ("trl", {"loss_type": "sigmoid", "beta": 0.1}, PREFERENCES),
    ("trl", {"precompute_ref_log_probs": True, "beta": 0.1}, PREFERENCES),
    ("trl", {"dataset_text_field": "text", "max_length": 1024}, SFT),
    ("trl", {"teacher_model_name_or_path": "m", "num_generations": 1}, DISTILLATION),
    ("trl", {"rl": "dpo", "base_model": "m"}, PREFERENCES),
    ("trl", {"loss_type": "dapo", "num_generations": 8, "packing": True}, ""),
    ("trl", {"beta": 0.1, "packing": False}, ""),
    ("nemo-rl", {"dpo.max_num_steps": 10, "policy.optimizer.kwargs.lr": 1e-4}, PREFERENCES),
    ("nemo-rl", {"distillation.max_num_steps": 10}, DISTILLATION),
    ("nemo-rl", {"grpo.max_num_steps": 10, "sft.x": 1}, ""),
    ("verl", {"distillation.enabled": True}, DISTILLATION),
    ("verl", {"distillation.enabled": False, "algorithm.adv_estimator": "grpo"}, ""),
    ("slime", {"loss_type": "sft_loss"}, SFT),
    ("ms-swift", {"rlhf_type": "grpo", "loss_type": "grpo"}, ""),
]


@pytest.mark.parametrize(("framework", "config", "method"), CONFIGS)
def test_a_config_names_its_method(framework: str, config: dict[str, Setting], method: str) -> None:
    assert other_method(framework, config) == method


def test_the_learning_rate_of_dpo_is_not_that_of_rl(tmp_path: Path) -> None:
    """A usual rate of supervised fine-tuning, for which CFG050 warns in a run of GRPO."""
    found = {}
    for kind in ("grpo", "dpo"):
        script = tmp_path / f"{kind}.sh"
        script.write_text(
            f"swift rlhf --rlhf_type {kind} --tuner_type full --learning_rate 1e-4 --beta 0.1\n"
        )
        found[kind] = [each.code for each in check_config(script, None, config_rules()).findings]
    assert "CFG050" in found["grpo"]
    assert found["dpo"] == []


def test_a_rate_of_zero_is_a_fault_of_any_method(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("swift sft --learning_rate 0 --tuner_type full\n")
    assert [each.code for each in check_config(script, None, config_rules()).findings] == ["CFG051"]
