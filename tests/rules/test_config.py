"""The rules about the configuration: a faulty one, a sound one, and one that does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from grpodoctor.rules.catalogue import all_rules, rule_of
from grpodoctor.rules.engine import Engine
from grpodoctor.rules.lint import lint
from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings, Undecided
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.trainer.config.knobs import knobs_of
from grpodoctor.trainer.config.presets import preset_names, preset_of
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.vocabulary.config_facts import CONFIG_FACTS, setting_named
from grpodoctor.vocabulary.knobs import KNOBS, Setting
from tests.rules.scenario import BANNED, MOST_WORDS

CONFIG_RULES = [rule for rule in all_rules() if isinstance(rule, ConfigRule)]
CLIP = {"clip_low": 0.2, "clip_high": 0.2}
CISPO: dict[str, Setting] = {"loss": "cispo", "clip_low": 1.0, "clip_high": 4.0}
PLAIN: dict[str, Setting] = {"loss": "ppo_clip", **CLIP}

SCENARIOS: dict[str, tuple[list[dict[str, Setting]], list[dict[str, Setting]]]] = {
    "CFG001": (
        [{**PLAIN, "loss": "gspo"}, {"loss": "gspo_token", "clip_low": 3e-4, "clip_high": 0.2}],
        [PLAIN, {"loss": "gspo", "clip_low": 4e-3, "clip_high": 5e-3}],
    ),
    "CFG002": (
        [{"aggregation": "constant", "advantage": "group"}],
        [
            {"aggregation": "constant", "advantage": "centred"},
            {"aggregation": "constant", "advantage": "gae"},
            {"aggregation": "token-mean", "advantage": "group"},
        ],
    ),
    "CFG003": (
        [{**CISPO, "clip_high": 0.28}, {**CISPO, "weight_cap": 0.28}],
        [CISPO, {**CISPO, "clip_high": 0.2, "weight_cap": 5.0}, {**PLAIN, "clip_high": 0.28}],
    ),
    "CFG004": (
        [{"loss": "dppo_binary_tv", "advantage": "group"}],
        [
            {"loss": "dppo_binary_kl", "advantage": "centred"},
            {"loss": "ppo_clip", "advantage": "group"},
        ],
    ),
    "CFG005": (
        [
            {**PLAIN, "clip_high": 0.28, "entropy_coefficient": 0.001},
            {**PLAIN, "loss": "kl_cov", "entropy_coefficient": 0.01},
            {**PLAIN, "clip_high": 0.28, "entropy_coefficient": 0.0, "temperature": 1.2},
        ],
        [
            {**PLAIN, "clip_high": 0.28, "entropy_coefficient": 0.0},
            {**PLAIN, "entropy_coefficient": 0.001},
            {**CISPO, "entropy_coefficient": 0.001},
        ],
    ),
    "CFG006": (
        [{"group_size": 1, "advantage": "group"}, {"group_size": 1, "advantage": "centred"}],
        [{"group_size": 1, "advantage": "gae"}, {"group_size": 2, "advantage": "group"}],
    ),
    "CFG007": ([{"padded_denominator": True}], [{"padded_denominator": False}]),
    "CFG008": (
        [{"sequence_ratio_weights_tokens": True}],
        [{"sequence_ratio_weights_tokens": False}],
    ),
    "CFG009": (
        [{"loss": "sapo", "clip_low": 0.2, "clip_high": 0.28}],
        [{**PLAIN, "clip_high": 0.28}, {**PLAIN, "loss": "sapo"}],
    ),
    "CFG010": (
        [
            {"loss": "reinforce", "updates_per_batch": 4},
            {"loss": "ppo_clip", "updates_per_batch": 4, "clip_high": 10.0},
        ],
        [
            {"loss": "reinforce", "updates_per_batch": 1},
            {"loss": "ppo_clip", "updates_per_batch": 16, "clip_high": 0.28},
            {**CISPO, "updates_per_batch": 16},
        ],
    ),
    "CFG011": (
        [{**PLAIN, "dual_clip": 1.2}, {**PLAIN, "dual_clip": 0.5}],
        [{**PLAIN, "dual_clip": 3.0}, {**PLAIN, "dual_clip": 0.0}, {**CISPO, "dual_clip": 3.0}],
    ),
    "CFG012": (
        [{"advantage": "gae", "dynamic_sampling": True}],
        [
            {"advantage": "gae", "dynamic_sampling": False},
            {"advantage": "group", "dynamic_sampling": True},
        ],
    ),
    "CFG013": (
        [{"group_size": 2, "advantage": "group"}],
        [
            {"group_size": 2, "advantage": "centred"},
            {"group_size": 2, "advantage": "gae"},
            {"group_size": 4, "advantage": "group"},
        ],
    ),
    "CFG014": ([{"prompts_per_batch": 1}], [{"prompts_per_batch": 2}]),
    "CFG015": (
        [{"advantage": "none"}],
        [{"advantage": name} for name in ("gae", "leave_one_out", "reinforce_plus_plus_baseline")],
    ),
    "CFG016": (
        [
            {"group_size": 6, "responses_per_process": 4},
            {"group_size": 7, "responses_per_process": 8},
            {"group_size": 8, "batch_responses": 60},
        ],
        [
            {"group_size": 8, "responses_per_process": 1},  # complete with 8 processes
            {"group_size": 6, "responses_per_process": 12},
            {"group_size": 6, "responses_per_process": 3},
            {"group_size": 6, "batch_responses": 60},
        ],
    ),
    "CFG017": (
        [
            {"update_responses": 2048, "batch_responses": 1024},
            {"update_responses": 96, "batch_responses": 256},
            {"update_responses": 300, "batch_responses": 300, "learner_devices": 8},
            {"update_responses": 512, "learner_devices": 96},
            {"update_responses": 512, "learner_devices": 8, "device_responses": 24},
        ],
        [
            {"update_responses": 512, "batch_responses": 1024, "learner_devices": 8,
             "device_responses": 4},
            {"update_responses": 512, "batch_responses": 512},
            {"update_responses": 512},
        ],
    ),
    "CFG020": (
        [{"temperature": 0.7, "learner_temperature": 1.0}],
        [{"temperature": 1.0, "learner_temperature": 1.0},
         {"temperature": 0.99, "learner_temperature": 1.0}],
    ),
    "CFG021": (
        [
            {"temperature": 1.0, "top_p": 0.9},
            {"temperature": 1.0, "top_p": 0.95},
            {"temperature": 1.0, "top_k": 10},
            {"temperature": 1.0, "top_k": 50},
            {"temperature": 1.0, "min_p": 0.1},
        ],
        [
            {"temperature": 1.0, "top_p": 1.0, "top_k": -1},
            {"temperature": 1.0, "top_k": 0, "min_p": 0.0},
            {"temperature": 1.0},
        ],
    ),
    "CFG022": (
        [{"group_size": 8, "greedy_sampling": True}, {"group_size": 8, "temperature": 0.1}],
        [
            {"group_size": 8, "temperature": 0.6},
            {"group_size": 8, "greedy_sampling": False, "temperature": 1.0},
            {"group_size": 8},
        ],
    ),
    "CFG023": (
        [{"repetition_penalty": 1.05}, {"repetition_penalty": 1.0, "blocked_ngrams": 2}],
        [{"repetition_penalty": 1.0}, {"repetition_penalty": 1.0, "blocked_ngrams": 0}],
    ),
    "CFG024": (
        [{"ignores_end_token": True}, {"least_length": 512, "max_length": 1024}],
        [{"ignores_end_token": False}, {"least_length": 8, "max_length": 1024}],
    ),
    "CFG025": (
        [
            {"max_length": 1024, "max_prompt_length": 512, "context_length": 1024},
            {"max_length": 2048, "context_length": 1024},
        ],
        [
            {"max_length": 1024, "max_prompt_length": 512, "context_length": 1536},
            {"max_length": 1024, "context_length": 1024},
        ],
    ),
    "CFG026": (
        [
            {"overlong_buffer": 1024, "max_length": 1024},
            {"overlong_buffer": 200, "max_length": 1024, "punishment_limit": 2048},
            {"overlong_buffer": 200, "max_length": 1024, "punishment_limit": 512},
        ],
        [
            {"overlong_buffer": 200, "max_length": 1024, "punishment_limit": 1024},
            {"overlong_buffer": 2048, "max_length": 1024, "overlong": "none"},
        ],
    ),
    "CFG027": ([{"tool_tokens_in_loss": True}], [{"tool_tokens_in_loss": False}]),
    "CFG028": (
        [
            {"learner_length": 2048, "context_length": 4096},
            {"learner_length": 2048, "max_length": 2048, "max_prompt_length": 512},
            {"learner_length": 2048, "max_length": 4096},
        ],
        [
            {"learner_length": 4096, "max_length": 3072, "max_prompt_length": 1024},
            {"learner_length": 4096, "context_length": 4096, "max_length": 4096},
            {"learner_length": 2048, "max_length": 2048, "max_prompt_length": 512,
             "context_length": 2048},
            {"learner_length": 4096, "max_length": 2048, "context_length": 32768},
        ],
    ),
    "CFG030": (
        [{"loss": "ppo_clip", "old_logprobs": "sampler", "updates_per_batch": 4}],
        [
            {"loss": "ppo_clip", "old_logprobs": "sampler", "updates_per_batch": 1},
            {"loss": "ppo_clip", "old_logprobs": "recompute", "updates_per_batch": 4},
            {"loss": "dppo_binary_tv", "old_logprobs": "sampler", "updates_per_batch": 4},
        ],
    ),
    "CFG031": (
        [
            {"loss": "dppo_binary_tv", "correction": "tis_token"},
            {"loss": "ppo_clip", "correction": "tis_token", "old_logprobs": "sampler"},
        ],
        [
            {"loss": "dppo_binary_tv", "correction": "none"},
            {"loss": "ppo_clip", "correction": "tis_token", "old_logprobs": "recompute"},
            {"loss": "ppo_clip", "correction": "tis_token"},
        ],
    ),
    "CFG032": (
        [{"sampler_quantized": True, "correction": "none", "loss": "ppo_clip"}],
        [
            {"sampler_quantized": True, "correction": "tis_token", "loss": "ppo_clip"},
            {"sampler_quantized": True, "correction": "none", "loss": "dppo_binary_tv"},
            {"sampler_quantized": False, "correction": "none", "loss": "ppo_clip"},
        ],
    ),
    "CFG033": (
        [{"staleness_limit": 8, "correction": "none", "loss": "ppo_clip"}],
        [
            {"staleness_limit": 4, "correction": "none", "loss": "ppo_clip"},
            {"staleness_limit": 8, "correction": "tis_token", "loss": "ppo_clip"},
            {"staleness_limit": 8, "correction": "none", "loss": "cispo"},
        ],
    ),
    "CFG040": (
        [{"kl_coefficient": 0.04, "reference_loaded": False}],
        [
            {"kl_coefficient": 0.0, "reference_loaded": False},
            {"kl_coefficient": 0.04, "reference_loaded": True},
        ],
    ),
    "CFG041": (
        [{"kl_in_reward": 0.001, "kl_in_loss": 0.001}],
        [{"kl_in_reward": 0.001, "kl_in_loss": 0.0}, {"kl_in_reward": 0.0, "kl_in_loss": 0.04}],
    ),
    "CFG042": (
        [{"kl_in_loss": 0.01, "kl_estimator": "k1"}],
        [{"kl_in_loss": 0.01, "kl_estimator": "k3"}, {"kl_in_loss": 0.0, "kl_estimator": "k1"}],
    ),
    "CFG043": ([{"kl_coefficient": 1.0}], [{"kl_coefficient": 0.1}]),
    "CFG050": (
        [
            {"learning_rate": 2e-4, "lora_rank": 0},
            {"learning_rate": 5e-5, "lora_rank": 0},
            {"learning_rate": 0.05, "lora_rank": 32},
            {"learning_rate": 0.05},
            {"learning_rate": 2e-5, "lora_rank": 0},
        ],
        [
            {"learning_rate": 2e-5},
            {"learning_rate": 1e-5, "lora_rank": 0},
            {"learning_rate": 2e-5, "lora_rank": 16},
            {"learning_rate": 1e-6, "lora_rank": 0},
            {"learning_rate": 2e-4, "lora_rank": 32},
            {"learning_rate": 1e-3, "lora_rank": 0, "pretrained_model": False},
        ],
    ),
    "CFG051": (
        [
            {"learning_rate": 0.0},
            {"learning_rate": 1e-12},
            {"learning_rate": 1e-8, "lora_rank": 0},
            {"learning_rate": 1e-7, "lora_rank": 16},
        ],
        [
            {"learning_rate": 1e-7},
            {"learning_rate": 1e-7, "lora_rank": 0},
            {"learning_rate": 1e-6, "lora_rank": 16},
        ],
    ),
    "CFG052": (
        [{"unprotected_bfloat16": True, "learning_rate": 1e-6}],
        [
            {"unprotected_bfloat16": False, "learning_rate": 1e-6},
            {"unprotected_bfloat16": True, "learning_rate": 1e-4},
        ],
    ),
    "CFG053": ([{"entropy_coefficient": -0.001}], [{"entropy_coefficient": 0.001}]),
    "CFG054": ([{"router_loss": 0.02}], [{"router_loss": 0.001}, {"router_loss": 0.0}]),
    "CFG055": (
        [{"advantage": "gae", "critic_pretraining": 0, "max_length": 4096}],
        [
            {"advantage": "gae", "critic_pretraining": 50, "max_length": 4096},
            {"advantage": "group", "critic_pretraining": 0, "max_length": 4096},
            {"advantage": "gae", "critic_pretraining": 0, "max_length": 28},
        ],
    ),
    "CFG056": (
        [{"entropy_coefficient": 0.3}],
        [{"entropy_coefficient": 0.05}, {"entropy_coefficient": -0.3}],
    ),
    "CFG057": (
        [
            {"warmup_steps": 500, "total_steps": 200},
            {"warmup_steps": 100, "total_steps": 200},
            {"warmup_share": 0.9},
        ],
        [
            {"warmup_share": 0.1},
            {"warmup_steps": 20, "total_steps": 200},
            {"warmup_steps": 0, "total_steps": 200},
        ],
    ),
    "CFG058": (
        [
            {"adam_beta1": 0.99, "adam_beta2": 0.5},
            {"adam_beta1": 0.9, "adam_beta2": 0.8, "adam_epsilon": 1e-8},
            {"adam_epsilon": 1.0},
        ],
        [
            {"adam_beta1": 0.9, "adam_beta2": 0.95},
            {"adam_beta1": 0.0, "adam_beta2": 0.0, "adam_epsilon": 1e-4},
            {"adam_beta1": 0.9, "adam_epsilon": 1e-15},
        ],
    ),
    "CFG029": (
        [
            {"sampler_batch_tokens": 1024, "chunked_prefill": False, "max_prompt_length": 1024,
             "max_length": 1024},
            {"sampler_batch_tokens": 2048, "chunked_prefill": False, "context_length": 4096},
        ],
        [
            {"sampler_batch_tokens": 1024, "chunked_prefill": True, "max_prompt_length": 1024,
             "max_length": 1024},
            {"sampler_batch_tokens": 2048, "chunked_prefill": False, "max_prompt_length": 1024,
             "max_length": 1024},
            {"sampler_batch_tokens": 256, "chunked_prefill": False, "max_length": 1024},
        ],
    ),
    "CFG061": ([], [PLAIN]),
    "CFG060": (
        [{"learning_rate": 1.0}, {"temperature": 2.5}],
        [{"learning_rate": 0.1}, {"temperature": 1.5}, PLAIN],
    ),
}  # fmt: skip
"""Faulty and sound settings for each rule."""

each_rule = pytest.mark.parametrize("rule", CONFIG_RULES, ids=lambda rule: rule.code)


def fault(rule: ConfigRule, settings: Mapping[str, Setting]) -> ConfigFault | None:
    for name, value in settings.items():
        assert setting_named(name).check(value) == value, name
    assert set(rule.needs) <= settings.keys(), "the scenario lacks a setting"
    found = rule.find_fault(Settings(settings))
    assert not isinstance(found, Undecided)
    return found


def test_every_rule_has_scenarios() -> None:
    assert {rule.code for rule in CONFIG_RULES} == SCENARIOS.keys()


@each_rule
def test_a_faulty_config_is_reported(rule: ConfigRule) -> None:
    for settings in SCENARIOS[rule.code][0]:
        found = fault(rule, settings)
        assert found is not None, settings
        assert len(found.summary.split()) <= MOST_WORDS
        assert not any(word in found.summary for word in BANNED)
        assert found.summary.endswith(".")


@each_rule
def test_a_sound_config_is_not_reported(rule: ConfigRule) -> None:
    for settings in SCENARIOS[rule.code][1]:
        assert fault(rule, settings) is None, settings


SEVERITIES: list[tuple[str, dict[str, Setting], str]] = [
    ("CFG016", {"group_size": 14, "responses_per_process": 4}, "warning"),
    ("CFG016", {"group_size": 14, "responses_per_process": 4, "sampler_apart": False}, "warning"),
    ("CFG016", {"group_size": 14, "responses_per_process": 4, "sampler_apart": True}, "info"),
    ("CFG021", {"temperature": 1.0, "top_p": 0.8}, "warning"),
    ("CFG021", {"temperature": 1.0, "top_p": 0.85}, "info"),
    ("CFG025", {"max_length": 2048, "context_length": 1024}, "warning"),
    ("CFG025", {"max_length": 1024, "max_prompt_length": 2048, "context_length": 2048}, "info"),
    ("CFG026", {"overlong_buffer": 200, "max_length": 1024, "punishment_limit": 824}, "info"),
    ("CFG026", {"overlong_buffer": 200, "max_length": 1024, "punishment_limit": 823}, "warning"),
    ("CFG026", {"overlong_buffer": 200, "max_length": 1024, "punishment_limit": 1100}, "warning"),
]


@pytest.mark.parametrize(("code", "settings", "severity"), SEVERITIES)
def test_what_may_be_intended_is_a_note(
    code: str, settings: dict[str, Setting], severity: str
) -> None:
    rule = rule_of(code)
    assert isinstance(rule, ConfigRule)
    found = fault(rule, settings)
    assert found is not None
    assert found.severity == severity


@each_rule
def test_the_needs_are_knobs_or_facts(rule: ConfigRule) -> None:
    # CFG024, CFG057 and CFG058 need one of two settings, CFG060 and CFG061 read all.
    assert rule.needs or rule.code in ("CFG024", "CFG057", "CFG058", "CFG060", "CFG061")
    assert all(name in KNOBS or name in CONFIG_FACTS for name in rule.needs)


def test_a_misspelt_key_is_reported() -> None:
    config = {"num_generation": 16, "temprature": 0.7, "learning_rate": 1e-6, "beta": 0.0}
    (found,) = lint("trl", config, {}, [rule_of("CFG061")]).findings
    assert found.summary == (
        "num_generation is no known setting; did you mean num_generations, and 1 more?"
    )
    assert not lint("trl", {**config, "num_generations": 16, "temperature": 0.7}, {},
                    [rule_of("CFG061")]).findings  # fmt: skip


PRESET_NOTES = {"two_grpo": ["CFG013"], "reinforce": ["CFG015"]}
"""Notes on presets that choose such settings on purpose."""


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_clean(name: str) -> None:
    config = load_config(preset_of(name).settings)
    findings = lint("grpodoctor", config.model_dump(), knobs_of(config)).findings
    assert [finding.code for finding in findings] == PRESET_NOTES.get(name, [])
    assert all(finding.severity == "info" for finding in findings)


def test_every_rule_s_code_is_in_its_file() -> None:
    for rule in CONFIG_RULES:
        assert rule_of(rule.code) is rule


def _bundled(settings: Mapping[str, Any]) -> Engine:
    config = load_config(settings)
    return Engine(CONFIG_RULES, Manifest(config=config.model_dump(), knobs=knobs_of(config)))


def _observe(engine: Engine, changes: Mapping[int, Mapping[str, Setting]], last: int) -> None:
    for step in range(engine.chart.step + 1, last + 1):
        engine.observe(StepRecord(step, {}, changes.get(step, {})))


def _codes(engine: Engine, *, active: bool = True) -> list[str]:
    return [each.code for each in engine.diagnosis().findings if each.active == active]


SAMPLER_RATIO: dict[str, Any] = {"engine": {"precision": "int4", "old_logprobs": "sampler"}}
ON: dict[str, Setting] = {"old_logprobs": "recompute"}
OFF: dict[str, Setting] = {"old_logprobs": "sampler"}


def test_a_finding_ends_with_the_setting_that_it_is_about() -> None:
    engine = _bundled(SAMPLER_RATIO)
    _observe(engine, {5: ON}, 4)
    assert "CFG030" in _codes(engine)
    _observe(engine, {5: ON}, 5)
    assert "CFG030" not in _codes(engine)
    assert "CFG030" in _codes(engine, active=False)


def test_a_finding_ends_after_a_trial_that_switches_the_setting() -> None:
    """Each return of the fault doubles the clearance, which counts steps and not changes."""
    trial = {5: ON, 8: OFF, 10: ON, 12: OFF, 14: ON, 16: OFF, 20: ON}
    engine = _bundled(SAMPLER_RATIO)
    _observe(engine, trial, 19)
    assert "CFG030" in _codes(engine)
    _observe(engine, trial, 60)
    assert "CFG030" not in _codes(engine)
    assert len([code for code in _codes(engine, active=False) if code == "CFG030"]) < 4


def test_a_fact_follows_the_setting_that_it_is_read_from() -> None:
    """A fact is read from the config, which lists the settings of the start."""
    engine = _bundled({"rollout": {"temperature": 1.0}})
    changes: dict[int, dict[str, Setting]] = {5: {"temperature": 0.8}}
    _observe(engine, changes, 10)
    assert engine.chart.config.facts["learner_temperature"] == 0.8
    assert _codes(engine) == []
    engine.observe(StepRecord(3, {}, {}))  # the run goes back to before the change
    assert engine.chart.config.facts["learner_temperature"] == 1.0
    apart = _bundled({"rollout": {"temperature": 1.0}, "engine": {"temperature": 1.0}})
    _observe(apart, changes, 10)
    assert _codes(apart) == ["CFG020"]
