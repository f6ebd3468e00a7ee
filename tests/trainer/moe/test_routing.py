"""Routers of mixtures of experts: recording, replay, sampling and scoring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ModelError
from grpodoctor.measure.experts import replay_readings
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.rollout_engine import BuiltinEngine
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.moe.routers import (
    ABSENT,
    gate_weights,
    require_routers,
    routers_of,
)
from grpodoctor.trainer.moe.routes import replay_counts
from grpodoctor.trainer.samples import Samples, concatenate
from grpodoctor.vocabulary.values import Rate
from tests.trainer.families import DENSE, FAMILIES, build
from tests.trainer.moe.mixtures import MIXTURE, others, routers, sampled, tokens_of

TOY: dict[str, Any] = json.loads((Path(__file__).parents[1] / "expert_vectors.json").read_text())[
    "replay"
]


MIXTURES = [family for family in FAMILIES if family not in DENSE]


def test_gate_weights_match_the_published_example() -> None:
    logits_N = torch.tensor(TOY["router_logits_train"], dtype=torch.float64, requires_grad=True)
    ids_NK = torch.tensor([TOY["experts_infer"]])
    weights_K = gate_weights(logits_N[None], ids_NK, normalized=True)[0]
    probability = (weights_K * torch.tensor(TOY["p_token_per_expert"])[ids_NK[0]]).sum()
    assert probability.item() == pytest.approx(TOY["p_train_with_R3"], rel=1e-6)
    assert probability.item() / TOY["p_infer"] == pytest.approx(TOY["ratio_with_R3"], rel=1e-6)
    (gradient_E,) = torch.autograd.grad(probability, logits_N)
    wanted_E = torch.tensor(TOY["dp_dlogits_with_R3"], dtype=torch.float64)
    torch.testing.assert_close(gradient_E, wanted_E, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("family", MIXTURES)
def test_recorded_logits_and_experts_equal_the_models_own_output(family: str) -> None:
    model = build(family)
    tokens = tokens_of(model)
    with torch.no_grad(), routers(model).recording() as tape:
        output = model(tokens, output_router_logits=True)
    logits_BLDE = torch.stack(output.router_logits, dim=1).view(3, 7, 2, 4)
    torch.testing.assert_close(tape.logits(3), logits_BLDE, rtol=0, atol=0)
    wanted = logits_BLDE.topk(2, dim=-1).indices.sort(dim=-1).values
    assert torch.equal(tape.experts(3).long().sort(dim=-1).values, wanted)


@pytest.mark.parametrize("family", MIXTURES)
def test_replaying_the_routers_own_choice_changes_no_bit(family: str) -> None:
    model = build(family)
    tokens = tokens_of(model)
    with torch.no_grad():
        with routers(model).recording() as tape:
            plain = model(tokens).logits
        with routers(model).recording(tape.experts(3)):
            replayed = model(tokens).logits
        unwatched = model(tokens).logits
    assert torch.equal(plain, replayed)
    assert torch.equal(plain, unwatched)


@pytest.mark.parametrize(
    ("family", "normalised"),
    [
        *(("mixtral", True), ("qwen2_moe", True), ("qwen2_moe", False)),
        *(("qwen3_moe", True), ("qwen3_moe", False)),
    ],
)
def test_a_layer_computes_with_the_replayed_experts(family: str, normalised: bool) -> None:
    """The expected output is the sum over the experts with their current gate weights."""
    setting = {} if family == "mixtral" else {"norm_topk_prob": normalised}
    model = build(family, **setting)
    block, seen = model.model.layers[1].mlp, []
    hook = block.register_forward_hook(
        lambda _block, given, result: seen.append((given[0], result))
    )
    tokens = tokens_of(model, 1, 5)
    with torch.no_grad(), routers(model).recording() as tape:
        model(tokens)
        forced = others(tape.experts(1), 4)
        seen.clear()
    with torch.no_grad(), routers(model).recording(forced) as tape:
        model(tokens)
    hook.remove()
    assert torch.equal(tape.experts(1), forced)
    (states, result), ids_NK = seen[0], forced[0, :, 1].long()
    gates_NE = (states[0] @ block.gate.weight.T).softmax(-1)
    wanted = torch.zeros_like(result)
    for token, ids_K in enumerate(ids_NK):
        total = gates_NE[token, ids_K].sum() if normalised else 1.0
        for expert in ids_K:
            wanted[0, token] += (
                gates_NE[token, expert] / total * _expert(block, expert, states[0, token])
            )
    if family == "qwen2_moe":
        wanted += block.shared_expert_gate(states).sigmoid() * block.shared_expert(states)
    torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)


def _expert(block: Any, expert: Tensor, state: Tensor) -> Tensor:
    gate, up = (block.experts.gate_up_proj[expert] @ state).chunk(2)
    result: Tensor = block.experts.down_proj[expert] @ (torch.nn.functional.silu(gate) * up)
    return result


@pytest.mark.parametrize("family", MIXTURES)
def test_under_replay_the_router_learns_and_idle_experts_do_not(family: str) -> None:
    model = build(family)
    forced = torch.tensor([1, 3], dtype=torch.int16).expand(3, 7, 2, 2)
    with routers(model).recording(forced):
        model(tokens_of(model)).logits.square().mean().backward()
    for layer in model.model.layers:
        assert layer.mlp.gate.weight.grad.abs().max() > 0
        worked = layer.mlp.experts.down_proj.grad.abs().amax(dim=(1, 2)) > 0
        assert worked.tolist() == [False, True, False, True]


def test_the_router_is_free_where_no_expert_is_recorded() -> None:
    model = build("qwen3_moe")
    tokens = tokens_of(model)
    with torch.no_grad(), routers(model).recording() as tape:
        model(tokens)
        free = tape.experts(3)
    forced = others(free, 4)
    forced[:, 3:] = ABSENT
    with torch.no_grad(), routers(model).recording(forced) as tape:
        model(tokens)
    used = tape.experts(3)
    assert torch.equal(used[:, :3], forced[:, :3])
    assert ((used >= 0) & (used < 4)).all()
    assert torch.equal(used[:, 3:, 0], free[:, 3:, 0])  # the first router sees no replay below it
    counts = replay_counts(tape, forced, torch.ones(3, 7, dtype=torch.bool))
    assert [each.tolist() for each in counts] == [[21, 21], [9, 9], [9, 9]]


def test_replay_counts_report_disobeyed_experts() -> None:
    model = build("qwen3_moe")
    with torch.no_grad(), routers(model).recording() as tape:
        model(tokens_of(model))
    own = tape.experts(3)
    mask_BT = torch.ones(3, 7, dtype=torch.bool)
    mask_BT[2, 4:] = False
    swapped = own.flip(-1)  # the same experts in another order
    swapped[0, 0, 1] = others(own[0, 0, 1], 4)
    counts = replay_counts(tape, swapped, mask_BT)
    assert counts.obeyed_D.tolist() == [18, 17]
    readings = replay_readings(*(each.numpy() for each in counts))
    assert readings["experts/replay_agreement"] == Rate(35, 36)
    assert readings["experts/replay_agreement/layer/1"] == Rate(17, 18)
    assert readings["experts/replay_coverage"] == Rate(36, 36)


def test_the_engine_records_the_experts_that_the_learner_activates(mixture: Policy) -> None:
    """Compares cached decoding of a shrinking batch with one pass over the padded batch."""
    samples = sampled(mixture)
    assert samples.experts_BLDK is not None
    scores = score(mixture.model, samples, 1.0, 24, routers=routers(mixture.model))
    assert scores.routes is not None
    follows = torch.nn.functional.pad(samples.attention_BL[:, 1:], (0, 1), value=False)
    read_BL = samples.attention_BL & follows
    told_BL = (samples.experts_BLDK >= 0).all(dim=(2, 3))
    assert torch.equal(told_BL, read_BL)
    one = samples.experts_BLDK[read_BL].sort(dim=-1).values
    other = scores.routes.experts_BLDK[read_BL].sort(dim=-1).values
    assert (one != other).float().mean() < 1e-3  # logits that are equal up to rounding


def test_on_policy_r3_leaves_no_mismatch(mixture: Policy) -> None:
    samples = sampled(mixture)
    replayed = score(
        *(mixture.model, samples, 1.0, 24),
        routers=routers(mixture.model),
        replay_BLDK=samples.experts_BLDK,
    )
    gap_BT = (replayed.logprobs_BT - samples.logprobs_BT).abs()
    assert gap_BT[samples.mask_BT].max() < 1e-5
    assert gap_BT[samples.mask_BT].mean() < 1e-6


def test_r3_takes_away_the_gap_that_routing_opens(mixture: Policy) -> None:
    """Only the engine's routers differ: R3 removes most of the mismatch."""
    config = load_config(assignments=[*MIXTURE, "engine.sync_every=2"])
    engine = BuiltinEngine(config, mixture)  # a copy of the learner
    engine.sync(1)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in engine.model.model.layers:
            weight = layer.mlp.gate.weight
            weight.add_(0.02 * torch.randn(weight.shape, generator=noise))
    task = build_task(config.task)
    prompts = [mixture.tokenizer.encode(each.prompt) for each in task.heldout(64)]
    samples = engine.generate(prompts, torch.Generator().manual_seed(0))

    def gap(replay_BLDK: Tensor | None) -> float:
        scores = score(
            mixture.model, samples, 1.0, routers=routers(mixture.model), replay_BLDK=replay_BLDK
        )
        difference = scores.logprobs_BT - samples.logprobs_BT
        return float(difference[samples.mask_BT].square().mean())

    assert gap(samples.experts_BLDK) < 0.5 * gap(None)


