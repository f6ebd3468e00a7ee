"""`RouterWatch` on small random models of several families."""

import logging
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

import grpodoctor
from grpodoctor.errors import DataError
from grpodoctor.hooks.router_watch import RouterWatch
from grpodoctor.vocabulary.values import scalar

E, K, LAYERS = 8, 2, 2
SMALL = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": LAYERS,
    "num_attention_heads": 2, "num_key_value_heads": 2, "num_experts_per_tok": K,
}  # fmt: skip


def mixtral() -> torch.nn.Module:
    return MixtralForCausalLM(MixtralConfig(**SMALL, num_local_experts=E))


def qwen2() -> torch.nn.Module:
    return Qwen2MoeForCausalLM(
        Qwen2MoeConfig(
            **SMALL, num_experts=E, moe_intermediate_size=8, shared_expert_intermediate_size=8
        )
    )


def qwen3() -> torch.nn.Module:
    config = Qwen3MoeConfig(**SMALL, num_experts=E, moe_intermediate_size=8, head_dim=8)
    return Qwen3MoeForCausalLM(config)


def olmoe() -> torch.nn.Module:
    return OlmoeForCausalLM(OlmoeConfig(**SMALL, num_experts=E))


def deepseek() -> torch.nn.Module:
    return DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **SMALL, n_routed_experts=E, n_group=2, topk_group=1, moe_intermediate_size=8,
            first_k_dense_replace=0, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4,
            qk_nope_head_dim=4, v_head_dim=8, n_shared_experts=1,
        )
    )  # fmt: skip


_LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 8, "n_routed_experts": E, "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
FURTHER = {
    "deepseek_v2": {**_LATENT, "topk_method": "greedy"},
    "deepseek_v2 groups": {
        **_LATENT, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 1,
    },
    "deepseek_v3": {**_LATENT, "n_group": 2, "topk_group": 1, "head_dim": 4},
    "deepseek_v32": {
        **_LATENT, "n_group": 2, "topk_group": 1, "index_n_heads": 2, "index_head_dim": 8,
        "index_topk": 8,
    },
    "deepseek_v4": {**_LATENT, "n_group": 2, "topk_group": 1},
    "glm4_moe": {"n_routed_experts": E, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "minimax_m2": {"num_local_experts": E},
    "gpt_oss": {"num_local_experts": E},
}  # fmt: skip
SOFTMAX = [mixtral, qwen2, qwen3, olmoe]
Build = Callable[[], torch.nn.Module]


def further(family: str) -> torch.nn.Module:
    """A model of three layers; the first is dense where the family has dense layers."""
    shape = {**SMALL, "num_hidden_layers": 3, "moe_intermediate_size": 8, "head_dim": 8}
    config = AutoConfig.for_model(family.partition(" ")[0], **{**shape, **FURTHER[family]})
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def tokens(rows: int = 3, length: int = 10) -> torch.Tensor:
    return torch.randint(32, (rows, length), generator=torch.Generator().manual_seed(1))


def built(build: Build) -> torch.nn.Module:
    torch.manual_seed(0)
    return build().eval()


@pytest.mark.parametrize("build", [*SOFTMAX, deepseek])
def test_experts_and_load_of_each_family(build: Build) -> None:
    model = built(build)
    watch = RouterWatch(model)
    routing = watch.measure(tokens())
    assert routing.used_NLK.shape == (30, LAYERS, K)
    assert routing.load_LE.shape == (LAYERS, E)
    assert routing.load_LE.sum() == 30 * LAYERS * K
    load = [layer.max() / layer.mean() for layer in routing.load_LE]
    readings = routing.readings()
    assert scalar(readings["experts/load_max_over_mean"]) == pytest.approx(np.mean(load))
    assert len(watch.layers) == LAYERS


@pytest.mark.parametrize("build", SOFTMAX)
def test_router_entropy_and_margin(build: Build) -> None:
    model = built(build)
    routing = RouterWatch(model).measure(tokens())
    logits = model(input_ids=tokens(), output_router_logits=True).router_logits
    stacked = torch.stack([each.detach() for each in logits], dim=1)
    probabilities = stacked.softmax(-1)
    entropy = -(probabilities * probabilities.log()).sum(-1)
    assert np.allclose(routing.entropy_NL, entropy, atol=1e-5)
    ordered = stacked.sort(dim=-1, descending=True).values
    assert np.allclose(routing.margin_NL, ordered[..., K - 1] - ordered[..., K], atol=1e-5)
    assert {"experts/router_entropy", "experts/router_margin"} <= routing.readings().keys()


def test_a_router_that_does_not_select_by_softmax_has_no_entropy_and_no_margin() -> None:
    routing = RouterWatch(built(deepseek)).measure(tokens())
    assert routing.entropy_NL is None
    assert not [name for name in routing.readings() if "entropy" in name or "margin" in name]


@pytest.mark.parametrize("family", FURTHER)
def test_the_experts_are_those_that_the_routers_selected(family: str) -> None:
    """Also with dense layers, groups of experts, sigmoids and biases."""
    model = further(family)
    watch = RouterWatch(model)
    selected: list[torch.Tensor] = []
    for name in watch.layers:
        block = model.get_submodule(name)
        router = getattr(block, "gate", None) or block.router
        router.register_forward_hook(lambda _m, _a, output: selected.append(output[-1]))
    routing = watch.measure(tokens())
    assert routing.used_NLK.shape == (30, len(selected), K)
    assert routing.experts == E
    for layer, ids_NK in enumerate(selected):
        assert (routing.used_NLK[:, layer] == ids_NK.view(30, K).numpy()).all()
    dense = {"deepseek_v4", "minimax_m2", "gpt_oss"}
    assert len(selected) == (3 if family in dense else 2)


@pytest.mark.parametrize("family", FURTHER)
def test_entropy_is_known_only_for_a_softmax(family: str) -> None:
    """DeepSeek-V4 and MiniMax-M2 score with other functions, without a sign in their modules."""
    routing = RouterWatch(further(family)).measure(tokens())
    is_softmax = family.startswith(("deepseek_v2", "gpt_oss"))
    assert (routing.entropy_NL is not None) == is_softmax


def test_a_selection_by_groups_has_no_margin() -> None:
    assert RouterWatch(further("deepseek_v2")).measure(tokens()).margin_NL is not None
    assert RouterWatch(further("deepseek_v2 groups")).measure(tokens()).margin_NL is None


def held(watch: RouterWatch) -> int:
    """Bytes of all arrays and tensors that a watch refers to, except the model."""
    owned = (value for name, value in vars(watch).items() if name != "_model")
    parts = [
        part for each in owned for part in (each.values() if isinstance(each, dict) else [each])
    ]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray | torch.Tensor))


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_memory_is_bounded_by_the_sample_whatever_the_length(family: str) -> None:
    model = further(family)
    watch = RouterWatch(model, tokens=16)
    bytes_of = []
    for length in (8, 16, 32):
        seen: list[weakref.ref[torch.Tensor]] = []
        handles = [
            model.get_submodule(name).gate.register_forward_hook(
                lambda _m, _a, output, seen=seen: seen.append(weakref.ref(output[0]))
            )
            for name in watch.layers
        ]
        mask = torch.ones(64, length, dtype=torch.long)
        routing = watch.measure(tokens(64, length), mask)
        assert routing.used_NLK.shape[0] == 16
        bytes_of.append(held(watch))
        assert [reference() for reference in seen] == [None] * len(watch.layers)
        for handle in handles:
            handle.remove()
    # Ids in 2 bytes; logits and weights in 4; the numbers of the sampled tokens in 8.
    assert set(bytes_of) == {16 * (2 * (2 * K + 4 * E + 4 * K) + 8)}


