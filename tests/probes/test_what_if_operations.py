"""Generic edits of operations: each equals a fault, and its effect is estimated to first order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError, Processing, RefusalError
from hf.what_if.operation_edits import Forms
from hf.what_if.operations import Site, Trace

from tests.probe.plants.families import checkpoint
from tests.probes.test_what_if_layers import compared, loaded, responses, scores

pytestmark = pytest.mark.usefixtures("without_planted_faults")

FAULTS: list[tuple[str, str, tuple[str, Any]]] = [
    ("gemma", "activation_on_product", ("operation", ["mlp#0:mul", "later gelu of 0"])),
    ("arcee", "keys_rotated_twice",
     ("operation", ["self_attn#21:add",
                    "twice rotation of self_attn.k_proj from self_attn#3:transpose"])),
    ("flex_olmo", "expert_overwritten", ("expert_sum", ["*", "last"])),
    ("lfm2", "conv_flipped", ("site_change", ["conv.conv.weight/weight", "reversed"])),
    ("starcoder2", "heads_merged", ("operation", ["self_attn#32:reshape", "axes"])),
    ("mamba", "inputs_outputs_exchanged", ("operation", ["mixer#13:split", "exchanged 1,2"])),
    ("seed_oss", "kv_of_layer_before",
     ("operation", ["2:self_attn#22:scaled_dot_product_attention", "operands 1,2 before"])),
    ("ministral", "norm_statistics",
     ("operation", ["post_attention_layernorm#4:rsqrt", "from input_layernorm#4:rsqrt"])),
    ("stablelm", "self_masked", ("mask_border", "self")),
    ("glm", "residual_clamped:2", ("site_bound", ["/out", 2.0])),
]  # fmt: skip
"""Family, fault, and the edit that equals it."""


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operations")


@pytest.mark.parametrize(
    ("family", "fault", "edit"),
    [
        pytest.param(*case, marks=pytest.mark.slow if number > 1 else (), id=f"{case[0]}-{case[1]}")
        for number, case in enumerate(FAULTS)
    ],
)
def test_edits_equal_a_fault_written_without_them(
    root: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    folder = checkpoint(root / family, family)
    engine = loaded(folder)
    rows = responses(engine)
    listed, arrays = engine.first_order(rows, Processing(), 48)
    edits = [[one["name"], [one["attribute"], one["value"]]] for one in listed]
    whole = [[one["name"], value] for one in engine.what_ifs() for value in one["values"]]
    sites = [[one["name"], one["attribute"]] for one in listed]
    is_number = edit[0] == "site_bound" and [edit[0], edit[1][0]] in sites
    assert list(edit) in edits or list(edit) in whole or is_number
    assert len(arrays["effects_EN"]) <= len(edits)
    plain, edited, wanted = compared(engine, rows, [edit], folder, fault)
    assert np.abs(wanted - plain).max() > 0.02
    assert np.abs(wanted - edited).max() < 2e-4
    assert np.array_equal(scores(engine, rows), plain)


@pytest.mark.parametrize("family", ["llama", pytest.param("gemma2", marks=pytest.mark.slow)])
def test_estimates_are_the_derivatives_of_small_changes(root: Path, family: str) -> None:
    engine = loaded(checkpoint(root / family, family))
    rows = responses(engine)
    before = scores(engine, rows)
    listed, arrays = engine.first_order(rows, Processing(), 48)
    at = arrays["token_N"]
    np.testing.assert_allclose(arrays["logprob_N"], before[at], atol=1e-5)
    factors = [n for n, one in enumerate(listed) if one["name"] == "site_scale"]
    for number in factors[::4]:
        with engine.altered([("site_scale", [listed[number]["attribute"], 1.001])]):
            moved = (scores(engine, rows)[at] - before[at]) * 1000
        estimate = arrays["effects_EN"][number]
        assert np.corrcoef(moved, estimate)[0, 1] > 0.98 or np.abs(moved).max() < 0.02
    assert len(factors) > 20
    assert np.array_equal(scores(engine, rows), before)
    assert not engine._split.gradients


def test_an_edit_is_the_same_while_experts_are_recorded(root: Path) -> None:
    """Recording calls torch functions, which an edit of the n-th call must not count."""
    engine = loaded(checkpoint(root / "qwen2_moe", "qwen2_moe"))
    rows, plain = responses(engine), scores(engine, responses(engine))
    with engine.altered([("operation", ["mlp#1:sigmoid", "skipped"])]):
        edited = scores(engine, rows)
        recorded = engine.score(rows, Processing(), ("experts",))
    assert np.abs(edited - plain).max() > 0.02
    np.testing.assert_array_equal(np.concatenate([one.logprobs for one in recorded]), edited)


def test_gradients_out_of_memory_are_refused_and_leave_the_model_as_it_was(root: Path) -> None:
    engine = loaded(checkpoint(root / "llama", "llama"))
    rows = responses(engine)
    before = scores(engine, rows)
    needed = [weight.requires_grad for weight in engine._model.parameters()]
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    with (
        mock.patch.object(torch.autograd, "grad", side_effect=full) as called,
        pytest.raises(RefusalError, match="out of memory"),
    ):
        engine.first_order(rows, Processing(), 48)
    assert called.called
    assert not engine._split.gradients
    assert [weight.requires_grad for weight in engine._model.parameters()] == needed
    assert not any(module._forward_hooks for module in engine._model.modules())
    assert np.array_equal(scores(engine, rows), before)
    _, arrays = engine.first_order(rows, Processing(), 48)
    assert len(arrays["effects_EN"])


@pytest.mark.parametrize("place", ["operations", "sites"])
def test_changes_out_of_memory_are_refused(root: Path, place: str) -> None:
    """The error in the computation of a single edit is no edit that does not fit."""
    engine = loaded(checkpoint(root / "llama", "llama"))
    full = torch.OutOfMemoryError("CUDA out of memory.")
    target = {
        "operations": "hf.localisation.first_order.changed",
        "sites": "hf.localisation.first_order.sites.changed_by",
    }[place]
    with mock.patch(target, side_effect=full), pytest.raises(RefusalError, match="out of memory"):
        engine.first_order(responses(engine), Processing(), 48)


def test_the_forms_of_an_operation_follow_the_graph(root: Path) -> None:
    model = loaded(checkpoint(root / "llama", "llama"))._model
    model.requires_grad_(False)
    trace = Trace(model, keeps=True)
    embedding = model.get_input_embeddings()
    handle = embedding.register_forward_hook(lambda _m, _i, out: out.detach().requires_grad_())
    with trace.following(), torch.enable_grad():
        model(input_ids=torch.tensor([[1, 2, 3, 4]]), use_cache=False)
    handle.remove()
    forms, found = Forms(trace), {}
    for call in trace.calls[1].values():
        if any(one.requires_grad for one in call.outputs):
            found[str(call.site.anywhere)] = list(forms.of(call))
    product = found["mlp#0:mul"]
    assert "later silu of 0" in product
    assert "skipped" in product
    attends = next(site for site in found if site.endswith(":scaled_dot_product_attention"))
    assert "operands 1,2 before" in found[attends]
    twice = [form for each in found.values() for form in each if form.startswith("twice rotation")]
    assert {form.split(" from ")[0] for form in twice} == {
        "twice rotation of self_attn.q_proj", "twice rotation of self_attn.k_proj"
    }  # fmt: skip


def test_an_operation_that_the_model_lacks_is_inapplicable(root: Path) -> None:
    engine = loaded(checkpoint(root / "llama", "llama"))
    rows = responses(engine, 1)
    before = scores(engine, rows)
    for value in (["mlp#0:matmul", "skipped"], ["mlp#0:mul", "later gelu of 0"], ["mlp", "axes"]):
        with pytest.raises(InapplicableError), engine.altered([("operation", value)]):
            scores(engine, rows)
    assert np.array_equal(scores(engine, rows), before)
    assert Site.of("2:self_attn#12:mul").includes(Site(2, "self_attn", 12, "mul"))


def test_two_edits_of_operations_act_together(root: Path) -> None:
    """The second one's calls do not move the numbers of the first one's."""
    engine = loaded(checkpoint(root / "llama", "llama"))
    rows = responses(engine, 2)
    product = ("operation", ["mlp#0:mul", "later silu of 0"])
    with engine.altered([("site_scale", ["mlp.act_fn/out", 0.0])]):
        nothing = scores(engine, rows)
    wanted = []
    for edits in (
        [product, ("operation", ["2:mlp#0:mul", "skipped"])],
        [("operation", ["2:mlp#0:mul", "skipped"]), product],
        [("site_scale", ["self_attn/out", 0.5]), product, ("operation", ["mlp#0:mul", "skipped"])],
    ):
        with engine.altered(edits):
            wanted.append(scores(engine, rows))
        with engine.altered(edits[:1]):
            assert not np.array_equal(scores(engine, rows), wanted[-1])
    assert not any(np.array_equal(each, nothing) for each in wanted)