def test_r3_lowers_the_mismatch_of_an_engine_in_bfloat16(mixture: Policy) -> None:
    """Where an expert flipped, the mismatch falls most, to the size of rounding."""
    samples, known = sampled(mixture, "bf16", 96), routers(mixture.model)
    assert samples.experts_BLDK is not None
    free = score(mixture.model, samples, 1.0, routers=known)
    held = score(mixture.model, samples, 1.0, routers=known, replay_BLDK=samples.experts_BLDK)
    assert free.routes is not None
    mask_BT = samples.mask_BT
    engine = samples.experts_BLDK[:, samples.prompt_width - 1 : -1][mask_BT]
    learner = free.routes.gates.experts_BTDK[mask_BT]
    flipped_N = (engine.sort(dim=-1).values != learner.sort(dim=-1).values).any(-1).any(-1)
    assert flipped_N.sum() > 10
    p_free, p_held, p_engine = (each.logprobs_BT.exp()[mask_BT] for each in (free, held, samples))
    gap_free, gap_held = (p_free - p_engine).abs(), (p_held - p_engine).abs()
    assert gap_held[flipped_N].mean() < 0.5 * gap_free[flipped_N].mean()
    assert gap_held.mean() < gap_free.mean()


def test_experts_stay_with_their_samples(mixture: Policy) -> None:
    short, long = sampled(mixture, count=4), sampled(mixture, count=12)
    assert short.experts_BLDK is not None
    assert long.experts_BLDK is not None
    both = concatenate([long, short]).rows([len(long) + 2, 1])
    experts = both.experts_BLDK
    assert experts is not None
    assert experts.shape[:2] == both.tokens_BL.shape
    start = both.prompt_width - short.prompt_width
    width = short.tokens_BL.shape[1]
    assert torch.equal(experts[0, start : start + width], short.experts_BLDK[2])
    assert (experts[0, :start] == ABSENT).all()
    bare = Samples(
        **{name: getattr(short, name) for name in Samples.__slots__ if name != "experts_BLDK"}
    )
    assert concatenate([long, bare]).experts_BLDK is None


