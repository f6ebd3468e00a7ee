"""The rules about the configuration, on the configs of each framework and in a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.frameworks.complete_config import framework_of_config
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.engine import Engine
from grpodoctor.rules.lint import lint
from grpodoctor.rules.shared.config_rule import ConfigRule
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.config_facts import CONFIG_FACTS
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean
from tests.rules.scenario import MOST_WORDS

CONFIG_RULES = [rule for rule in all_rules() if isinstance(rule, ConfigRule)]

FRAMEWORKS = (
    "grpodoctor", "verl", "trl", "openrlhf", "slime", "skyrl", "nemo-rl", "areal", "ms-swift",
    "open-instruct", "prime-rl", "tinker-cookbook", "roll",
)  # fmt: skip

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GRPO = {"algorithm.adv_estimator": "grpo", f"{ROLLOUT}.n": 8}

FAULTY: list[tuple[str, dict[str, Setting], str]] = [
    ("verl", {**GRPO, f"{ACTOR}.policy_loss.loss_mode": "gspo"}, "CFG001"),
    ("trl", {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.0}, "CFG001"),
    ("slime", {"advantage_estimator": "gspo", "eps_clip": 0.2}, "CFG001"),
    ("openrlhf", {"actor.policy_loss_type": "gspo", "actor.eps_clip": 0.2}, "CFG001"),
    ("trl", {"loss_type": "dr_grpo", "num_generations": 8}, "CFG002"),
    ("ms-swift", {"loss_type": "dr_grpo", "num_generations": 8, "vllm_mode": "x"}, "CFG002"),
    ("trl", {"loss_type": "cispo", "epsilon_high": 0.28}, "CFG003"),
    ("verl", {**GRPO, f"{ACTOR}.policy_loss.loss_mode": "cispo"}, "CFG003"),
    ("verl", {**GRPO, f"{ACTOR}.policy_loss.loss_mode": "dppo_tv"}, "CFG004"),
    ("verl", {"algorithm.adv_estimator": "grpo", "data.train_batch_size": 64}, "CFG006"),
    ("verl", {**GRPO, f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm"}, "CFG007"),
    ("trl", {"importance_sampling_level": "sequence", "num_generations": 8}, "CFG008"),
    ("tinker-cookbook", {"num_substeps": 4, "group_size": 8}, "CFG010"),
    ("tinker-cookbook", {"temperature": 0.7, "group_size": 8}, "CFG020"),
    ("areal", {"gconfig.temperature": 0.7, "actor.temperature": 1.0}, "CFG020"),
    ("skyrl", {"generator.sampling_params.temperature": 0.7, "trainer.algorithm.temperature": 1.0},
     "CFG020"),
    ("roll", {"actor_infer.generating_args.temperature": 0.7}, "CFG020"),
    ("roll", {"actor_infer.generating_args.temperature": 1.0}, "CFG021"),
    ("trl", {"temperature": 1.0, "top_p": 0.8}, "CFG021"),
    ("verl", {**GRPO, f"{ROLLOUT}.temperature": 1.0, f"{ROLLOUT}.top_k": 5}, "CFG021"),
    ("verl", {**GRPO, f"{ROLLOUT}.do_sample": False}, "CFG022"),
    ("trl", {"repetition_penalty": 1.1, "num_generations": 8}, "CFG023"),
    ("trl", {"repetition_penalty": 1, "generation_kwargs.no_repeat_ngram_size": 2,
             "num_generations": 8}, "CFG023"),
    ("trl", {"temperature": 1.0, "top_p": 1.0, "generation_kwargs.top_p": 0.5}, "CFG021"),
    ("trl", {"temperature": 1.0, "generation_kwargs.temperature": 2.0}, "CFG020"),
    ("trl", {"generation_kwargs.do_sample": False, "num_generations": 8}, "CFG022"),
    ("verl", {**GRPO, f"{ROLLOUT}.ignore_eos": True}, "CFG024"),
    ("trl", {"generation_kwargs.min_new_tokens": 512, "max_completion_length": 1024}, "CFG024"),
    ("verl", {**GRPO, "data.max_prompt_length": 1024, "data.max_response_length": 4096,
              f"{ROLLOUT}.max_model_len": 4096}, "CFG025"),
    ("verl", {**GRPO, "data.max_response_length": 4096,
              "reward.reward_kwargs.max_resp_len": 2048,
              "reward.reward_kwargs.overlong_buffer_cfg.len": 512}, "CFG026"),
    ("open-instruct", {"loss_fn": "dapo", "mask_tool_use": False, "clip_lower": 0.2}, "CFG027"),
    ("slime", {"use_rollout_logprobs": True, "num_steps_per_rollout": 4, "eps_clip": 0.2},
     "CFG030"),
    ("verl", {**GRPO, "algorithm.rollout_correction.bypass_mode": True,
              "data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 16}, "CFG030"),
    ("verl", {**GRPO, "algorithm.rollout_correction.bypass_mode": True,
              "algorithm.rollout_correction.rollout_is": "token"}, "CFG031"),
    ("verl", {**GRPO, f"{ROLLOUT}.quantization": "fp8"}, "CFG032"),
    ("open-instruct", {"async_steps": 8, "use_rho_correction": False, "clip_lower": 0.2},
     "CFG033"),
    ("open-instruct", {"beta": 0.05, "load_ref_policy": False, "clip_lower": 0.2}, "CFG040"),
    ("verl", {**GRPO, "algorithm.use_kl_in_reward": True, f"{ACTOR}.use_kl_loss": True}, "CFG041"),
    ("slime", {"use_kl_loss": True, "kl_loss_coef": 0.01, "eps_clip": 0.2}, "CFG042"),
    ("openrlhf", {"algo.kl.use_loss": True, "algo.kl.init_coef": 0.01, "algo.kl.estimator": "k1"},
     "CFG042"),
    ("verl", {**GRPO, f"{ACTOR}.optim.lr": 2e-4}, "CFG050"),
    ("nemo-rl", {"policy.optimizer.kwargs.lr": 2e-4, "policy.dtensor_cfg.lora_cfg.enabled": False},
     "CFG050"),
    ("trl", {"learning_rate": 2e-4, "use_peft": False}, "CFG050"),
    ("verl", {**GRPO, f"{ACTOR}.optim.lr": 0.0}, "CFG051"),
    ("verl", {**GRPO, f"{ACTOR}.optim.lr": 1e-6, f"{ACTOR}.fsdp_config.model_dtype": "bf16"},
     "CFG052"),
    ("verl", {**GRPO, f"{ACTOR}.entropy_coeff": -0.01}, "CFG053"),
    ("trl", {"router_aux_loss_coef": 0.02, "num_generations": 8}, "CFG054"),
    ("openrlhf", {"algo.advantage.estimator": "gae", "critic.freezing_steps": 0,
                  "rollout.max_new_tokens": 4096}, "CFG055"),
]  # fmt: skip


FAULTY += [
    ("trl", {"scale_rewards": "group", "num_generations": 2}, "CFG013"),
    ("verl", {**GRPO, f"{ROLLOUT}.n": 2}, "CFG013"),
    ("trl", {"generation_batch_size": 8, "num_generations": 8}, "CFG014"),
    ("verl", {**GRPO, "data.train_batch_size": 1}, "CFG014"),
    ("grpodoctor", {"advantage.kind": "none"}, "CFG015"),
    *((name, {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4,
              "num_generations": 6}, "CFG016") for name in ("trl", "ms-swift")),
    ("trl", {"model_name_or_path": "Qwen/Qwen2.5-1.5B", "learning_rate": 2e-4}, "CFG050"),
    ("verl", {**GRPO, "data.train_batch_size": 128, f"{ACTOR}.ppo_mini_batch_size": 256},
     "CFG017"),
    ("verl", {**GRPO, f"{ROLLOUT}.n": 5, "data.train_batch_size": 60,
              f"{ACTOR}.ppo_mini_batch_size": 60, "trainer.n_gpus_per_node": 8,
              "trainer.nnodes": 1}, "CFG017"),
    ("skyrl", {"trainer.train_batch_size": 64, "trainer.policy_mini_batch_size": 128,
               "generator.n_samples_per_prompt": 8}, "CFG017"),
    ("skyrl", {"trainer.train_batch_size": 64, "trainer.policy_mini_batch_size": 64,
               "generator.n_samples_per_prompt": 5, "trainer.strategy": "fsdp2",
               "trainer.placement.policy_num_gpus_per_node": 8,
               "trainer.micro_train_batch_size_per_gpu": 16}, "CFG017"),
    ("nemo-rl", {"grpo.num_prompts_per_step": 32, "grpo.num_generations_per_prompt": 8,
                 "policy.train_global_batch_size": 512}, "CFG017"),
    ("ms-swift", {"max_length": 512, "max_completion_length": 2048, "vllm_max_model_len": 1024},
     "CFG025"),
    ("verl", {**GRPO, "data.max_prompt_length": 1024, "data.max_response_length": 8192,
              f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": 4096},
     "CFG028"),
    ("prime-rl", {"trainer.model.seq_len": 2048, "orchestrator.seq_len": 4096,
                  "orchestrator.group_size": 8}, "CFG028"),
    *((name, {"warmup_steps": 500, "max_steps": 200, "num_generations": 8}, "CFG057")
      for name in ("trl", "ms-swift")),
    *(("prime-rl", {"orchestrator.group_size": 1, **algorithm}, "CFG006")
      for algorithm in ({}, {"orchestrator.algo.type": "max_rl"})),
    ("ms-swift", {"num_generations": 1, "scale_rewards": "batch"}, "CFG006"),
    ("ms-swift", {"num_generations": 1, "advantage_estimator": "rloo"}, "CFG006"),
]  # fmt: skip

KL_KEYS: dict[str, tuple[str, dict[str, Setting]]] = {
    "grpodoctor": ("loss.kl_coefficient", {}),
    "verl": (f"{ACTOR}.kl_loss_coef", {f"{ACTOR}.use_kl_loss": True}),
    "trl": ("beta", {}),
    "openrlhf": ("algo.kl.init_coef", {}),
    "slime": ("kl_loss_coef", {"use_kl_loss": True}),
    "skyrl": ("trainer.algorithm.kl_loss_coef", {}),
    "nemo-rl": ("loss_fn.reference_policy_kl_penalty", {}),
    "areal": ("actor.kl_ctl", {}),
    "ms-swift": ("beta", {}),
    "open-instruct": ("beta", {}),
    "tinker-cookbook": ("kl_penalty_coef", {}),
    "roll": ("kl_loss_coef", {"use_kl_loss": True}),
}


def out_of_range(framework: str, config: dict[str, Setting]) -> list[tuple[str, str]]:
    """Severity and summary of the findings about ranges."""
    knobs = configurable_framework_named(framework).knobs.read(config)
    findings = lint(framework, config, knobs).findings
    return [(f.severity, f.summary) for f in findings if f.code == "CFG060"]


@pytest.mark.parametrize("framework", KL_KEYS)
def test_a_kl_coefficient_out_of_range_is_named_by_the_framework_s_key(framework: str) -> None:
    key, others = KL_KEYS[framework]
    assert out_of_range(framework, {**others, key: -0.05}) == [
        ("critical", f"{key}=-0.05 is outside 0 to 10: a negative KL penalty rewards drift.")
    ]
    ((severity, summary),) = out_of_range(framework, {**others, key: 20.0})
    assert severity == "warning"
    assert summary.startswith(f"{key}=20 is outside 0 to 10")
    assert out_of_range(framework, {**others, key: 0.04}) == []


@pytest.mark.parametrize(
    ("framework", "config", "start"),
    [
        ("trl", {"learning_rate": 1}, "learning_rate=1 is outside 0 to 0.1: "),
        ("trl", {"learning_rate": "-1e-6"}, "learning_rate=-1e-06 is outside 0 to 0.1: "),
        ("trl", {"epsilon": -0.2}, "epsilon=-0.2 is outside 0 to 1: "),
        ("areal", {"gconfig.temperature": 0}, "gconfig.temperature=0 is outside 0.01 to 2: "),
        ("verl", {**GRPO, f"{ROLLOUT}.top_p": 1.5}, f"{ROLLOUT}.top_p=1.5 is outside 0 to 1."),
        ("trl", {"beta": float("nan")}, "beta=nan is outside 0 to 10."),
        ("trl", {"learning_rate": 3.0, "beta": -1},
         "beta=-1 is outside 0 to 10: a negative KL penalty rewards drift; learning_rate=3 is out"),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_named(
    framework: str, config: dict[str, Setting], start: str
) -> None:
    ((_, summary),) = out_of_range(framework, config)
    assert summary.startswith(start)
    assert len(summary.split()) <= MOST_WORDS


@pytest.mark.parametrize(
    ("framework", "config"),
    [
        ("trl", {"num_generations": 8, "epsilon_high": -1, "delta": -1.0}),
        ("trl", {"temperature": 0, "num_generations": 8}),  # CFG022 reports it
        ("verl", {**GRPO, f"{ROLLOUT}.top_k": -1, "data.max_response_length": -1}),
        ("verl", {**GRPO, f"{ACTOR}.clip_ratio_low": 10.0, f"{ACTOR}.clip_ratio_high": 1e9}),
        ("verl", {**GRPO, f"{ACTOR}.use_kl_loss": False, f"{ACTOR}.kl_loss_coef": -0.1}),
        ("slime", {"eps_clip": 0.2, "kl_loss_coef": -0.1, "use_kl_loss": False}),
        ("areal", {"gconfig.top_k": 100_000_000, "gconfig.max_new_tokens": 10**9}),
        ("prime-rl", {"orchestrator.group_size": 8, "orchestrator.max_off_policy_steps": -1}),
        ("trl", {"loss_type": "cispo", "epsilon_high": 5.0, "beta": True}),
    ],
)
def test_a_value_that_switches_a_setting_off_is_in_range(
    framework: str, config: dict[str, Setting]
) -> None:
    assert out_of_range(framework, config) == []


def test_a_recorded_knob_out_of_range_is_reported_until_it_changes() -> None:
    manifest = Manifest(framework="grpodoctor", knobs={"kl_coefficient": -0.1})
    engine = Engine(CONFIG_RULES, manifest)
    (change,) = [c for c in engine.observe(step(1)) if c.finding.code == "CFG060"]
    assert (change.kind, change.finding.severity) == ("raised", "critical")
    assert {e.metric: e.value for e in change.finding.evidence} == {"kl_coefficient": -0.1}
    changes = engine.observe(step(2, kl_coefficient=0.01))
    assert [c.kind for c in changes if c.finding.code == "CFG060"] == ["resolved"]


@pytest.mark.parametrize(("framework", "config", "code"), FAULTY)
def test_a_framework_s_own_config_is_checked(
    framework: str, config: dict[str, Setting], code: str
) -> None:
    knobs = configurable_framework_named(framework).knobs.read(config)
    assert code in {finding.code for finding in lint(framework, config, knobs).findings}


SOUND: list[tuple[str, dict[str, Setting]]] = [
    *(("verl", {**GRPO, f"{ROLLOUT}.n": 5, "data.train_batch_size": 12,
                f"{ACTOR}.ppo_mini_batch_size": 12, "trainer.n_gpus_per_node": 8,
                "trainer.nnodes": 1, **backend})
      for backend in ({f"{ACTOR}.strategy": "megatron"}, {"model_engine": "megatron"},
                      {f"{ACTOR}.megatron.pipeline_model_parallel_size": 2},
                      {f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 2})),
    *(("verl", {**GRPO, "data.max_prompt_length": 1024, "data.max_response_length": 7168,
                f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": 4096,
                f"{ACTOR}.{split}": 2})
      for split in ("ulysses_sequence_parallel_size", "megatron.context_parallel_size",
                    "fsdp_config.ulysses_sequence_parallel_size")),
    *(("skyrl", {"trainer.train_batch_size": 6, "trainer.policy_mini_batch_size": 6,
                 "generator.n_samples_per_prompt": samples, "trainer.strategy": strategy,
                 "trainer.placement.policy_num_gpus_per_node": 8,
                 "trainer.micro_train_batch_size_per_gpu": 4})
      for samples, strategy in ((5, "fsdp2"), (8, "megatron"))),
    ("verl", {**GRPO, "data.train_batch_size": 512, f"{ACTOR}.ppo_mini_batch_size": 32,
              f"{ACTOR}.clip_ratio_high": 0.28, f"{ACTOR}.optim.lr": 1e-6,
              f"{ROLLOUT}.temperature": 1.0, f"{ROLLOUT}.top_p": 1.0, f"{ROLLOUT}.top_k": -1}),
    ("trl", {"num_generations": 8, "beta": 0.0, "epsilon": 0.2, "epsilon_high": 0.28,
             "learning_rate": 1e-6, "temperature": 1.0, "loss_type": "dapo",
             "importance_sampling_level": "token", "scale_rewards": "group"}),
    ("slime", {"advantage_estimator": "grpo", "eps_clip": 0.2, "eps_clip_high": 0.28,
               "use_kl_loss": True, "kl_loss_coef": 0.0, "kl_loss_type": "low_var_kl",
               "lr": 1e-6, "n_samples_per_prompt": 8, "rollout_temperature": 1.0}),
    ("openrlhf", {"algo.advantage.estimator": "group_norm", "algo.kl.init_coef": 0.001,
                  "algo.kl.use_loss": True, "algo.kl.estimator": "k3",
                  "rollout.n_samples_per_prompt": 8, "actor.adam.lr": 5e-7}),
    ("open-instruct", {"beta": 0.0, "load_ref_policy": False, "clip_higher": 0.272,
                       "num_samples_per_prompt_rollout": 16, "async_steps": 8,
                       "learning_rate": 1e-6, "mask_tool_use": True}),
    ("nemo-rl", {"loss_fn.ratio_clip_min": 0.2, "loss_fn.ratio_clip_max": 0.28,
                 "loss_fn.reference_policy_kl_penalty": 0.01, "grpo.normalize_rewards": True,
                 "loss_fn.reference_policy_kl_type": "k3",
                 "grpo.num_generations_per_prompt": 16}),
    ("skyrl", {"trainer.algorithm.eps_clip_high": 0.28, "generator.n_samples_per_prompt": 8,
               "generator.sampling_params.temperature": 1.0}),
    ("areal", {"actor.eps_clip": 0.2, "gconfig.n_samples": 8, "gconfig.temperature": 1.0,
               "actor.temperature": 1.0, "gconfig.top_k": 100_000_000, "actor.kl_ctl": 0.0}),
    ("roll", {"adv_estimator": "grpo", "num_return_sequences_in_group": 8, "pg_clip": 0.2,
              "use_kl_loss": True, "kl_loss_coef": 0.001, "dual_clip_loss": True,
              "rollout_batch_size": 64, "prompt_length": 2048, "response_length": 4096,
              "actor_infer.generating_args.temperature": 0.99,
              "actor_infer.generating_args.top_p": 0.99, "actor_infer.generating_args.top_k": 100,
              "actor_infer.strategy_args.strategy_config.max_model_len": 8000,
              "actor_train.training_args.learning_rate": 1e-6}),
    ("tinker-cookbook", {"group_size": 16, "learning_rate": 1e-5, "temperature": 1.0,
                         "lora_rank": 32, "max_tokens": 2048}),
    ("prime-rl", {"orchestrator.group_size": 16, "trainer.optim.lr": 1e-6,
                  "orchestrator.max_off_policy_steps": 8}),
    ("ms-swift", {"num_generations": 8, "beta": 0.04, "learning_rate": 1e-6, "lora_rank": 8,
                  "router_replay_mode": "disabled", "temperature": 1.0, "top_p": 0.95}),
    # The shapes of official examples that had raised an alarm.
    ("ms-swift", {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4,
                  "num_generations": 14, "use_vllm": True, "vllm_mode": "server"}),
    ("ms-swift", {"max_length": 2048, "max_completion_length": 1024, "vllm_max_model_len": 2048,
                  "num_generations": 8, "temperature": 1.0, "top_p": 0.9}),
    *(("ms-swift", {"num_generations": 1, teacher: "Qwen/Qwen3-8B", "scale_rewards": "group"})
      for teacher in ("teacher_model", "teacher_model_server")),
    ("ms-swift", {"num_generations": 1, "advantage_estimator": "reinforce_plus_plus"}),
    *(("prime-rl", {"orchestrator.group_size": 1, "orchestrator.algo.type": kind})
      for kind in ("rae", "opd", "opsd", "sft")),
    ("nemo-rl", {"grpo.normalize_rewards": True, "grpo.num_generations_per_prompt": 1,
                 "grpo.adv_estimator.name": "opd"}),
    ("nemo-rl", {"policy.generation.temperature": 0.8, "policy.generation.top_p": 0.8,
                 "policy.generation.top_k": 10}),
    ("nemo-rl", {"policy.generation.max_new_tokens": 16384,
                 "grpo.reward_shaping.overlong_buffer_length": 2048,
                 "grpo.reward_shaping.max_response_length": 14336}),
    ("roll", {"adv_estimator": "reinforce", "norm_mean_type": "group", "norm_std_type": "group",
              "num_return_sequences_in_group": 1, "teacher.worker_cls": "x"}),
    ("skyrl", {"trainer.algorithm.advantage_estimator": "loop", "generator.n_samples_per_prompt": 8,
               "trainer.algorithm.loss_reduction": "seq_mean_token_sum_norm"}),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "config"), SOUND, ids=[name for name, _ in SOUND])
def test_a_usual_config_of_each_framework_raises_no_alarm(
    framework: str, config: dict[str, Setting]
) -> None:
    knobs = configurable_framework_named(framework).knobs.read(config)
    result = lint(framework, config, knobs)
    assert [f.code for f in result.findings if f.severity != "info"] == []
    assert result.quiet, "no rule could look"


def test_every_fact_is_read_by_a_rule_and_found_in_a_config() -> None:
    folders = (Path("grpodoctor/rules/config"), Path("grpodoctor/preflight/checks"))
    source = "".join(path.read_text() for each in folders for path in each.rglob("*.py"))
    unread = {name for name in CONFIG_FACTS if f'"{name}"' not in source}
    assert unread == set()
    tables = [configurable_framework_named(name).knobs for name in FRAMEWORKS]
    assert CONFIG_FACTS.keys() <= {row.knob for table in tables for row in table.facts}


def engine_of(config: dict[str, Setting], framework: str = "verl") -> Engine:
    knobs = configurable_framework_named(framework).knobs.read(config)
    return Engine(CONFIG_RULES, Manifest(framework=framework, knobs=knobs, config=config))


def step(number: int, **knobs: Setting) -> StepRecord:
    return StepRecord(number, {"reward/mean": Mean.of([0.5])}, knobs)


def test_a_fault_is_a_finding_at_the_first_step() -> None:
    engine = engine_of({**GRPO, f"{ACTOR}.policy_loss.loss_mode": "gspo"})
    (change,) = engine.observe(step(7))
    assert (change.kind, change.finding.code) == ("raised", "CFG001")
    assert (change.finding.severity, change.finding.onset_step) == ("warning", 7)
    assert {each.metric: each.value for each in change.finding.evidence} == {
        "clip_low": 0.2,
        "clip_high": 0.2,
    }
    assert engine.observe(step(8)) == [], "it is not reported at every step"


def test_a_change_of_the_knob_resolves_it() -> None:
    engine = engine_of({**GRPO, f"{ACTOR}.policy_loss.loss_mode": "gspo"})
    engine.observe(step(1))
    (change,) = engine.observe(step(5, clip_low=3e-4, clip_high=4e-4))
    assert (change.kind, change.finding.code) == ("resolved", "CFG001")
    (again,) = engine.observe(step(9, clip_high=0.2))
    assert (again.kind, again.finding.onset_step) == ("raised", 9)


def test_a_run_that_starts_again_is_checked_again() -> None:
    engine = engine_of({**GRPO, f"{ACTOR}.policy_loss.loss_mode": "gspo"})
    engine.observe(step(5))
    engine.observe(step(6))
    changes = engine.observe(step(5))
    assert [change.kind for change in changes if change.finding.code == "CFG001"]
    assert [finding.code for finding in engine.diagnosis().findings] == ["CFG001"]


def test_without_a_config_all_are_skipped_for_one_reason() -> None:
    engine = engine_of({})
    engine.observe(step(1))
    diagnosis = engine.diagnosis()
    assert {rule.code for rule in diagnosis.skipped} == {rule.code for rule in CONFIG_RULES}
    assert {(rule.missing, rule.how) for rule in diagnosis.skipped} == {
        (("config",), "pass the run's config with --run-config FILE")
    }
    assert diagnosis.findings == ()


def test_a_setting_that_the_config_lacks_is_never_assumed() -> None:
    reasons = lint("trl", {"num_generations": 8}, {"group_size": 8}).not_applicable
    assert reasons["CFG020"] == "the config does not determine learner_temperature"
    assert "CFG051" in reasons
    engine = engine_of({"num_generations": 8}, "trl")
    engine.observe(step(1))
    assert engine.diagnosis().not_applicable == (), "a report is not filled with them"


def test_the_framework_of_a_config_is_recognized() -> None:
    assert framework_of_config(GRPO).name == "verl"
    assert framework_of_config({"loss_fn.ratio_clip_min": 0.2}).name == "nemo-rl"


def test_the_printed_settings_of_a_fault_s_remedy_remove_it() -> None:
    config = {**GRPO, f"{ACTOR}.policy_loss.loss_mode": "gspo"}
    for line in framework_settings({"clip_low": 3e-4, "clip_high": 4e-4}, "verl"):
        config[line.key] = float(line.value)
    knobs = configurable_framework_named("verl").knobs.read(config)
    assert "CFG001" not in {finding.code for finding in lint("verl", config, knobs).findings}


@pytest.mark.parametrize(
    ("framework", "config", "known"),
    [
        ("prime-rl", {"seq_len": 4096, "inference.model.max_model_len": 2048},
         {"context_length": 2048, "learner_length": 4096}),
        ("prime-rl", {"orchestrator.sampling.max_tokens": 512, "max_steps": 200,
                      "trainer.scheduler.warmup_steps": 20},
         {"max_length": 512, "total_steps": 200, "warmup_steps": 20}),
        ("verl", {f"{ACTOR}.optim.lr_warmup_steps": 10, "trainer.total_training_steps": 100},
         {"warmup_steps": 10, "total_steps": 100}),
        ("verl", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4}, {"device_responses": 4}),
        ("verl", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4, f"{ACTOR}.use_dynamic_bsz": True},
         {"device_responses": None}),
        ("verl", {"trainer.total_training_steps": -1}, {"total_steps": None}),
        ("trl", {"warmup_ratio": 0.7, "generation_batch_size": 60},
         {"warmup_share": 0.7, "batch_responses": 60}),
        ("ms-swift", {"warmup_ratio": 0.05, "generation_batch_size": 64},
         {"warmup_share": 0.05, "batch_responses": 64}),
        ("verl", {f"{ACTOR}.optim.lr_warmup_steps_ratio": 0.1}, {"warmup_share": 0.1}),
        ("openrlhf", {"rollout.batch_size": 32, "rollout.n_samples_per_prompt": 8,
                      "train.batch_size": 512},
         {"batch_responses": 256, "update_responses": 512}),
        ("slime", {"rollout_batch_size": 32, "n_samples_per_prompt": 8, "global_batch_size": 96},
         {"batch_responses": 256, "update_responses": 96}),
        ("prime-rl", {"orchestrator.batch_size": 60}, {"batch_responses": 60}),
        ("verl", {"trainer.total_epochs": 3, f"{ROLLOUT}.max_num_batched_tokens": 4096,
                  f"{ROLLOUT}.enable_chunked_prefill": False},
         {"epochs": 3, "sampler_batch_tokens": 4096, "chunked_prefill": False}),
        ("trl", {"num_train_epochs": 2}, {"epochs": 2}),
        *((name, {"adam_beta1": 0.9, "adam_beta2": 0.5, "adam_epsilon": 1e-6},
           {"adam_beta1": 0.9, "adam_beta2": 0.5, "adam_epsilon": 1e-6})
          for name in ("trl", "ms-swift")),
        *((name, {key: betas}, {"adam_beta1": 0.9, "adam_beta2": 0.95})
          for name, key in (("verl", f"{ACTOR}.optim.betas"),
                            ("nemo-rl", "policy.optimizer.kwargs.betas"),
                            ("skyrl", "trainer.policy.optimizer_config.adam_betas"))
          for betas in ("0.9 0.95", "[0.9,0.95]")),
        ("verl", {f"{ACTOR}.optim.betas": "0.9"}, {"adam_beta1": None, "adam_beta2": None}),
        ("verl", {f"{ACTOR}.optim.betas": "low high"}, {"adam_beta1": None}),
        ("skyrl", {"trainer.policy.optimizer_config.num_warmup_steps": 10}, {"warmup_steps": 10}),
        ("nemo-rl", {"policy.max_total_sequence_length": 512, "grpo.max_num_steps": 0},
         {"learner_length": 512, "total_steps": None}),
    ],
)  # fmt: skip
def test_lengths_and_counts_are_read(
    framework: str, config: dict[str, Setting], known: dict[str, Setting | None]
) -> None:
    table = configurable_framework_named(framework).knobs
    rows = {row.knob: row for row in (*table.mappings, *table.facts)}
    settings = {name: rows[name].read_from(config) for name in known}
    assert settings == known
