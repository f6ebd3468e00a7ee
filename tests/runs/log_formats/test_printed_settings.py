"""Settings in console text: they are the run's config, and no rows."""

from __future__ import annotations

from pathlib import Path
from pprint import pformat

import pytest

from grpodoctor.frameworks.complete_config import complete_config
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.knobs import Setting
from tests.runs.log_formats.console_text import VERL, rows_of, settings_of, written

PRINTED = pformat(
    {
        "actor_rollout_ref": {
            "actor": {"clip_mode": "token", "dtype": "bf16", "engine": "fsdp2", "kl_loss": "k3",
                      "loss_agg_mode": "token-mean", "optim": {"kind": "a", "name": "b"},
                      "strategy": "fsdp"},
            "rollout": {"dtype": "bf16", "mode": "async", "n": 4, "name": "vllm",
                        "val_kwargs": {"kind": "greedy", "n": 1}},
        },
        "reward": {
            "custom_reward_function": {"name": "compute_score", "path": "reward.py"},
            "manager": {"kind": "naive", "module": "verl.workers"},
            "reward_model": {"kind": "none", "path": "", "rollout": {"n": 1, "name": "???"}},
        },
    },
    width=60,
)  # fmt: skip
LINES = PRINTED.split("\n")
BREAK = next(number for number, line in enumerate(LINES) if "'optim'" in line) + 1
INTERRUPTED = "".join(
    f"(TaskRunner pid=1) {line}\n"
    for line in (*LINES[:BREAK], "WARNING: the register center is not ready", *LINES[BREAK:])
)


def test_the_rest_of_an_interrupted_dict_keeps_its_outer_keys(tmp_path: Path) -> None:
    config = settings_of(INTERRUPTED, tmp_path)
    assert config["actor_rollout_ref.rollout.n"] == 4
    assert config["actor_rollout_ref.rollout.val_kwargs.n"] == 1
    assert config["reward.reward_model.rollout.n"] == 1


def test_an_entry_in_an_unknown_column_is_left_out(tmp_path: Path) -> None:
    moved = INTERRUPTED.replace(" 'rollout': {'dtype'", "     'rollout': {'dtype'")
    config = settings_of(moved, tmp_path)
    assert "actor_rollout_ref.rollout.n" not in config
    assert config["reward.reward_model.rollout.n"] == 1


@pytest.mark.parametrize(("count", "is_known"), [(80, False), (3, True)])
def test_a_default_is_uncertain_where_a_whole_config_lacks_its_section(
    count: int, is_known: bool
) -> None:
    """A short list of overrides leaves out what has its default; a printed config does not."""
    settings: dict[str, Setting] = {"algorithm.adv_estimator": "grpo"}
    settings |= {f"actor_rollout_ref.actor.option_{number}": 1 for number in range(count)}
    framework = configurable_framework_named("verl")
    knobs = framework.knobs.read(settings)
    known = complete_config("verl", settings, knobs)
    assert ("group_size" in known.defaults) is is_known
    assert "clip_high" in known.defaults


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
    run = open_run(written(text, tmp_path))
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


ARGUMENTS = {
    "advantage_estimator": "grpo", "critic_lr": "None", "debug": "False", "eps_clip": "0.2",
    "lr": "1e-06", "n_samples_per_prompt": "8", "rollout_max_response_len": "8192",
    "use_tis": "True",
}  # fmt: skip


def argument_lines(arguments: dict[str, str]) -> str:
    """The arguments as Megatron-LM prints them, which slime and miles keep."""
    rows = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    title = "------------------------ arguments ------------------------"
    return "".join(f"(MegatronTrainRayActor pid=7) {row}\n" for row in (title, *rows))


def test_printed_arguments_are_the_config(tmp_path: Path) -> None:
    config = settings_of(argument_lines(ARGUMENTS), tmp_path)
    assert config == {
        "advantage_estimator": "grpo", "critic_lr": None, "debug": False, "eps_clip": 0.2,
        "lr": 1e-6, "n_samples_per_prompt": 8, "rollout_max_response_len": 8192,
        "use_tis": True,
    }  # fmt: skip


def test_the_first_process_that_prints_an_argument_decides(tmp_path: Path) -> None:
    text = argument_lines(ARGUMENTS) + argument_lines({"lr": "3e-06"})
    assert settings_of(text, tmp_path)["lr"] == 1e-6


@pytest.mark.parametrize(
    "line", ["loading shards ... 3", "loading ............ done", f"  lr {'.' * 40} 1e-06"]
)
def test_other_dots_are_no_argument(line: str, tmp_path: Path) -> None:
    assert settings_of(f"{line}\n", tmp_path) == {}


VLLM = (
    "INFO 05-06 07:59:41 llm_engine.py:234] Initializing a V1 LLM engine (v0.11.0) with config: "
    "model='m', dtype=torch.bfloat16, quantization={}, enforce_eager=False, kv_cache_dtype=auto\n"
)
SGLANG = "(Engine pid=3) [12:00] server_args=ServerArgs(model_path='m', quantization={}, tp=1\n"


@pytest.mark.parametrize("line", [VLLM, SGLANG])
@pytest.mark.parametrize("value", ["fp8", "'compressed-tensors'", "None"])
def test_what_an_engine_prints_about_its_weights_is_a_setting(
    line: str, value: str, tmp_path: Path
) -> None:
    config = settings_of(line.format(value), tmp_path)
    assert config["printed_engine.quantization"] == value.strip("'")
    assert not settings_of("we use quantization=fp8 for the sampler\n", tmp_path)