def test_an_int4_engine_rounds_experts_and_not_routers(mixture: Policy) -> None:
    config = load_config(assignments=[*MIXTURE, "engine.precision=int4"])
    engine, learner = BuiltinEngine(config, mixture).model, mixture.model
    for ours, coarse in zip(learner.model.layers, engine.model.layers, strict=True):
        assert torch.equal(ours.mlp.gate.weight, coarse.mlp.gate.weight)
        for name in ("gate_up_proj", "down_proj"):
            stacked = getattr(coarse.mlp.experts, name)
            assert not torch.equal(stacked, getattr(ours.mlp.experts, name))
            # Each expert has a scale of its own: sixteen levels at most.
            assert all(len(each.unique()) <= 16 for each in stacked)


def test_unsupported_routers_are_refused_in_one_line() -> None:
    from transformers import OlmoeConfig, OlmoeForCausalLM

    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": 0}
    olmoe = OlmoeForCausalLM(OlmoeConfig(**shape, **heads, num_experts=4, num_experts_per_tok=2))
    assert routers_of(olmoe) is None
    with pytest.raises(
        ModelError, match="R2 does not support the routers of a olmoe model"
    ) as error:
        require_routers(olmoe, "R2")
    assert "\n" not in str(error.value)
    with pytest.raises(ModelError, match="R2 needs a mixture of experts, and this qwen2 model"):
        require_routers(build("qwen2"), "R2")
