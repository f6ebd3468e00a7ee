import ast
import importlib
import importlib.util
from pathlib import Path

import pytest
import yaml

from grpodoctor import frameworks
from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.bundled.knobs import KEYS
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.registry import (
    all_frameworks,
    configurable_framework_named,
    configurable_frameworks,
    framework_named,
)
from grpodoctor.frameworks.settings import ENGINE_SETTINGS, framework_settings
from grpodoctor.frameworks.written_settings import SettingLine
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.trainer.config.knobs import knobs_of
from grpodoctor.trainer.config.train_config import known_keys, load_config
from grpodoctor.vocabulary.knobs import KNOBS, Setting

FRAMEWORKS = [each.name for each in configurable_frameworks()]

IN_FORCE: dict[str, Setting] = {
    "clip_low": 0.2,
    "group_size": 8,
    "prompts_per_batch": 64,
    "updates_per_batch": 4,
    "max_length": 4096,
}


def some_settings(name: str) -> list[Setting]:
    knob = KNOBS[name]
    if knob.choices:
        return list(knob.choices)
    if knob.low is None or knob.high is None:
        return [True, False]
    return [2 if knob.integer else max(knob.low, 0.3), *([] if knob.low else [0.0])]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("knob", KNOBS)
def test_every_framework_has_lines_for_every_knob(framework: str, knob: str) -> None:
    for setting in some_settings(knob):
        for knobs in ({}, IN_FORCE):
            lines = framework_settings({knob: setting}, framework, knobs)
            assert lines
            for each in lines:
                assert each.key or each.note, "neither a key nor a reason"
                assert each.line.isprintable()
                assert "{" not in each.note


ENGINE_VALUES: dict[str, tuple[Setting, ...]] = {
    "sampler_dtype": ("float32", "bfloat16", "float16"),
    "learner_dtype": ("float32", "bfloat16", "float16"),
    "sampler_tensor_parallel": (1, 2),
    "balanced_routers": (0.001,),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", ENGINE_SETTINGS)
def test_every_framework_has_lines_for_every_engine_setting(framework: str, name: str) -> None:
    for setting in ENGINE_VALUES.get(name, (True,)):
        lines = framework_settings({name: setting}, framework)
        assert lines
        for each in lines:
            assert each.key or each.note, "neither a key nor a reason"
            assert each.line.isprintable()


@pytest.mark.parametrize(
    ("framework", "dtype", "degree"),
    [
        ("grpodoctor", "engine.precision=learner", "engine.tensor_parallel=1"),
        ("trl", "trl vllm-serve --dtype=float16", "vllm_tensor_parallel_size=1"),
        (
            "verl",
            "actor_rollout_ref.rollout.dtype=float16",
            "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        ),
        ("openrlhf", None, "--vllm.tensor_parallel_size 1"),
        ("slime", "--sglang-dtype float16", "--rollout-num-gpus-per-engine 1"),
        ("prime-rl", 'inference.vllm.dtype="float16"', "inference.vllm.tensor_parallel_size=1"),
        (
            "nemo-rl",
            "policy.generation.vllm_cfg.precision=float16",
            "policy.generation.vllm_cfg.tensor_parallel_size=1",
        ),
        ("open-instruct", None, "--vllm_tensor_parallel_size 1"),
        (
            "skyrl",
            "generator.inference_engine.model_dtype=float16",
            "generator.inference_engine.tensor_parallel_size=1",
        ),
        ("ms-swift", "--torch_dtype float16", "--vllm_tensor_parallel_size 1"),
        ("areal", "vllm.dtype=float16", "rollout.backend=vllm:d<replicas>t1"),
        (
            "roll",
            "actor_infer.model_args.dtype=fp16",
            "actor_infer.strategy_args.strategy_config.tensor_parallel_size=1",
        ),
        ("tinker-cookbook", None, None),
    ],
)
def test_dtype_and_tensor_parallel_in_every_framework(
    framework: str, dtype: str | None, degree: str | None
) -> None:
    wanted: list[tuple[dict[str, Setting], str | None]] = [
        ({"sampler_dtype": "float16"}, dtype),
        ({"sampler_tensor_parallel": 1}, degree),
    ]
    for change, expected in wanted:
        (only,) = line(change, framework)
        assert only == expected if expected else "has no setting for" in only


def line(changes: dict[str, Setting], framework: str) -> list[str]:
    return [each.line for each in framework_settings(changes, framework, IN_FORCE)]


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("grpodoctor", "loss.clip_high=0.28"),
        ("trl", "epsilon_high=0.28"),
        ("verl", "actor_rollout_ref.actor.clip_ratio_high=0.28"),
        ("openrlhf", "--actor.eps_clip_low_high 0.2 0.28"),
        ("slime", "--eps-clip-high 0.28"),
        ("nemo-rl", "loss_fn.ratio_clip_max=0.28"),
        ("open-instruct", "--clip_higher 0.28"),
        ("skyrl", "trainer.algorithm.eps_clip_high=0.28"),
        ("ms-swift", "--epsilon_high 0.28"),
        ("areal", "actor.eps_clip_higher=0.28"),
        ("roll", "pg_clip_high=0.28"),
        (
            "tinker-cookbook",
            'loss_fn_config={"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}',
        ),
    ],
)
def test_clip_higher_in_every_framework(framework: str, expected: str) -> None:
    assert expected in line({"clip_high": 0.28}, framework)


