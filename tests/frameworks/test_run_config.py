"""The settings of a run, from the files that trainers and loggers write."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.registry import framework_named, logging_frameworks
from grpodoctor.frameworks.run_config import flattened, read_file, read_settings
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.vocabulary.knobs import Setting

VERL = """
actor_rollout_ref:
  actor:
    clip_ratio: 0.2
    clip_ratio_low: 0.2
    clip_ratio_high: 0.28
    ppo_mini_batch_size: 64
    use_kl_loss: false
    kl_loss_coef: 0.001
    entropy_coeff: 0
    loss_agg_mode: token-mean
    policy_loss: {loss_mode: vanilla}
    optim: {lr: 1e-6}
  rollout: {n: 16, temperature: 1.0}
algorithm: {adv_estimator: grpo, filter_groups: {enable: true}}
data: {train_batch_size: 512, max_response_length: 20480}
trainer: {logger: [console, wandb], nnodes: null}
"""

EXPECTED: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("trl",
     {"num_generations": 8, "beta": 0.04, "epsilon": 0.2, "epsilon_high": 0.28,
      "loss_type": "dapo", "scale_rewards": "group", "num_iterations": 2,
      "steps_per_generation": 8, "gradient_accumulation_steps": 4, "temperature": 0.9,
      "max_completion_length": 2048, "learning_rate": 1e-6,
      "mask_truncated_completions": True},
     {"group_size": 8, "kl_coefficient": 0.04, "clip_low": 0.2, "clip_high": 0.28,
      "loss": "ppo_clip", "aggregation": "token-mean", "advantage": "group",
      "updates_per_batch": 4, "temperature": 0.9, "max_length": 2048, "learning_rate": 1e-6,
      "overlong": "mask"}),
    ("openrlhf",
     {"actor": {"policy_loss_type": "gspo", "eps_clip": 0.2, "adam": {"lr": 5e-7}},
      "algo": {"kl": {"init_coef": 0.001}},
      "rollout": {"n_samples_per_prompt": 8, "max_new_tokens": 4096, "batch_size": 128}},
     {"loss": "gspo", "clip_low": 0.2, "clip_high": 0.2, "learning_rate": 5e-7,
      "kl_coefficient": 0.001, "group_size": 8, "max_length": 4096, "prompts_per_batch": 128}),
    ("slime",
     {"advantage_estimator": "gspo", "eps_clip": 0.0003, "eps_clip_high": 0.0004,
      "n_samples_per_prompt": 8, "rollout_batch_size": 32, "num_steps_per_rollout": 1,
      "use_tis": True, "tis_clip": 2.0, "lr": 1e-6, "rollout_max_response_len": 8192,
      "rollout_temperature": 0.8},
     {"loss": "gspo", "clip_low": 0.0003, "clip_high": 0.0004, "group_size": 8,
      "prompts_per_batch": 32, "updates_per_batch": 1, "correction": "tis_token",
      "correction_cap": 2.0, "learning_rate": 1e-6, "max_length": 8192, "temperature": 0.8}),
    ("nemo-rl",
     {"loss_fn": {"ratio_clip_min": 0.2, "ratio_clip_max": 0.28, "token_level_loss": True,
                  "reference_policy_kl_penalty": 0.01},
      "grpo": {"num_generations_per_prompt": 16, "num_prompts_per_step": 32},
      "policy": {"generation": {"max_new_tokens": 4096, "temperature": 1.0}}},
     {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token-mean", "kl_coefficient": 0.01,
      "group_size": 16, "prompts_per_batch": 32, "max_length": 4096, "temperature": 1.0}),
    ("open-instruct",
     {"loss_fn": "cispo", "clip_lower": 0.2, "clip_higher": 0.272, "beta": 0.0,
      "num_samples_per_prompt_rollout": 16, "num_unique_prompts_rollout": 8,
      "num_mini_batches": 4, "response_length": 32768, "temperature": 1.0},
     {"loss": "cispo", "clip_low": 0.2, "clip_high": 0.272, "kl_coefficient": 0.0,
      "group_size": 16, "prompts_per_batch": 8, "updates_per_batch": 4, "max_length": 32768,
      "temperature": 1.0}),
    ("prime-rl",
     {"orchestrator": {"group_size": 16, "train": {"sampling": {"temperature": 0.7,
                                                                "max_completion_tokens": 1024}}},
      "trainer": {"optim": {"lr": 3e-6}}},
     {"group_size": 16, "temperature": 0.7, "max_length": 1024, "learning_rate": 3e-6}),
    ("skyrl",
     {"trainer": {"algorithm": {"policy_loss_type": "gspo", "eps_clip_low": 0.2,
                                "eps_clip_high": 0.28, "loss_reduction": "token_mean"},
                  "train_batch_size": 256, "policy_mini_batch_size": 64,
                  "policy": {"optimizer_config": {"lr": 1e-6}}},
      "generator": {"n_samples_per_prompt": 5,
                    "sampling_params": {"max_generate_length": 1024}}},
     {"loss": "gspo", "clip_low": 0.2, "clip_high": 0.28, "aggregation": "token-mean",
      "prompts_per_batch": 256, "updates_per_batch": 4, "learning_rate": 1e-6, "group_size": 5,
      "max_length": 1024}),
    ("verl",  # Search-R1 repeats the prompts of a batch, but not those of a mini-batch
     {"actor_rollout_ref": {"rollout": {"n": 1, "n_agent": 5, "temperature": 1},
                            "actor": {"ppo_mini_batch_size": 256}},
      "algorithm": {"adv_estimator": "grpo"}, "data": {"train_batch_size": 512}},
     {"group_size": 5, "updates_per_batch": 10, "prompts_per_batch": 512}),
    ("verl",  # as its scripts for GRPO write it: without `n`, whose default is 1
     {"actor_rollout_ref": {"rollout": {"n_agent": 5, "temperature": 1}},
      "algorithm": {"adv_estimator": "grpo"}, "data": {"train_batch_size": 512}},
     {"group_size": 5, "prompts_per_batch": 512}),
    ("verl",  # verl-agent
     {"env": {"rollout": {"n": 8}}, "actor_rollout_ref": {"rollout": {"temperature": 0.4}},
      "algorithm": {"adv_estimator": "grpo"}},
     {"group_size": 8}),
    ("tinker-cookbook",
     {"learning_rate": 4e-5, "max_tokens": 4096, "group_size": 8, "groups_per_batch": 64},
     {"learning_rate": 4e-5, "max_length": 4096, "group_size": 8, "prompts_per_batch": 64,
      "updates_per_batch": 1, "kl_coefficient": 0.0, "temperature": 1.0}),
    ("ms-swift",
     {"num_generations": 8, "loss_type": "dr_grpo", "beta": 0.04, "num_iterations": 1,
      "dynamic_sample": True, "overlong_filter": True},
     {"group_size": 8, "aggregation": "constant", "kl_coefficient": 0.04,
      "updates_per_batch": 1, "dynamic_sampling": True, "overlong": "mask"}),
    ("areal",
     {"actor": {"eps_clip": 0.4, "kl_ctl": 0.0, "ppo_n_minibatches": 4,
                "optimizer": {"lr": 1e-6}},
      "gconfig": {"n_samples": 4, "max_new_tokens": 1024, "temperature": 1.0},
      "train_dataset": {"batch_size": 256}},
     {"clip_low": 0.4, "clip_high": 0.4, "kl_coefficient": 0.0, "updates_per_batch": 4,
      "learning_rate": 1e-6, "group_size": 4, "max_length": 1024, "temperature": 1.0,
      "prompts_per_batch": 256}),
    ("roll",
     {"rollout_batch_size": 64, "num_return_sequences_in_group": 8, "response_length": 4096,
      "prompt_length": 2048, "sequence_length": None, "ppo_epochs": 2, "use_kl_loss": True,
      "kl_loss_coef": 0.001, "adv_estimator": "grpo", "loss_agg_mode": "seq-mean-token-sum",
      "use_pg_clip_range": True, "pg_clip_high": 0.28, "pg_clip": 0.1, "max_len_mask": True,
      "train_infer_correction": {"is_weight": {"enabled": True, "upper_bound": 2.0}},
      "actor_train": {"training_args": {"learning_rate": 1e-6, "per_device_train_batch_size": 1,
                                        "gradient_accumulation_steps": 32},
                      "strategy_args": {"strategy_name": "megatron_train", "strategy_config": {
                          "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1}},
                      "device_mapping": "list(range(0,16))"},
      "actor_infer": {"generating_args": {"top_p": 0.99}}},
     {"loss": "ppo_clip", "clip_low": 0.2, "clip_high": 0.28, "group_size": 8,
      "kl_coefficient": 0.001, "aggregation": "sequence-mean-token-sum", "advantage": "group",
      "overlong": "mask", "prompts_per_batch": 64, "max_length": 4096, "learning_rate": 1e-6,
      "temperature": 0.95, "updates_per_batch": 4, "correction": "tis_token",
      "correction_cap": 2.0}),
    ("roll",
     {"rollout_batch_size": 1024, "sequence_length": 8192, "adv_estimator": "grpo", "pg_clip": 0.1,
      "whiten_advantages": True, "ratio_type": "segment",
      "reward_normalization": {"norm_mean_type": "group", "grouping": "traj_group_id"},
      "train_env_manager": {"num_env_groups": 128, "group_size": 8}},
     {"loss": None, "clip_low": 0.1, "clip_high": 0.1, "group_size": 8, "prompts_per_batch": 128,
      "advantage": "reinforce_plus_plus_baseline", "max_length": None, "kl_coefficient": None,
      "temperature": None, "updates_per_batch": None}),
    ("roll",
     {"actor_train": {"worker_cls": "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker",
                      "pg_variant": "cispo"},
      "adv_estimator": "reinforce", "sequence_length": 8192, "prompt_length": 2048,
      "pg_clip": 0.2},
     {"loss": "cispo", "clip_high": 0.1, "advantage": "none", "max_length": 6144}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "expected"), EXPECTED, ids=lambda each: str(each)[:9])
def test_settings_become_knobs(
    name: str, settings: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    knobs = framework_named(name).knobs.read(dict(flattened(settings)))
    assert {key: knobs.get(key) for key in expected} == expected


@pytest.mark.parametrize("framework", ["trl", "ms-swift"])
@pytest.mark.parametrize(
    ("level", "loss_type", "loss"),
    [
        ("sequence", "grpo", "gspo"),
        ("sequence_token", "dapo", "gspo_token"),
        ("token", "grpo", "ppo_clip"),
        ("sequence", None, "gspo"),
        ("sequence", "cispo", "cispo"),
        ("sequence", "an unknown loss", None),
    ],
)
def test_sequence_ratios_in_a_clipped_loss_are_gspo(
    framework: str, level: str, loss_type: str | None, loss: str | None
) -> None:
    settings: dict[str, Setting] = {"importance_sampling_level": level}
    if loss_type is not None:
        settings["loss_type"] = loss_type
    assert framework_named(framework).knobs.read(settings).get("loss") == loss


@pytest.mark.parametrize(
    ("leave_one_out", "advantage"), [(True, "leave_one_out"), (False, "centred")]
)
def test_the_baseline_of_nemo_without_normalization(leave_one_out: bool, advantage: str) -> None:
    knobs = framework_named("nemo-rl").knobs
    lines = {line.key: line.value for line in knobs.lines("advantage", advantage, {})}
    baseline = "grpo.use_leave_one_out_baseline"
    assert lines == {"grpo.normalize_rewards": "false", baseline: str(leave_one_out).lower()}
    assert knobs.read({"grpo.normalize_rewards": False, baseline: leave_one_out}) == {
        "advantage": advantage
    }


def test_every_framework_has_an_expected_config() -> None:
    tried = {name for name, _, _ in EXPECTED} | {"verl", "generic"}
    assert {each.name for each in logging_frameworks()} <= tried


@pytest.mark.parametrize("name", ["config.yaml", ".hydra/config.yaml"])
def test_the_configuration_of_verl(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(VERL)
    verl = framework_named("verl")
    knobs = verl.knobs.read(read_settings(tmp_path, verl))
    assert knobs["learning_rate"] == 1e-6, "YAML takes 1e-6 for text"
    assert knobs["clip_high"] == 0.28
    assert knobs["clip_low"] == 0.2
    assert knobs["updates_per_batch"] == 8
    assert knobs["kl_coefficient"] == 0.0
    assert knobs["group_size"] == 16
    assert knobs["dynamic_sampling"] is True
    assert knobs["loss"] == "ppo_clip"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("args.json", '{"num_generations": 8, "nested": {"x": null, "y": [1]}}'),
        ("config.toml", "num_generations = 8\n[nested]\ny = [1]\n"),
        ("config.yaml", "num_generations: 8\nnested: {y: [1]}\n"),
        ("config.yml", "\ufeffnum_generations: 8\n"),
        ("run.json", '{"num_generations": 8}'),
        ("files/config.yaml",
         "wandb_version: 1\nnum_generations: {desc: null, value: 8}\n_wandb: {value: {t: 1}}\n"),
    ],
)  # fmt: skip
def test_every_location_of_config_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_settings(tmp_path, framework_named("trl")) == {"num_generations": 8}


def test_the_users_file_overrides_the_detected_one(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text('{"num_generations": 8, "beta": 0.1}')
    given = tmp_path / "mine.yaml"
    given.write_text("num_generations: 4\n")
    found = read_settings(tmp_path, framework_named("trl"), [{"beta": 0.2}], given)
    assert found == {"num_generations": 4, "beta": 0.2}


def test_a_run_takes_the_users_settings(tmp_path: Path) -> None:
    row = {"reward": 0.5, "reward_std": 0.1, "completion_length": 9.0, "kl": 0.0}
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"step": step, **row}) + "\n" for step in range(3)))
    given = tmp_path / "elsewhere.json"
    given.write_text('{"num_generations": 4}')
    run = open_run(log, ReadOptions(run_config=given))
    assert run.manifest.knobs["group_size"] == 4


def test_pickles_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    (tmp_path / "training_args.bin").write_bytes(pickle.dumps({"num_generations": 8}))
    monkeypatch.setattr(pickle, "load", None)
    monkeypatch.setattr(pickle, "loads", None)
    assert read_settings(tmp_path, framework_named("trl")) == {}


HOSTILE = {
    "bomb.yaml": "a: &a {x: 1}\n"
    + "".join(
        f"k{n}: &{chr(98 + n)} {{{', '.join(f'y{m}: *{chr(97 + n)}' for m in range(10))}}}\n"
        for n in range(12)
    ),
    "round.yaml": "a: &a\n  b: *a\n  c: *a\n  d: *a\n",
    "deep.json": '{"a":' * 5000 + "1" + "}" * 5000,
    "wide.json": json.dumps({str(number): number for number in range(60_000)}),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_files_expand_within_bounds(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    began = time.process_time()
    try:
        found = list(flattened(read_file(path)))
    except ConfigError:
        found = []
    assert len(found) <= 20_000
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deep.yaml", b"a: " + b"[" * 500_000),
        ("deeper.yaml", b"{a: " * 100_000),
        ("code.yaml", b"a: !!python/object/apply:os.system ['touch hacked']\n"),
        ("digits.json", b'{"a": ' + b"9" * 100_000 + b"}"),
        ("latin.yaml", b"a: \xff\xfe\n"),
        ("large.yaml", b"#" * (512 * 1024 + 1)),
        ("list.json", b"[1, 2]"),
        ("empty.yaml", b""),
        ("binary.toml", bytes(range(256))),
        ("missing.json", None),
    ],
)
def test_an_unreadable_config_gives_a_one_line_error(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "hacked").exists()
    log = tmp_path / "metrics.jsonl"
    log.write_text('{"step": 1, "reward": 1}\n')
    with pytest.raises(ConfigError):
        list(open_run(log, ReadOptions(run_config=path)).steps)


def test_values_out_of_bounds_are_left_out() -> None:
    settings = {"num_generations": 0, "learning_rate": -1.0, "beta": "much", "temperature": 1e9}
    knobs = framework_named("trl").knobs.read(settings)
    assert not {"group_size", "learning_rate", "kl_coefficient", "temperature"} & set(knobs)


def trl_log(directory: Path, name: str = "metrics.jsonl") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    row = {"reward": 0.5, "reward_std": 0.1, "completions/mean_length": 10.0, "grad_norm": 1.0}
    path = directory / name
    rows = [{"step": step, **row} for step in range(1, 31)]
    state = {"global_step": 30, "log_history": rows}
    lines = "".join(json.dumps(each) + "\n" for each in rows)
    path.write_text(json.dumps(state) if path.suffix == ".json" else lines)
    return path


def knobs_of(path: Path) -> Mapping[str, Any]:
    run = open_run(path)
    list(run.steps)
    return run.manifest.knobs


def test_settings_are_found_between_the_log_and_the_given_directory(tmp_path: Path) -> None:
    """W&B stores them next to its log, several levels below the job's directory."""
    log = trl_log(tmp_path / "wandb" / "run-1" / "files")
    (log.parent / "config.yaml").write_text("beta:\n  value: 0.04\n")
    (tmp_path / "config.yaml").write_text("beta: 0.5\nnum_generations: 16\n")
    assert knobs_of(tmp_path) == {"kl_coefficient": 0.04, "group_size": 16}


