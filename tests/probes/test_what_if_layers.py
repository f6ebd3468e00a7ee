"""What-if edits of parts that few families have; each equals a fault written without it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import engine_transformers
from contract import InapplicableError, Processing, Response, Sampling
from hf.what_if.attention import _per_head
from hf.what_if.experts import _sources

from tests.probe.plants import planted_engine
from tests.probe.plants.families import adapter, checkpoint, prompts
from tests.probe.plants.set_checks import mostly_slow
from tests.samples import sampled

LOCAL, GLOBAL = "sliding_attention", "full_attention"


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unseen")


def loaded(folder: Path, **options: Any) -> Any:
    return engine_transformers.load(str(folder), {"threads": 1, **options})


def responses(engine: Any, count: int = 4) -> list[Response]:
    ids = [prompt["ids"] for prompt in prompts(count)]
    sampling = Sampling(samples=1, max_tokens=24, ignore_end=True)
    drawn: list[Response] = engine.sample(ids, sampling, ())
    return drawn


def scores(engine: Any, rows: list[Response]) -> np.ndarray:
    return np.concatenate([each.logprobs for each in engine.score(rows, Processing(), ())])


def compared(
    engine: Any, rows: list[Response], edits: Any, folder: Path, faults: str, **options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of an engine, of it with edits, and of one with faults that are written without."""
    plain = scores(engine, rows)
    with engine.altered(edits):
        edited = scores(engine, rows)
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": faults, **options})
    try:
        return plain, edited, scores(faulty, rows)
    finally:
        faulty.close()


def offered_with_effect_of(
    folder: Path, family: str, fault: str, edit: tuple[str, Any]
) -> list[dict[str, Any]]:
    """What an engine offers to try, after an edit had the effect of a fault and left no trace."""
    engine = loaded(checkpoint(folder, family))
    rows = responses(engine)
    plain, edited, wanted = compared(engine, rows, [edit], folder, fault)
    assert np.abs(wanted - plain).max() > 0.02
    assert np.abs(wanted - edited).max() < 2e-4
    assert np.array_equal(scores(engine, rows), plain)
    offered: list[dict[str, Any]] = engine.what_ifs()
    return offered