@pytest.mark.parametrize(
    ("framework", "whole", "replay"),
    [
        ("grpodoctor", "loss.kind=gspo", "engine.routing_replay=R3"),
        ("trl", 'importance_sampling_level="sequence"', None),
        (
            "verl",
            "actor_rollout_ref.actor.policy_loss.loss_mode=gspo",
            "actor_rollout_ref.actor.megatron.router_replay.mode=R3",
        ),
        ("openrlhf", "--actor.policy_loss_type gspo", None),
        ("slime", "--advantage-estimator gspo", "--use-rollout-routing-replay"),
        (
            "nemo-rl",
            "loss_fn.sequence_level_importance_ratios=true",
            "policy.router_replay.enabled=true",
        ),
        (
            "skyrl",
            "trainer.algorithm.policy_loss_type=gspo",
            "trainer.policy.megatron_config.moe_enable_routing_replay=true",
        ),
        ("ms-swift", "--importance_sampling_level sequence", "--router_replay_mode R3"),
        (
            "areal",
            "actor.importance_sampling_level=sequence",
            "rollout.return_routed_experts=true",
        ),
        ("roll", "importance_sampling=seq", "actor_train.router_replay.mode=R3"),
        ("prime-rl", None, "trainer.enable_router_replay=true"),
        ("open-instruct", None, None),
        ("tinker-cookbook", None, None),
    ],
)
def test_gspo_and_routing_replay_in_every_framework(
    framework: str, whole: str | None, replay: str | None
) -> None:
    wanted: list[tuple[dict[str, Setting], str | None]] = [
        ({"loss": "gspo"}, whole),
        ({"routing_replay": "R3"}, replay),
    ]
    for change, expected in wanted:
        lines = line(change, framework)
        if expected is None:
            assert all("has no setting for" in each for each in lines)
        else:
            assert expected in lines


def as_config(framework: Framework, lines: list[SettingLine]) -> dict[str, Setting]:
    """The config of a user who pastes the lines."""
    config: dict[str, Setting] = {}
    for each in lines:
        if not each.key:
            flag = each.note.removeprefix("omit --").replace("-", "_")
            if each.note.startswith("omit --") and " " not in flag:
                config[flag] = False
            continue
        key = each.key.lstrip("-+")
        key = key.replace("-", "_") if framework.knobs.syntax.dashes else key
        value = yaml.safe_load(each.value.strip('"')) if each.value else True
        if value is not None:  # as if it were not given
            config[key] = value
    return config


@pytest.mark.parametrize("framework", configurable_frameworks(), ids=lambda each: each.name)
def test_a_written_knob_reads_back_with_the_same_value(framework: Framework) -> None:
    """Pasting the lines and reading the config gives the value that was written."""
    context = {**IN_FORCE, "correction": "tis_token"}
    for row in framework.knobs.mappings:
        for setting in some_settings(row.knob):
            lines = framework_settings({row.knob: setting}, framework.name, context)
            written = as_config(framework, lines)
            if not row.reads or row.key not in written:
                continue
            sizes = {name: value for name, value in context.items() if name != row.knob}
            others = framework_settings(sizes, framework.name, context)
            config = {**as_config(framework, others), **written}
            read = framework.knobs.read(config).get(row.knob)
            expected = SAME_IN_THE_FRAMEWORK.get((framework.name, setting), setting)
            assert read == expected, (row.knob, setting, written)