def test_a_checkpoints_run_is_its_parent_and_the_models_config_is_ignored(
    tmp_path: Path,
) -> None:
    state = trl_log(tmp_path / "run" / "checkpoint-30", "trainer_state.json")
    model = {"architectures": ["Qwen2ForCausalLM"], "temperature": 0.1}
    (state.parent / "config.json").write_text(json.dumps(model))
    (tmp_path / "run" / "config.yaml").write_text("num_generations: 8\n")
    (tmp_path / "config.yaml").write_text("num_generations: 64\n")
    for given in (state.parent, state, tmp_path / "run"):
        assert knobs_of(given) == {"group_size": 8}


def test_hydra_settings_count_if_all_launches_agree(tmp_path: Path) -> None:
    trl_log(tmp_path / "logs")
    for launch in ("10-00", "11-00"):
        place = tmp_path / "outputs" / launch / ".hydra"
        place.mkdir(parents=True)
        (place / "config.yaml").write_text("num_generations: 8\n")
    assert knobs_of(tmp_path) == {"group_size": 8}
    (place / "config.yaml").write_text("num_generations: 4\n")
    assert knobs_of(tmp_path) == {}


def test_a_pickle_of_settings_is_refused_and_never_loaded(tmp_path: Path) -> None:
    pickle = tmp_path / "training_args.bin"
    pickle.write_bytes(b"\x80\x04\x95cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(ConfigError, match="never loaded"):
        open_run(trl_log(tmp_path), ReadOptions(run_config=pickle))


def test_ms_swift_is_detected_despite_keys_shared_with_trl(tmp_path: Path) -> None:
    path = trl_log(tmp_path)
    rows = [json.loads(line) | {"memory(GiB)": 3.0} for line in path.read_text().splitlines()]
    rows = [row | {"clip_ratio/region_mean": 0.0, "frac_reward_zero_std": 0.0} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = open_run(path)
    assert run.manifest.framework == "ms-swift"
    assert not any("it could be TRL" in note for note in getattr(run, "notes", []))


def test_a_config_without_any_known_setting_is_an_error(tmp_path: Path) -> None:
    """Nothing would tell the user that the file of another run or framework has no effect."""
    other = tmp_path / "other.yaml"
    other.write_text("model: {layers: 12}\n")
    with pytest.raises(ConfigError, match="no known setting of TRL"):
        open_run(trl_log(tmp_path), ReadOptions(run_config=other))
    other.write_text("model: {layers: 12}\nnum_generations: 8\n")
    assert open_run(trl_log(tmp_path), ReadOptions(run_config=other)).manifest.knobs


def test_a_config_takes_what_it_lacks_from_its_bases(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "base.yaml").write_text("grpo: {n: 16, steps: 10}\npolicy: {lr: 1.0e-6}\n")
    (tmp_path / "recipes" / "middle.yaml").write_text("defaults: ../base\ngrpo: {steps: 20}\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    recipe = tmp_path / "recipes" / "recipe.yaml"
    recipe.write_text(
        "defaults: [middle.yaml, ../broken@_here_, absent, _self_, {actor: x}, recipe]\n"
        "policy: {clip: 0.28, total: '${grpo.steps}', other: '${grpo.none}'}\n"
    )
    settings = dict(flattened(read_file(recipe)))
    assert settings == {
        "grpo.n": 16, "grpo.steps": 20, "policy.lr": 1e-6,
        "policy.clip": 0.28, "policy.total": 20, "policy.other": "${grpo.none}",
    }  # fmt: skip


def test_references_that_lead_in_a_circle_stay_text() -> None:
    settings = dict(flattened({"a": "${b}", "b": "${a}", "c": "x ${a}"}))
    assert {settings["a"], settings["b"]} <= {"${a}", "${b}"}
    assert settings["c"] == "x ${a}"


def test_an_absent_config_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file or directory .*check the path"):
        read_file(tmp_path / "absent.yaml")
