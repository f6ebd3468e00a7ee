"""The plants of all natural draws load, are as many as stated, and are gaps that matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.set_checks import (
    alone,
    check_each_of_two_matters_alone,
    check_fault_changes_its_engine_alone,
    check_gap_matters_unless_healthy,
    doubles,
    group_sizes,
    mostly_slow,
)

PLANTS = [each for each in unseen() if "-draw" in each.group]
SIZES = {
    "natural-draw-healthy": 5,
    "natural-draw": 20,
    "natural-draw-double": 6,
    "second-draw-a": 15,
    "second-draw-b": 15,
    "second-draw-a-double": 5,
    "second-draw-b-double": 5,
    "second-draw-a-healthy": 3,
    "second-draw-b-healthy": 3,
    "third-draw-a": 12,
    "third-draw-b": 12,
    "third-draw-a-double": 6,
    "third-draw-b-double": 6,
    "third-draw-a-healthy": 3,
    "third-draw-b-healthy": 3,
    "fourth-draw-a": 8,
    "fourth-draw-b": 8,
    "fourth-draw-a-double": 3,
    "fourth-draw-b-double": 3,
    "fourth-draw-a-healthy": 2,
    "fourth-draw-b-healthy": 2,
    "fifth-draw-a": 8,
    "fifth-draw-b": 8,
    "fifth-draw-a-double": 4,
    "fifth-draw-b-double": 4,
    "fifth-draw-a-healthy": 2,
    "fifth-draw-b-healthy": 2,
    "sixth-draw-a": 7,
    "sixth-draw-b": 7,
    "sixth-draw-a-double": 3,
    "sixth-draw-b-double": 3,
    "sixth-draw-a-healthy": 2,
    "sixth-draw-b-healthy": 2,
    "seventh-draw-a": 10,
    "seventh-draw-b": 10,
    "seventh-draw-a-double": 2,
    "seventh-draw-b-double": 2,
    "seventh-draw-a-healthy": 2,
    "seventh-draw-b-healthy": 2,
    "eighth-draw-a": 8,
    "eighth-draw-b": 8,
    "eighth-draw-a-double": 4,
    "eighth-draw-b-double": 4,
    "eighth-draw-a-healthy": 2,
    "eighth-draw-b-healthy": 2,
}
COMPUTED = (
    ("iquestcoder", "rope_default", "10000"),
    ("apertus_llama3", "rope_default", "10000"),
    ("dots1", "router_correction_lost", ""),
    ("glm4_moe", "weights_not_normalised", ""),
    ("hunyuan", "four_bits", ""),
    ("phi3", "qkv_by_group", ""),
    ("cwm", "kv_heads_in_turn", ""),
    ("gpt_oss", "sinks_ignored", ""),
    ("xglm", "training_mode", ""),
    ("qwen2", "without_qkv_bias", ""),
    ("glm4", "rope_full", ""),
    ("granite_tied", "residual_one", ""),
    ("phimoe", "expert_pair_exchanged", "1"),
    ("vaultgemma", "final_norm_plus_one", ""),
    ("lfm2", "rope_base_times", "0.149"),
    ("llama_scaled", "scaling_ignored", ""),
    ("qwen2", "bias_cut", ""),
    ("gpt_oss", "expert_bias_whole", ""),
    ("glm4_moe_lite", "fp8_products", "32"),
    ("glm4_moe_lite", "routed_factor_lost", ""),
    ("deepseek_yarn", "latent_norm_lost", ""),
    ("deepseek_yarn", "yarn_scale_lost", ""),
    ("granite_tied", "embedding_multiplier", "1"),
    ("gpt_neox", "other_residual", ""),
    ("diffllama", "int8_products", ""),
    ("apertus", "groups_in_order", "16"),
    ("qwen2_moe", "exchanged", "input_layernorm,post_attention_layernorm"),
    ("arcee", "nvfp4", "16"),
    ("qwen2", "rows_permuted", ""),
    ("llama_scaled", "scaled_twice", ""),
    ("vaultgemma", "window_everywhere", ""),
    ("mistral", "static_scale", "1.59"),
    ("aria", "experts_of_first_rank", ""),
    ("qwen3_yarn", "yarn_factor_lost", ""),
    ("apertus_llama3", "rope_factor", "39"),
    ("beam", "zero_point", "16"),
    ("mistral", "gate_times", "1.92"),
    ("seed_oss", "kv_of_first_rank", ""),
    ("llama", "cast_fp8", ""),
    ("llama", "int8_tensor", ""),
    ("aria", "experts_int4", "16"),
    ("qwen2", "layers_exchanged", "0,1"),
    ("llama", "kv_clipped", "1.2"),
    ("glm4", "kv_unscaled", "1.4"),
    ("dots1", "correction_moved", "0.1"),
    ("mixtral", "replay_shifted", "1"),
    ("aria", "shared_experts_times", "2"),
    ("deepseek_v2", "latent_fp8", "e5m2"),
    ("llama_scaled", "rope_setting", "original_max_position_embeddings,195"),
    ("qwen3_yarn", "rope_setting", "beta_fast,2"),
    ("cwm", "columns_of_first_rank", ""),
    ("persimmon", "attention_fp8", ""),
    ("seed_oss", "up_scaled", "1.67"),
    ("qwen2", "values_rescaled", "1.64"),
    ("olmo3", "window_above", "1"),
    ("mixtral", "slots_sorted", ""),
    ("dots1", "gate_up_blocks", "16"),
    ("gemma2", "norm_plus_one", "post_feedforward_layernorm"),
    ("minicpm3", "dummy_pair", "1"),
    ("gemma4", "router_norm_twice", ""),
    ("gemma4_unified", "layer_scalars", "0.8,1.3,0.9"),
    ("qwen3_5", "linear_gate", "sigmoid"),
    ("qwen3_yarn", "yarn_untruncated", ""),
    ("deepseek_v32", "indexer_unrectified", ""),
    ("hunyuan", "weights_saturated", "240"),
    ("seed_oss", "sines_lost", ""),
    ("glm4", "unrotated_from", "12"),
    ("qwen3_moe", "expert_summed_twice", "1"),
    ("minimax_m2", "norm_of_first_shard", "2"),
    ("nemotron", "rotation_lost", "32"),
    ("arcee", "streaming", "4,12"),
    ("bamba", "step_bias_twice", ""),
    ("internlm3", "rows_averaged", "56"),
    ("internlm3", "group_index_ignored", "16"),
    ("olmo2", "norm_eps_of", "post_attention_layernorm,0.3"),
)
"""Faults of the forward pass that a draw was the first to have: family, name and value."""


def test_the_sets_have_the_stated_sizes() -> None:
    assert group_sizes(PLANTS) == SIZES
    assert len({each.key for each in PLANTS}) == len(PLANTS)


@pytest.mark.parametrize(("family", "fault", "value"), mostly_slow(COMPUTED, 4))
def test_a_fault_changes_the_values_of_its_engine_alone(
    load: Any, family: str, fault: str, value: str
) -> None:
    check_fault_changes_its_engine_alone(load, family, fault, value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    # Its values are right: only the drawing is wrong.
    [each for each in PLANTS if "drafts_by_likeliest" not in each.faults],
    ids=lambda plant: plant.key,
)
def test_a_fault_is_a_gap_that_matters_and_a_healthy_pair_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    check_gap_matters_unless_healthy(root, monkeypatch, plant)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [each for each in doubles(PLANTS) if not each.group.startswith("natural")],
    ids=lambda plant: plant.key,
)
def test_each_of_two_faults_matters_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    check_each_of_two_matters_alone(root, monkeypatch, alone(plant))