SAME_IN_THE_FRAMEWORK: dict[tuple[str, Setting], Setting] = {
    ("verl", "gspo_token"): "gspo",
    ("verl", "luspo"): "gspo",  # with the denominator that is written next to it
    # The nearest measure: the geometric mean of a response's ratios.
    ("openrlhf", "error_mask"): "geo_mask",
    ("open-instruct", "error_mask"): "geo_mask",
    # Filters are a list in the config, and lists are not read.
    ("roll", "mis_token"): "tis_token",
    ("roll", "mis_sequence"): "tis_sequence",
    **{("roll", name): "tis_token" for name in ("icepop", "geo_mask", "error_mask")},
    # The config does not contain the reward function that adds the punishment.
    ("trl", "mask-and-soft-punishment"): "mask",
    ("ms-swift", "mask-and-soft-punishment"): "mask",
    ("nemo-rl", "mask-and-soft-punishment"): "mask",
}


def test_recent_methods_are_written_where_a_framework_has_them() -> None:
    assert line({"loss": "ipo"}, "prime-rl") == ['trainer.loss.type="ipo"']
    assert line({"loss": "dppo_binary_tv"}, "prime-rl")[0].startswith('trainer.loss.type="default"')
    assert line({"loss": "luspo"}, "trl") == [
        'loss_type="luspo"',
        'importance_sampling_level="sequence"',
    ]
    assert "grpo.reward_shaping.stop_properly_penalty_coef=0" in line(
        {"overlong": "stop-properly"}, "nemo-rl"
    )
    assert line({"overlong": "stop-properly"}, "areal") == ["actor.mask_no_eos_with_zero=true"]


def test_a_framework_without_a_clip_states_so() -> None:
    (setting_line,) = framework_settings({"clip_high": 0.28}, "prime-rl")
    assert (setting_line.key, setting_line.value) == ("", "")
    assert setting_line.note.startswith(
        "prime-rl has no setting for clip high=0.28: there is no PPO clip"
    )


def test_dr_grpo_in_verl_sets_the_constant_denominator() -> None:
    lines = line({"aggregation": "constant", "advantage": "centred"}, "verl")
    assert lines == [
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
        "actor_rollout_ref.actor.loss_scale_factor=4096",
        "algorithm.adv_estimator=grpo",
        "algorithm.norm_adv_by_std_in_grpo=False",
    ]


def test_dr_grpo_in_trl_drops_the_standard_deviation_too() -> None:
    assert line({"aggregation": "constant", "advantage": "centred"}, "trl") == [
        'loss_type="dr_grpo"',
        'scale_rewards="none"',
    ]


def test_sizes_are_converted_to_the_frameworks_unit() -> None:
    assert line({"updates_per_batch": 4}, "verl") == [
        "actor_rollout_ref.actor.ppo_mini_batch_size=16"
    ]
    assert line({"updates_per_batch": 4}, "openrlhf") == ["--train.batch_size 128"]
    assert line({"prompts_per_batch": 16}, "prime-rl") == ["orchestrator.batch_size=128"]
    assert (
        framework_settings({"updates_per_batch": 4}, "verl")[0].value == "<prompts per batch / 4>"
    )


def test_a_larger_batch_of_trl_is_one_update() -> None:
    """With `generation_batch_size` alone, TRL makes several updates of the old size."""
    (setting_line,) = framework_settings({"prompts_per_batch": 64, "group_size": 8}, "trl")[:1]
    assert setting_line.key == "gradient_accumulation_steps"
    assert setting_line.value == "<512 / (per_device_train_batch_size x processes)>"
    (flag,) = framework_settings({"prompts_per_batch": 64}, "ms-swift")
    assert flag.key == "--gradient_accumulation_steps"


def test_trl_has_no_dynamic_sampling() -> None:
    (setting_line,) = framework_settings({"dynamic_sampling": True}, "trl")
    assert not setting_line.key
    assert "drop prompts" in setting_line.note


