"""Routers of mixtures of experts: what they did, routing replay R2 and R3, and their health."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, ModelError
from grpodoctor.measure.experts import replay_readings
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.rollout_engine import BuiltinEngine
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import saved_config
from grpodoctor.trainer.model.forward import recomputing, response_logits
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.moe.routers import (
    ABSENT,
    Routers,
    gate_weights,
    require_routers,
    routers_of,
)
from grpodoctor.trainer.moe.routes import replay_counts
from grpodoctor.trainer.samples import Samples, concatenate
from grpodoctor.treatment.mailbox import Mailbox, Request
from grpodoctor.vocabulary.metrics import METRICS, metric_of
from grpodoctor.vocabulary.values import NotApplicable, Rate, Reading, scalar
from tests.trainer.families import DENSE, FAMILIES, build, save

TOY: dict[str, Any] = json.loads((Path(__file__).parents[1] / "expert_vectors.json").read_text())[
    "replay"
]
MIXTURES = [family for family in FAMILIES if family not in DENSE]
MIXTURE = ("threads=1", "model.experts=8", "model.warm_start_steps=150")
QUICK = (
    *MIXTURE,
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "evaluation.every=0", "steps=3"),
    *("overlong.kind=soft-punishment", "overlong.buffer=28", "optimizer.updates_per_batch=2"),
    "record.experts_every=1",
)


@pytest.fixture(scope="module")
def mixture() -> Policy:
    """The built-in mixture after a short warm start; treat it as read-only."""
    config = load_config(assignments=MIXTURE)
    return load_policy(config, build_task(config.task))


def routers(model: Any) -> Routers:
    return require_routers(model, "the test")


def sampled(policy: Policy, precision: str = "learner", count: int = 16) -> Samples:
    """Responses to prompts of several lengths, the experts of the engine with them."""
    config = load_config(assignments=[*MIXTURE, f"engine.precision={precision}"])
    task = build_task(config.task)
    prompts = [
        policy.tokenizer.encode(each.prompt) for each in task.heldout(count) for _ in range(4)
    ]
    assert len(set(map(len, prompts))) > 1
    engine = BuiltinEngine(config, policy)
    engine.sync(1)
    return engine.generate(prompts, torch.Generator().manual_seed(0))


def tokens_of(model: Any, rows: int = 3, length: int = 7) -> Tensor:
    return torch.randint(4, 20, (rows, length), generator=torch.Generator().manual_seed(1))


def others(experts: Tensor, count: int) -> Tensor:
    """For each token experts that differ from those given, in each slot."""
    return ((experts.long() + 1) % count).to(experts.dtype)


# --- one forward pass


def test_the_gate_weights_of_the_published_toy() -> None:
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
def test_what_is_read_is_what_the_model_says_itself(family: str) -> None:
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
def test_a_layer_computes_with_the_experts_forced_on_it(family: str, normalised: bool) -> None:
    """Against the sum over experts by hand, each with its gate weight under the current logits."""
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


def test_where_nothing_is_known_the_router_is_free() -> None:
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


def test_what_is_not_obeyed_is_counted() -> None:
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


# --- sampling and scoring


def test_the_engine_writes_down_what_the_learner_would_do(mixture: Policy) -> None:
    """Cached decoding over a shrinking batch against one pass over the padded whole."""
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
    """An engine whose routers alone differ: with R3 next to nothing of its mismatch is left."""
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
    """Most of all where an expert flipped: there it falls to what rounding alone makes of it."""
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


def test_samples_carry_their_experts_wherever_they_go(mixture: Policy) -> None:
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


def test_a_coarse_engine_rounds_the_experts_and_not_the_routers(mixture: Policy) -> None:
    config = load_config(assignments=[*MIXTURE, "engine.precision=int4"])
    engine, learner = BuiltinEngine(config, mixture).model, mixture.model
    for ours, coarse in zip(learner.model.layers, engine.model.layers, strict=True):
        assert torch.equal(ours.mlp.gate.weight, coarse.mlp.gate.weight)
        for name in ("gate_up_proj", "down_proj"):
            stacked = getattr(coarse.mlp.experts, name)
            assert not torch.equal(stacked, getattr(ours.mlp.experts, name))
            # Each expert has a scale of its own: sixteen levels at most.
            assert all(len(each.unique()) <= 16 for each in stacked)


# --- learning


def batch_of(mixture: Policy, samples: Samples, config: TrainConfig) -> LearnBatch:
    """What the loop would make of samples, with advantages of both signs."""
    scores = score(mixture.model, samples, 1.0, routers=routers(mixture.model))
    assert scores.routes is not None
    mask_BT = samples.mask_BT
    signs_B = torch.tensor([1.0, -1.0, 0.5, -0.5]).repeat(len(samples) // 4)
    replay = config.engine.routing_replay
    return LearnBatch(
        samples=samples,
        group_ids_B=torch.arange(len(samples)) // 4,
        kept_B=torch.ones(len(samples), dtype=torch.bool),
        advantages_BT=signs_B[:, None].expand(mask_BT.shape),
        loss_mask_BT=mask_BT,
        old_logprobs_BT=scores.logprobs_BT,
        corrected=None,
        reference_logprobs_BT=None,
        replay_BLDK=samples.experts_BLDK if replay == "R3" else None,
        old_gates=scores.routes.gates if config.loss.needs_router_shift else None,
    )


def gradients_of(
    model: Any, batch: LearnBatch, rows: Sequence[int], config: TrainConfig
) -> list[Tensor]:
    """The gradient of one optimizer step, by an optimizer that does not step."""
    learner = Learner(model, config.optimizer)
    learner.routers = routers(model)
    taken: list[Tensor] = []
    step = learner.optimizer.step

    def keep(*_: Any, **__: Any) -> None:
        taken.extend(parameter.grad.clone() for parameter in learner.parameters)

    learner.optimizer.step = keep  # type: ignore[method-assign]
    learner.update(batch, torch.tensor(rows), config, 0.0, torch.Generator())
    learner.optimizer.step = step  # type: ignore[method-assign]
    return taken


VARIANTS = {
    "R3": ["engine.routing_replay=R3"],
    "RSPO": ["loss.kind=rspo"],
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "change",
    [["optimizer.micro_batch=5"], ["model.gradient_checkpointing=true", "optimizer.micro_batch=7"]],
    ids=["micro-batches", "recomputed"],
)
def test_no_way_of_computing_changes_the_gradient(
    mixture: Policy, variant: str, change: list[str]
) -> None:
    """Experts of another engine are forced, on a model that has moved since."""
    whole = load_config(assignments=[*MIXTURE, *VARIANTS[variant], "optimizer.max_grad_norm=1e9"])
    samples = sampled(mixture, "int4", count=6)
    batch = batch_of(mixture, samples, whole)
    model = moved(mixture.model)
    wanted = gradients_of(model, batch, range(len(samples)), whole)
    given = load_config(whole.model_dump(), assignments=change)
    got = gradients_of(model, batch, range(len(samples)), given)
    for one, other in zip(wanted, got, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6 * float(one.abs().max() + 1))
    free = gradients_of(
        model,
        batch_of(mixture, samples, plain := load_config(assignments=MIXTURE)),
        range(len(samples)),
        plain,
    )
    assert any((one - other).abs().max() > 1e-3 for one, other in zip(wanted, free, strict=True))


def moved(model: Any) -> Any:
    """The model some optimizer steps later: other routers, other experts."""
    copied = copy.deepcopy(model)
    noise = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    return copied


def test_layers_that_are_computed_again_see_the_same_replay() -> None:
    """Without the replay the second computation would route anew, and torch would notice."""
    model = build("qwen3_moe")
    attention = torch.ones(3, 8, dtype=torch.bool)
    tokens = tokens_of(model, 3, 8)
    with torch.no_grad(), routers(model).recording() as tape:
        response_logits(model, tokens, attention, 2)
    forced = others(tape.experts(3), 4)

    def gradients(*, enabled: bool) -> list[Tensor]:
        model.zero_grad()
        with routers(model).recording(forced):
            with recomputing(model, enabled=enabled):
                logits = response_logits(model, tokens, attention, 2)
            logits.square().mean().backward()
        return [layer.mlp.experts.down_proj.grad.clone() for layer in model.model.layers]

    for one, other in zip(gradients(enabled=False), gradients(enabled=True), strict=True):
        assert torch.equal(one, other)


# --- whole runs


def readings_of(run: Path) -> list[dict[str, Reading]]:
    return [dict(step.values) for step in read_run(run).steps]


def test_a_coarse_engine_flips_experts_and_r3_holds_them(tmp_path: Path) -> None:
    """The first step of both runs samples the same responses."""
    runs = {}
    for name, replay in (("free", "none"), ("held", "R3")):
        config = load_config(
            assignments=[*QUICK, "engine.precision=int4", f"engine.routing_replay={replay}"]
        )
        Trainer(config, tmp_path / name).run()
        runs[name] = readings_of(tmp_path / name)
    free = runs["free"][0]
    assert 0.02 < scalar(free["experts/churn_engine"]) < 0.3
    assert scalar(free["experts/tokens_with_any_flip"]) > scalar(free["experts/churn_engine"])
    assert isinstance(free["experts/replay_agreement"], NotApplicable)
    for step in runs["held"]:
        assert scalar(step["experts/churn_engine"]) == 0
        assert scalar(step["experts/tokens_with_any_flip"]) == 0
        for name in ("experts/replay_coverage", "experts/replay_agreement"):
            rate = step[name]
            assert isinstance(rate, Rate)
            assert rate.hits == rate.count > 100


def test_every_reading_of_the_vocabulary_is_there_by_layer_too(tmp_path: Path) -> None:
    config = load_config(assignments=[*QUICK, "engine.routing_replay=R2", "record.experts_every=2"])
    Trainer(config, tmp_path).run()
    first, second, third = readings_of(tmp_path)
    names = {metric.name for metric in METRICS if metric.name.startswith("experts/")}
    per_layer = names - {"experts/tokens_with_any_flip"}
    wanted = names | {f"{name}/layer/{layer}" for name in per_layer for layer in (0, 1)}
    for step in (first, third):
        assert {name for name in step if name.startswith("experts/")} == wanted
        assert all(scalar(step[name]) is not None for name in wanted)
    looked_at = {name for name in second if name.startswith("experts/") and "replay" not in name}
    assert looked_at == set()  # only every second step is looked at
    assert scalar(second["experts/replay_agreement"]) == 1
    for name in wanted:
        row = metric_of(name)
        assert row is not None
        assert row.low <= scalar(first[name]) <= row.high
    assert 0 < scalar(first["experts/churn_update"]) < 0.3


def test_an_update_that_moves_nothing_churns_nothing(tmp_path: Path) -> None:
    config = load_config(assignments=[*QUICK, "optimizer.learning_rate=0", "steps=1"])
    Trainer(config, tmp_path).run()
    (only,) = readings_of(tmp_path)
    assert scalar(only["experts/churn_update"]) == 0
    assert scalar(only["experts/churn_engine"]) < 1e-3


@pytest.mark.parametrize("extra", [["engine.routing_replay=R3"], ["loss.kind=rspo"]])
def test_a_resumed_run_is_the_uninterrupted_one(extra: list[str], tmp_path: Path) -> None:
    settings = [*QUICK, *extra, "engine.precision=int4", "engine.sync_every=2"]
    config = load_config(assignments=[*settings, "rollout.dynamic_sampling=true"])
    whole = Trainer(config, tmp_path / "whole")
    whole.run()
    part = Trainer(config, tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 1 else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    resumed.run()
    for one, other in zip(whole.learner.parameters, resumed.learner.parameters, strict=True):
        assert torch.equal(one, other)


OWN = (
    *("threads=1", "steps=2", "rollout.prompts_per_batch=4", "rollout.group_size=4"),
    *("evaluation.every=0", "rollout.max_length=12", "record.experts_every=1"),
    *("overlong.kind=soft-punishment", "overlong.buffer=12", "engine.precision=int8"),
)


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("mixtral", ["optimizer.micro_batch=3"]),
        ("qwen2_moe", ["model.lora_rank=4"]),
        ("qwen3_moe", ["model.compute=bfloat16", "model.gradient_checkpointing=true"]),
    ],
)
def test_checkpoints_of_ones_own_train_under_r3(
    family: str, extra: list[str], tmp_path: Path
) -> None:
    model = save(family, tmp_path / "model")
    replay = [f"model.name={model}", "engine.routing_replay=R3"]
    trainer = Trainer(load_config(assignments=[*OWN, *replay, *extra]), tmp_path / "run")
    before = [each.detach().clone() for each in trainer.learner.parameters]
    trainer.run()
    after = trainer.learner.parameters
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    for step in readings_of(tmp_path / "run"):
        for name in ("experts/replay_coverage", "experts/replay_agreement"):
            assert scalar(step[name]) == 1
        assert scalar(step["experts/churn_engine"]) == 0


def test_where_every_expert_works_there_is_nothing_to_see(tmp_path: Path) -> None:
    own = f"model.name={save('mixtral', tmp_path / 'model', num_experts_per_tok=4)}"
    Trainer(load_config(assignments=[*OWN, own, "steps=1"]), tmp_path / "run").run()
    (only,) = readings_of(tmp_path / "run")
    told = {name: each for name, each in only.items() if name.startswith("experts/")}
    assert set(told.values()) == {NotApplicable("no routing is replayed")}


@pytest.mark.parametrize(("family", "taken"), [("mixtral", True), ("qwen2", False)])
def test_rspo_begins_in_flight_where_there_are_routers(
    family: str, taken: bool, tmp_path: Path
) -> None:
    own = f"model.name={save(family, tmp_path / 'model')}"
    trainer = Trainer(load_config(assignments=[*OWN, own]), tmp_path / "run")
    Mailbox(tmp_path / "run").send(Request("r", "apply", "t", "by-hand", {"loss": "rspo"}))
    trainer.run()
    assert (trainer.config.loss.kind == "rspo") is taken
    kinds = [event.kind for event in read_run(tmp_path / "run").events]
    assert ("treatment-applied" if taken else "treatment-refused") in kinds


def test_measuring_experts_changes_no_weight(tmp_path: Path) -> None:
    ends = []
    for look in ("record.experts_every=1", "record.experts_every=0", "record.enabled=false"):
        trainer = Trainer(load_config(assignments=[*QUICK, look]), tmp_path / look)
        trainer.run()
        ends.append(trainer.learner.parameters)
    for others_ in ends[1:]:
        for one, other in zip(ends[0], others_, strict=True):
            assert torch.equal(one, other)


def test_a_dense_run_has_no_hook_and_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    dense = load_config(assignments=[*QUICK, "model.experts=0", "steps=1"])
    hooked: list[str] = []
    for kind in ("register_forward_hook", "register_forward_pre_hook"):
        monkeypatch.setattr(torch.nn.Module, kind, lambda *_, kind=kind, **__: hooked.append(kind))
    Trainer(dense, tmp_path).run()
    assert hooked == []
    (only,) = readings_of(tmp_path)
    experts = {name: each for name, each in only.items() if name.startswith("experts/")}
    assert len(experts) == 8
    assert set(experts.values()) == {NotApplicable("the model is dense")}


# --- what is refused


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["engine.routing_replay=R2", "loss.kind=gspo"], "one of them is enough"),
        (["engine.routing_replay=R3", "loss.kind=rspo"], "one of them is enough"),
        (["engine.routing_replay=R3", "engine.kind=vllm"], "the experts of vLLM are not read"),
        (["engine.routing_replay=R2", "model.experts=0"], "is dense and has no routers"),
        (["model.experts=2"], "the router has no choice"),
    ],
)
def test_what_contradicts_itself_is_refused(settings: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_config(assignments=["model.experts=8", *settings])


@pytest.mark.parametrize("preset", ["grpo", "minirl", "gspo"])
def test_general_recipes_run_on_a_mixture(preset: str) -> None:
    load_config(preset_of(preset).settings, assignments=["model.experts=8"])


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
