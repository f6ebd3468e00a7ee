"""What-if edits of what ranks hold of projections, and of numbers fixed before the run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError, Processing, Response
from hf.what_if import rank_parts
from hf.what_if.rounding import rounded

from tests.probe.plants.families import checkpoint
from tests.probes.test_what_if_layers import compared, loaded, responses, scores

pytestmark = pytest.mark.usefixtures("without_planted_faults")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def llama(root: Path) -> Any:
    return loaded(checkpoint(root / "llama", "llama"))


def test_a_rank_has_outputs_of_most_projections_and_inputs_of_the_last_ones(llama: Any) -> None:
    layer = llama._model.model.layers[1]
    before = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
    with llama.altered([("rank_part", ["1:*", "lost 2/4"])]):
        assert not layer.self_attn.q_proj.weight[16:32].any()
        assert not layer.self_attn.o_proj.weight[:, 16:32].any()
        assert not layer.mlp.down_proj.weight[:, 24:48].any()
        kept = layer.self_attn.q_proj.weight[:16]
        assert torch.equal(kept, before["self_attn.q_proj.weight"][:16])
        assert torch.equal(layer.input_layernorm.weight, before["input_layernorm.weight"])
        assert llama._model.model.layers[0].mlp.up_proj.weight[24:48].any()
    with llama.altered([("rank_part", ["self_attn.k_proj.weight", "first 2"])]):
        keys = layer.self_attn.k_proj.weight
        assert torch.equal(keys[16:], keys[:16])
        assert torch.equal(layer.self_attn.q_proj.weight, before["self_attn.q_proj.weight"])
    for name, weight in layer.named_parameters():
        assert torch.equal(weight, before[name])


def test_ranks_that_all_move_on_compute_the_same(llama: Any) -> None:
    """The part of the next rank in every projection is a permutation of the ranks."""
    rows = responses(llama)
    plain = scores(llama, rows)
    with llama.altered([("rank_part", ["*", "next 2"])]):
        assert np.abs(scores(llama, rows) - plain).max() < 1e-4
    with llama.altered([("rank_part", ["mlp.up_proj.weight", "next 2"])]):
        assert np.abs(scores(llama, rows) - plain).max() > 0.02
    with (
        pytest.raises(InapplicableError, match="no tensor"),
        llama.altered([("rank_part", ["self_attn.q_proj.weight", "lost 1/3"])]),
    ):
        pass


def test_the_effect_of_a_group_is_estimated_by_the_sum_of_its_tensors(llama: Any) -> None:
    rows = responses(llama)
    edits, arrays = llama.first_order(rows, Processing(), 64)
    found = {
        (one["attribute"], one["value"]): arrays["effects_EN"][number]
        for number, one in enumerate(edits)
        if one["name"] == "rank_part" and number < len(arrays["effects_EN"])
    }
    parts = [
        found[f"mlp.{name}.weight", "lost 3/8"] for name in ("gate_proj", "up_proj", "down_proj")
    ]
    np.testing.assert_allclose(found["mlp.*", "lost 3/8"], sum(parts), atol=1e-4)
    plain = scores(llama, rows)
    with llama.altered([("rank_part", ["1:self_attn.o_proj.weight", "lost 3/8"])]):
        moved = (scores(llama, rows) - plain)[arrays["token_N"]]
    estimate = found["1:self_attn.o_proj.weight", "lost 3/8"]
    assert np.corrcoef(moved, estimate)[0, 1] > 0.8


def test_a_parameter_belongs_to_all_modules_around_it() -> None:
    assert rank_parts.groups_of("mlp.experts.gate_up_proj") == [
        "mlp.experts.gate_up_proj", "mlp.*", "*",
    ]  # fmt: skip
    assert rank_parts.groups_of("self_attn.q_proj.weight") == [
        "self_attn.q_proj.weight", "self_attn.*", "*",
    ]  # fmt: skip


def test_chunks_see_no_earlier_chunk(llama: Any) -> None:
    """The rows of a chunk then have the keys of their chunk alone."""
    rows = responses(llama, 2)
    plain = scores(llama, rows)
    long = max(len(row.prompt_ids) + len(row.response_ids) for row in rows)
    with llama.altered([("attention_chunk", long)]):
        np.testing.assert_allclose(scores(llama, rows), plain, atol=1e-5)
    with llama.altered([("attention_chunk", 1)]):
        chunked = scores(llama, rows)
    with llama.altered([("window", 1)]):
        np.testing.assert_allclose(chunked, scores(llama, rows), atol=1e-5)
    with llama.altered([("attention_chunk", 8)]):
        assert np.abs(scores(llama, rows) - plain).max() > 0.02
    with llama.altered([("in_prompt", ["attention_chunk", 4])]):
        assert np.abs(scores(llama, rows) - plain).max() > 0.02
    listed = [each for each in llama.what_ifs() if each["name"] == "attention_chunk"]
    assert listed[0]["kind"] == "integer"


def test_a_later_chunk_is_scored_like_its_tokens_alone(llama: Any) -> None:
    (row,) = responses(llama, 1)
    ids, width = [*row.prompt_ids, *row.response_ids], 8
    start = -(-len(row.prompt_ids) // width) * width
    assert start + width < len(ids)
    chunk = ids[start : start + width + 1]
    alone = scores(llama, [Response(chunk[:1], chunk[1:], [0.0] * width, 0, 0)])
    with llama.altered([("attention_chunk", width)]):
        first = start + 1 - len(row.prompt_ids)
        chunked = scores(llama, [row])[first : first + width]
    np.testing.assert_allclose(chunked, alone, atol=1e-4)


def test_groups_are_read_with_the_scales_of_their_neighbors() -> None:
    values = torch.randn(6, 64, generator=torch.Generator().manual_seed(2))
    plain = rounded(values, "int4/group16").unflatten(-1, (4, 16))
    largest = values.unflatten(-1, (4, 16)).abs().amax(-1, keepdim=True)
    for scheme, along in (("int4/next16", 1), ("int4/below16", 0)):
        wanted = plain * largest.roll(-1, along) / largest
        found = rounded(values, scheme).unflatten(-1, (4, 16))
        torch.testing.assert_close(found, wanted)


FIXED = [
    ("apertus_llama3", "rope_factor:39", ("rope_parameter", ["factor", 39.0])),
    ("mistral", "static_scale:1.59", ("input_saturation", 1.59)),
]


@pytest.mark.parametrize(("family", "fault", "edit"), FIXED)
def test_another_fixed_number_equals_the_fault(
    root: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    folder = checkpoint(root / family, family)
    engine = loaded(folder)
    rows = responses(engine)
    plain, edited, wanted = compared(engine, rows, [edit], folder, fault)
    assert np.abs(wanted - plain).max() > 0.02
    assert np.abs(wanted - edited).max() < 2e-4
    name, value = edit
    first = [each["values"][0] for each in engine.what_ifs() if each["name"] == name]
    assert any(not isinstance(value, list) or each[0] == value[0] for each in first)
    assert np.array_equal(scores(engine, rows), plain)