def test_the_bundled_trainer_accepts_the_settings_of_every_remedy() -> None:
    assert KEYS.keys() == KNOBS.keys()
    assert set(KEYS.values()) <= set(known_keys())
    start = {
        "engine.old_logprobs": "sampler",
        "rollout.max_length": 64,
        "engine.sync_every": 4,
        "model.experts": 8,
    }
    assignments = [f"{key}={value}" for key, value in start.items()]
    before = knobs_of(load_config(assignments=assignments))
    for remedy in all_remedies():
        change = remedy.change(before)
        lines = [each.line for each in framework_settings(change, "grpodoctor")]
        after = knobs_of(load_config(assignments=[*assignments, *lines]))
        assert after == {**before, **change}, remedy.id


def test_trl_keys_are_arguments_of_the_installed_trl() -> None:
    fields = grpo_config_fields()
    elsewhere = {"reward_funcs"}
    for knob in KNOBS:
        for setting in some_settings(knob):
            for each in framework_settings({knob: setting}, "trl", IN_FORCE):
                assert not each.key or each.key in fields | elsewhere, each
    for name in ENGINE_SETTINGS:
        for setting in ENGINE_VALUES.get(name, (True,)):
            for each in framework_settings({name: setting}, "trl"):
                served = each.key.startswith("trl vllm-serve --")
                assert not each.key or served or each.key in fields, each


def grpo_config_fields() -> set[str]:
    """Parse the sources, because importing TRL takes many seconds."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    inherited = {
        "learning_rate", "fp16", "gradient_accumulation_steps", "per_device_train_batch_size"
    }  # fmt: skip  # from transformers
    fields: set[str] = set(inherited)
    for name in ("grpo_config.py", "base_config.py"):
        file = Path(spec.origin).parent / "trainer" / name
        tree = ast.parse(file.read_text(encoding="utf-8"))
        fields |= {
            node.target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
    return fields


def test_a_change_of_both_clips_is_written_once() -> None:
    assert line({"clip_low": 0.1, "clip_high": 0.28}, "openrlhf") == [
        "--actor.eps_clip_low_high 0.1 0.28"
    ]


def test_every_folder_is_a_framework_with_its_name() -> None:
    folders = {path.parent.name for path in Path(frameworks.__path__[0]).glob("*/metrics.py")}
    names = {each.name.replace("-", "_") for each in all_frameworks()}
    assert names - {"grpodoctor"} == folders - {"bundled"}
    assert set(FRAMEWORKS) == {each.name for each in all_frameworks()} - {"generic"}


def test_names_of_frameworks() -> None:
    assert configurable_framework_named("NeMo_RL").name == "nemo-rl"
    assert configurable_framework_named("bundled").name == "grpodoctor"
    with pytest.raises(ConfigError, match="did you mean verl"):
        configurable_framework_named("veerl")
    with pytest.raises(ConfigError, match="use a framework") as caught:
        framework_named("foo", file_formats=["csv"])
    assert "did you mean" not in str(caught.value), "no name is near"
    assert "csv" in str(caught.value)


def test_an_unknown_framework_from_a_log_gets_a_note() -> None:
    (setting_line,) = framework_settings({"clip_high": 0.28}, "[bold]acme\x1b")
    assert not setting_line.key
    assert "clip high" in setting_line.note
    assert "\x1b" not in setting_line.note


def test_an_unknown_knob_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown knob"):
        framework_settings({"magic": 1}, "verl")


def test_bare_flags_have_no_value() -> None:
    assert SettingLine("--use-tis", "").line == "--use-tis"
    assert "--use-tis" in line(remedy_of("tis").change({**IN_FORCE, **TIS_OFF}), "slime")


TIS_OFF: dict[str, Setting] = {
    "correction": "none",
    "correction_cap": 3.0,
    "old_logprobs": "sampler",
}


def test_the_tables_need_no_heavy_package() -> None:
    module = importlib.import_module("grpodoctor.frameworks.settings")
    folder = Path(module.__file__ or "").parent
    for file in (folder / "settings.py", folder / "knob_mapping.py", *folder.glob("*/knobs.py")):
        names = {
            node.module.split(".")[0]
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module
        }
        assert names <= {
            "__future__",
            "collections",
            "functools",
            "dataclasses",
            "math",
            "grpodoctor",
        }


@pytest.mark.parametrize("remedy", [each for each in all_remedies() if each.restart_with])
def test_every_framework_has_the_restart_settings_of_a_remedy(remedy: Remedy) -> None:
    assert remedy.how, "settings belong to the instructions for a person"
    for framework in FRAMEWORKS:
        assert framework_settings(remedy.restart_with, framework)