def test_churn_between_two_passes() -> None:
    model = built(qwen3)
    watch = RouterWatch(model)
    before, again = watch.measure(tokens()), watch.measure(tokens())
    assert again.churn(before)["experts/churn_update"].value == 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    after = watch.measure(tokens())
    differing = [
        len(set(a.tolist()) - set(b.tolist())) / K
        for a, b in zip(before.used_NLK.reshape(-1, K), after.used_NLK.reshape(-1, K), strict=True)
    ]
    churn = after.churn(before)["experts/churn_update"].value
    assert 0 < churn == pytest.approx(np.mean(differing))
    assert "experts/churn_engine" in after.churn(before, between="engine")
    with pytest.raises(DataError, match="cannot be compared"):
        after.churn(watch.measure(tokens(rows=1)))


def test_padding_is_left_out_and_memory_is_bounded_by_the_sample() -> None:
    model = built(mixtral)
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[0, :4] = 0
    everything = RouterWatch(model).measure(tokens(), mask)
    assert len(everything.used_NLK) == 26
    few = RouterWatch(model, tokens=5).measure(tokens(), mask)
    assert len(few.used_NLK) == 5
    rows = np.arange(5) * 26 // 5
    assert (few.used_NLK == everything.used_NLK[rows]).all()


def test_a_pass_of_the_training_is_recorded_and_not_changed() -> None:
    plain, watched = built(olmoe), built(olmoe)
    watch = RouterWatch(watched)
    losses = []
    for model in (plain, watched):
        model.train()
        model.lm_head.eval()
        loss = model(input_ids=tokens(), labels=tokens()).loss
        loss.backward()
        losses.append(loss)
    assert torch.equal(*losses)
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert (one.grad is None and other.grad is None) or torch.equal(one.grad, other.grad)
    assert watch.routing().used_NLK.shape == (30, LAYERS, K)
    watch.measure(tokens())
    assert [watched.training, watched.lm_head.training] == [True, False]
    watch.close()
    watched(input_ids=tokens(rows=1))
    assert len(watch.routing().used_NLK) == 30


def test_a_dense_model_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    small = {name: value for name, value in SMALL.items() if name != "num_experts_per_tok"}
    watch = grpodoctor.RouterWatch(Qwen2ForCausalLM(Qwen2Config(**small)))
    assert watch.routing() is None
    assert watch.measure(tokens()) is None
    (line,) = (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    assert "Qwen2ForCausalLM has no router that can be watched" in line


def test_a_router_of_another_shape_does_not_stop_a_pass(caplog: pytest.LogCaptureFixture) -> None:
    model = built(mixtral)
    watch = RouterWatch(model)
    router = model.model.layers[0].mlp.gate
    router.register_forward_hook(lambda *_: None)
    watch.take_logits(0, ("no tensor",))
    model(input_ids=tokens())
    assert watch.routing() is None
    assert "router watch failed" in caplog.text


def test_a_doctor_records_the_routing(tmp_path: Path) -> None:
    model = built(qwen3)
    watch = RouterWatch(model)
    with grpodoctor.Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        before = watch.measure(tokens())
        step.routing(watch.measure(tokens()), before)
        step.routing(None)
    (record,) = grpodoctor.open_run(tmp_path / "run")
    assert scalar(record.values["experts/churn_update"]) == 0
    assert scalar(record.values["experts/load_max_over_mean"]) >= 1
    assert f"experts/router_entropy/layer/{LAYERS - 1}" in record.values
