"""Settings from the shell script that starts a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.launch_script import settings_of_script
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.run_config import read_file
from grpodoctor.preflight.config_lint import check_config
from grpodoctor.rules.catalogue import rule_of

VERL = """#!/usr/bin/env bash
set -xeuo pipefail
# one prompt: 'an open quote
LR=${LR:-1e-6}
n_resp=8
export PROMPTS=$((n_resp * (4 + 12)))   # 128
FILES="['$HOME/a.parquet', 'b.parquet']"

python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=${PROMPTS} \\
    data.train_files="$FILES" \\
    actor_rollout_ref.actor.optim.lr=$LR \\
    actor_rollout_ref.rollout.n=$n_resp \\
    +actor_rollout_ref.rollout.top_p=0.95 \\
    trainer.nnodes=$(wc -l < hosts) \\
    actor_rollout_ref.actor.use_kl_loss=False $@ 2>&1 | tee run.log
"""
SLIME = """
CKPT_ARGS=(
   --hf-checkpoint /models/Qwen3-4B
   # --load /nowhere
)
GRPO_ARGS=(--advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28)
GRPO_ARGS+=(--use-kl-loss)
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \\
   --n-samples-per-prompt 8 ${CKPT_ARGS[@]} "${GRPO_ARGS[@]}"
"""


def test_overrides_of_verl_are_read() -> None:
    settings = settings_of_script(VERL)
    assert settings["data.train_batch_size"] == 128
    assert settings["actor_rollout_ref.actor.optim.lr"] == 1e-6
    assert settings["actor_rollout_ref.rollout.n"] == 8
    assert settings["actor_rollout_ref.rollout.top_p"] == 0.95
    assert settings["actor_rollout_ref.actor.use_kl_loss"] is False
    assert settings["data.train_files"] == "['$HOME/a.parquet', 'b.parquet']"
    assert settings["trainer.nnodes"] == "$COMMAND"


def test_options_in_arrays_are_read_where_a_command_takes_them() -> None:
    settings = settings_of_script(SLIME)
    assert settings["eps_clip_high"] == 0.28
    assert settings["n_samples_per_prompt"] == 8
    assert settings["use_kl_loss"] is True
    assert settings["hf_checkpoint"] == "/models/Qwen3-4B"
    assert "load" not in settings
    assert settings_of_script("ARGS=(--eps-clip 0.2)\n") == {}  # no command takes it


@pytest.mark.parametrize(
    ("script", "settings"),
    [
        ("swift rlhf --dataset a/b#500 --beta 0.04", {"dataset": "a/b#500", "beta": 0.04}),
        ("run --low -0.5 --names a b --on", {"low": -0.5, "names": "a b", "on": True}),
        ("run --a=1 --b 2 > log.txt 2>&1 &", {"a": 1, "b": 2}),
        ("A=1 B=2 run --a $A", {"a": "$A"}),  # the environment of the command alone
        ("OPTIONS='--a 1 --b-c 2'\nrun $OPTIONS", {"a": 1, "b_c": 2}),
        ("cat <<EOF\nrun --a 1\nEOF\nrun --a 2", {"a": 2}),
        ("run --a 1 \\\n# --b 2 \\\n  --c 3", {"a": 1}),  # as the shell does
        ("if x; then\n A=1\nelse\n A=2\nfi\nrun --a $A", {"a": "$A"}),
        ("A=1\nif x; then A=2; fi\nrun --a $A", {"a": "$A"}),
        ("for A in 1 2; do run --a $A; done", {"a": "$A"}),
        ("run --a 1\nrun --a 2", {"a": "1 | 2"}),
        ("A=$B\nB=1\nrun --a $A --b ${B}x --c ${C:-$B}", {"a": "$B", "b": "1x", "c": 1}),
        ("run --a $((2 ** 9)) --b $((7 / 2 - 1)) --c $((x))",
         {"a": "$((2**9))", "b": 2, "c": "$((x))"}),
        ("run 'a.b=it''s' c.d='x # y' # e.f=1", {"a.b": "its", "c.d": "x # y"}),
    ],
)  # fmt: skip
def test_the_script_is_read_as_the_shell_would(script: str, settings: dict[str, object]) -> None:
    assert settings_of_script(script) == settings


def test_a_value_that_only_a_run_decides_is_unknown_and_not_the_default(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
        "data.train_batch_size=64 actor_rollout_ref.rollout.n=$N\n"
    )
    rules = [rule_of("CFG006")]
    assert not check_config(script, "verl", rules).findings
    script.write_text(script.read_text().replace("actor_rollout_ref.rollout.n=$N", ""))
    (finding,) = check_config(script, None, rules).findings  # verl's default is 1
    assert finding.severity == "critical"


def test_a_script_is_a_config_file(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SLIME)
    knobs = configurable_framework_named("slime").knobs.read(dict(read_file(script)))
    assert knobs["clip_high"] == 0.28
    script.write_text("echo hello\n")
    with pytest.raises(ConfigError, match="no command in it has options"):
        read_file(script)


@given(st.text(alphabet="ab1=-$(){}[]@\"'#\\\n\t ;|&<>+.:x"))
def test_any_text_can_be_read(text: str) -> None:
    assert all(isinstance(key, str) for key in settings_of_script(text))


@pytest.mark.parametrize(
    "line", ["A=$A$A\n", 'A=(a "${A[@]}" "${A[@]}")\n', "$(" * 9, "$((" * 9, "'\n", "run --a '\n"]
)
def test_a_hostile_script_stays_small(line: str) -> None:
    settings = settings_of_script(line * 2000 + "run --a $A ${A[@]}\n")
    assert sum(len(str(value)) for value in settings.values()) < 100_000