CASES = [
    ("gemma3", f"rope_of_type:{LOCAL},{GLOBAL}", ("layer_rope_like", [LOCAL, GLOBAL])),
    ("olmo3", f"rope_of_type:{LOCAL},{GLOBAL}", ("layer_rope_like", [LOCAL, GLOBAL])),
    ("olmo3", f"rope_of_type:{GLOBAL},{LOCAL}", ("layer_rope_base", [GLOBAL, 1e4])),
    ("smollm3", "rope_everywhere", ("layer_pattern", ["use_rope", 0])),
    ("stablelm", "whole_head_rotated", ("rotary_width", 16)),
    ("phi3", "rope_long", ("rope_type", "longrope/long")),
    ("glm4", "rope_halves", ("rope_layout", "halves")),
    ("cohere2", "pattern_shifted:1", ("layer_pattern", ["layer_types", "previous"])),
    ("gpt_oss", "without_sinks", ("without_sinks", True)),
    ("olmo2", "norm_sharded:2", ("norm_parts", 2)),
    ("qwen2_moe", "without_shared_gate", ("without_gate", "shared_expert_gate")),
    ("bloom", "without_alibi", ("without_alibi", True)),
    ("qwen3", "mlp_slice_lost:1,1,2", ("lost_part", ["1.mlp", "2/2"])),
    ("mistral", "attention_slice_lost:*,0,4", ("lost_part", ["self_attn", "1/4"])),
    ("gpt2", "bias_per_rank:2", ("bias_scale", ["c_proj", 2.0])),
    ("qwen2", "vocabulary_shift:1,2,0.5", ("vocabulary_part", ["2/2", 0.5])),
    ("llama", "layers_swapped:0,1", ("layer_from", ["0", "swap 1"])),
    ("llama", "layer_from:0,1", ("layer_from", ["0", "1"])),
    ("seed_oss", "block_scaled:0,mlp,0", ("layer_scale", ["0.mlp", 0.0])),
    ("mistral", "uniform:0.03", ("uniform_share", 0.03)),
    ("mpt", "alibi_max:16", ("alibi_power", 2.0)),
    ("glm4_moe", "correction_lost", ("without_bias", "e_score_correction_bias")),
    ("dots1", "correction_in_weights", ("router_weights", "corrected")),
    ("gptj", "halves_for_pairs", ("rope_layout", "halves")),
    ("hunyuan", "norm_before_rope", ("qk_norm_order", "before")),
    ("qwen3_next", "output_gate_open", ("open_gate", "self_attn")),
    ("gemma", "keys_values_exchanged:1", ("weights_from", ["1.self_attn.k_proj", "swap v_proj"])),
    ("falcon", "mlp_norm_shared", ("weights_from", ["*.ln_mlp", "ln_attn"])),
    ("cohere", "transposed:1", ("transposed", ["1.self_attn.o_proj", True])),
    ("mpt", "residual_bf16", ("residual_rounding", "bfloat16")),
    ("opt", "position_offset:0", ("position_start", -2)),
    ("youtu", "lse_base2:8", ("split_attention", 8)),
    ("solar_open", "kv_saturated:1", ("kv_saturation", 1.0)),
    ("glm", "gate_up_interleaved", ("weight_layout", ["gate_up_proj", "in turn"])),
    (
        "granitemoehybrid", "halves_swapped:shared_mlp.input_linear",
        ("weight_layout", ["input_linear", "swapped"]),
    ),
    ("hyperclovax", "qkv_grouped", ("weight_layout", ["qkv", "groups"])),
    ("olmo", "norm_uncentred", ("norm_mean", "without")),
    ("jais2", "norm_uncentred", ("norm_mean", "without")),
    ("afmoe", "norm_centred", ("norm_mean", "with")),
    ("nemotron_h", "norm_whole", ("norm_group_width", 128)),
    ("granitemoehybrid", "norm_weight_lost:rmsnormgated", ("unweighted_norm", "mamba.norm")),
    ("nemotron_h", "time_step_floor:1", ("setting", ["time_step_limit[0]", 1.0])),
    ("llama4", "router_on_output", ("router_place", "output")),
    ("llama4", "chunks_ignored", ("layer_pattern", ["layer_types", 1])),
    ("ministral", "rope_table:16", ("position_limit", 16)),
    ("flex_olmo", "inv_freq_bf16", ("rope_precision", "bfloat16/frequencies")),
    ("solar_open", "groups_by_max", ("router_groups", "best")),
    ("afmoe", "kv_heads_reversed", ("head_order", "reversed")),
    ("qwen3_5_moe", "linear_split", ("weight_layout", ["in_proj_qkv", "split among 2"])),
    ("granitemoe_swa", "keys_permuted:4", ("weight_layout", ["qkv", "keys permuted for 4"])),
    (
        "falcon_mamba", "steps_unnormed",
        ("without_norm", "dt_layernorm,b_layernorm,c_layernorm"),
    ),
    ("hy_v3", "router_softmax", ("router_scores", "softmax")),
    ("glm_moe_dsa", "indexer_halves", ("rope_layout", "halves in indexer")),
    ("kimi_linear", "decay_heads:2", ("rolled_heads", ["A_log", 2])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "fault", "edit"),
    mostly_slow(CASES, 2),
)
def test_an_edit_equals_a_fault_written_without_it(
    root: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    offered = offered_with_effect_of(root / family, family, fault, edit)
    assert list(edit) in [[e["name"], value] for e in offered for value in e["values"]]


THIRD_DRAW = [
    ("olmo3", "kv_keys:int4", ("kv_cache", "keys in int4")),
    ("qwen2", "rows_permuted", ("weight_layout", ["qkv", "weights in pairs"])),
    ("llama_scaled", "scaled_twice", ("rope_type", "twice")),
    ("minimax_m2", "last_part_rotated", ("rope_layout", "last")),
    ("gpt_oss", "sinks_of_first_rank", ("rolled_heads", ["sinks", -2])),
    ("llama", "fp8_products:32", ("linear_rounding", "fp8/block32/row")),
    ("qwen3_moe", "experts_in_turn", ("experts_from", ["*", "in turn among 2"])),
    ("qwen3_moe", "experts_of_first_rank", ("experts_from", ["*", "of the first rank of 2"])),
    ("llama", "kv_of_first_rank", ("head_order", "first of 2")),
    ("llama", "mxfp8:32", ("weight_rounding", "mxfp8")),
    ("llama", "probabilities_fp8", ("attention_weights", "fp8")),
    ("mixtral", "router_fp8", ("router_precision", "fp8")),
]


@pytest.mark.parametrize(("family", "fault", "edit"), THIRD_DRAW)
def test_a_change_of_one_operand_equals_the_fault(
    root: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    folder = checkpoint(root / family, family)
    engine = loaded(folder)
    rows = responses(engine)
    plain, edited, wanted = compared(engine, rows, [edit], folder, fault)
    assert np.abs(wanted - plain).max() > 2e-3
    assert np.abs(wanted - edited).max() < 2e-4
    assert list(edit) in [[e["name"], value] for e in engine.what_ifs() for value in e["values"]]


def test_all_ranks_may_have_the_experts_or_heads_of_the_last_one() -> None:
    assert _sources(4, "of the first rank of 2").tolist() == [0, 1, 0, 1]
    assert _sources(4, "of the last rank of 2").tolist() == [2, 3, 2, 3]
    keys = torch.arange(4.0).view(1, 4, 1, 1)
    assert _per_head(keys, 1, "last of 2").flatten().tolist() == [2, 3, 2, 3]
    with pytest.raises(InapplicableError, match="do not divide among 3 ranks"):
        _per_head(keys, 1, "first of 3")


NEW = (
    "bias_",
    "layer_",
    "lost_",
    "vocabulary_",
    "uniform_",
    "rotary_width",
    "rope_type",
    "without_",
    "norm_",
    "head_order",
    "kv_saturation",
    "split_",
    "unweighted_",
    "weight_layout",
    "position_limit",
    "rotation_limit",
    "mean_rows",
    "rolled_",
    "router_",
    "rope_precision",
    "adapter",
    "position_start",
    "alibi_",
    "open_",
    "residual_",
    "transposed",
    "weights_from",
)


@pytest.mark.parametrize(
    "family",
    sampled(
        ["gemma3", "smollm3", "phi3", "gpt2", "mpt", "dots1", "glm", "nemotron_h", "llama4"],
        {"smollm3", "nemotron_h"},
    ),
)
def test_every_edit_is_undone(root: Path, family: str) -> None:
    engine = loaded(checkpoint(root / family, family))
    rows = responses(engine, 1)
    before = scores(engine, rows)
    listed = [
        (entry["name"], value)
        for entry in engine.what_ifs()
        for value in entry["values"][:6]
        if entry["name"].startswith(NEW)
    ]
    effects = 0
    for edit in listed:
        try:
            with engine.altered([edit]):
                effects += not np.array_equal(scores(engine, rows), before)
        except InapplicableError:
            pass
        assert np.array_equal(scores(engine, rows), before), edit
    assert effects > 2


def test_rows_of_a_tensor_that_were_not_synced(root: Path) -> None:
    folder = checkpoint(root / "hunyuan", "hunyuan")
    stale = checkpoint(root / "hunyuan-stale", "hunyuan", changed=0.15)
    engine = loaded(folder)
    rows = responses(engine)
    plain = scores(engine, rows)
    part = "model.embed_tokens.weight[2/2]"
    with engine.altered([("other_weights", {"from": str(stale), "only": "^$", "parts": [part]})]):
        edited = scores(engine, rows)
    fault = f"block_from:embed_tokens,32,64,{stale}"
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": fault})
    wanted = scores(faulty, rows)
    faulty.close()
    assert np.abs(wanted - plain).max() > 0.02
    assert np.array_equal(wanted, edited)
    assert np.array_equal(scores(engine, rows), plain)
    missing = {"from": str(stale), "only": "^$", "parts": ["model.norm.weight[1/3]"]}
    with pytest.raises(InapplicableError), engine.altered([("other_weights", missing)]):
        pass


def test_positions_that_count_padding(root: Path) -> None:
    """A batch padded to the longest prompt, without positions from the mask."""
    folder = checkpoint(root / "gpt2", "gpt2")
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": "padding_counted"})
    ids = [prompt["ids"] for prompt in prompts(6)]
    drawn = faulty.sample(ids, Sampling(samples=1, max_tokens=16), ())
    faulty.close()
    engine = loaded(folder)
    with engine.altered([("padded_positions", max(map(len, ids)))]):
        edited = scores(engine, drawn)
    wanted = np.concatenate([each.logprobs for each in drawn])
    assert np.abs(scores(engine, drawn) - wanted).max() > 0.1
    assert np.abs(edited - wanted).max() < 2e-4


def test_an_adapter_with_another_scale(root: Path) -> None:
    folder = checkpoint(root / "olmo2", "olmo2")
    adapter(root / "adapter", folder, alpha=4)
    adapter(root / "loud", folder, alpha=12)
    engine, loud = (loaded(folder, adapter=str(root / name)) for name in ("adapter", "loud"))
    rows = responses(loud)
    with engine.altered([("adapter", 3.0)]):
        edited = scores(engine, rows)
    assert np.abs(edited - scores(loud, rows)).max() < 2e-4
    assert np.abs(edited - scores(engine, rows)).max() > 0.1


@pytest.mark.parametrize(
    ("family", "fault", "tokens"),
    [("olmo3", "prefix_from:OLDER", 0), ("glm4", "updated_after:5,OLDER", 5)],
)
def test_weights_that_change_within_a_response(
    root: Path, family: str, fault: str, tokens: int
) -> None:
    folder = checkpoint(root / family, family)
    older = checkpoint(root / f"{family}-older", family, changed=0.15)
    faults = fault.replace("OLDER", str(older))
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": faults})
    drawn = faulty.sample([p["ids"] for p in prompts(4)], Sampling(samples=1, max_tokens=16), ())
    wanted = np.concatenate([each.logprobs for each in drawn])
    engine = loaded(folder)
    with engine.altered([("weights_until", [str(older), tokens])]):
        edited = scores(engine, drawn)
    assert np.abs(edited - wanted).max() < 2e-4
    assert np.abs(scores(engine, drawn) - wanted).max() > 0.1


def test_a_model_that_is_its_own_base_model_can_be_probed(root: Path) -> None:
    """Llama 4's text model names no part as its base model; its trunk is found nevertheless."""
    folder = checkpoint(root / "llama4", "llama4")
    engine = loaded(folder)
    rows = responses(engine)
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for row, values in zip(rows, engine.score(rows, Processing(), ("experts",)), strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        with torch.no_grad():
            logprobs = plain(ids).logits[0, :-1].log_softmax(-1)
        wanted = logprobs.gather(1, ids[0, 1:, None])[len(row.prompt_ids) - 1 :, 0]
        assert np.abs(np.array(values.logprobs) - wanted.numpy()).max() < 1e-5
        assert values.extras["experts"].shape == (len(row.response_ids), 3, 1)
