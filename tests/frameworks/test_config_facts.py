"""Facts that each framework's config states in its own words: adapters, quantized samplers."""

from __future__ import annotations

import pytest

from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.sampler_precision import PRINTED_QUANTIZATION
from grpodoctor.vocabulary.knobs import Setting

ROLLOUT = "actor_rollout_ref.rollout"
QUANTIZATION: list[tuple[str, str]] = [
    ("verl", f"{ROLLOUT}.quantization"),
    ("verl", f"{ROLLOUT}.engine_kwargs.vllm.quantization"),
    ("roll", "actor_infer.strategy_args.strategy_config.quantization"),
    ("slime", "sglang_quantization"),
    ("skyrl", "generator.inference_engine.engine_init_kwargs.quantization"),
    ("prime-rl", "inference.vllm.quantization"),
    ("nemo-rl", "policy.generation.vllm_cfg.precision"),
    ("ms-swift", "vllm_quantization"),
    ("areal", "sglang.quantization"),
    *((name, PRINTED_QUANTIZATION) for name in ("verl", "openrlhf", "open-instruct", "areal")),
]


@pytest.mark.parametrize(("framework", "key"), QUANTIZATION)
def test_a_quantized_sampler_is_known_from_its_setting(framework: str, key: str) -> None:
    table = configurable_framework_named(framework).knobs
    for value, is_quantized in (("fp8", True), ("awq", True), ("None", False), ("bfloat16", False)):
        assert table.read_facts({key: value})["sampler_quantized"] is is_quantized
    assert "sampler_quantized" not in table.read_facts({})


NEMO = "policy.automodel_cfg.lora_cfg"


@pytest.mark.parametrize(
    ("framework", "config", "rank"),
    [
        ("verl", {}, 0),
        ("verl", {"actor_rollout_ref.model.lora_rank": 32}, 32),
        ("verl", {"actor_rollout_ref.model.lora.rank": 16}, 16),
        ("verl", {"actor_rollout_ref.model.lora_adapter_path": "adapters"}, None),
        ("nemo-rl", {}, 0),
        ("nemo-rl", {f"{NEMO}.enabled": False, f"{NEMO}.dim": 8}, 0),
        ("nemo-rl", {f"{NEMO}.enabled": True, f"{NEMO}.dim": 8}, 8),
        ("trl", {}, None),
        ("trl", {"use_peft": False, "lora_r": 16}, 0),
        ("trl", {"use_peft": True}, 16),
        ("openrlhf", {}, 0),
        ("skyrl", {}, 0),
        ("slime", {}, 0),
        ("areal", {"actor.lora_rank": 32}, 0),
        ("areal", {"actor.use_lora": True}, 32),
        ("prime-rl", {"trainer.model.lora.rank": 8}, 8),
        ("prime-rl", {}, 0),
        ("open-instruct", {}, 0),
        ("ms-swift", {}, 8),
        ("roll", {}, 0),
        ("tinker-cookbook", {}, 32),
    ],
)
def test_a_config_without_adapters_has_the_framework_s_default(
    framework: str, config: dict[str, Setting], rank: int | None
) -> None:
    facts = configurable_framework_named(framework).knobs.read_facts(config)
    assert facts.get("lora_rank") == rank
