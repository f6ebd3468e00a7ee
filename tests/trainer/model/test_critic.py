"""The critic: what it is made of, that it learns, and that nothing else depends on how."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, DataError, ModelError, RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.batches import LearnBatch, ValueBatch
from grpodoctor.trainer.algorithms.losses.base import LossInputs
from grpodoctor.trainer.algorithms.positive_nll import positive_weights
from grpodoctor.trainer.algorithms.registry import loss_of
from grpodoctor.trainer.config.loss import loss_config
from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from grpodoctor.trainer.model.critic import Critic, ValueModel, value_loss, value_readings
from grpodoctor.trainer.model.lora import add_adapters
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar
from tests.trainer.families import build

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=5", "evaluation.prompts=8"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "evaluation.every=0"),
    # A reward for short responses, so that there is a gradient however bad the answers are.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)
VAPO = ("critic.pretrain_steps=2",)


def small(*assignments: str, preset: str | None = "ppo") -> TrainConfig:
    layers = [preset_of(preset).settings] if preset else []
    return load_config(*layers, assignments=[*SMALL, *assignments])


def drawn(count: int = 8, vocabulary: int = 20) -> Samples:
    """Responses of random tokens and random lengths to prompts of random lengths."""
    generator = torch.Generator().manual_seed(7)
    width, longest = 5, 6
    ids_BL = torch.randint(4, vocabulary, (count, width + longest), generator=generator)
    before_B = torch.randint(0, width - 1, (count,), generator=generator)
    length_B = torch.randint(1, longest + 1, (count,), generator=generator)
    column_L = torch.arange(width + longest)
    attention_BL = (column_L >= before_B[:, None]) & (column_L < width + length_B[:, None])
    return Samples(
        tokens_BL=torch.where(attention_BL, ids_BL, 0),
        attention_BL=attention_BL,
        prompt_width=width,
        logprobs_BT=torch.zeros(count, longest),
        truncated_B=torch.zeros(count, dtype=torch.bool),
        pad_id=0,
    )


def batch_of(samples: Samples, returns_BT: Tensor, values_BT: Tensor | None = None) -> ValueBatch:
    values_BT = torch.zeros_like(returns_BT) if values_BT is None else values_BT
    return ValueBatch(samples, samples.mask_BT, values_BT, returns_BT, returns_BT)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "mixtral", "qwen2_moe"])
def test_any_causal_model_gives_a_critic_of_its_own(family: str) -> None:
    policy = build(family)
    before = {name: each.clone() for name, each in policy.state_dict().items()}
    critic, samples = Critic(policy, small()), drawn()
    assert (critic.values(samples) == 0).all()  # it knows nothing yet
    with torch.no_grad():
        critic.model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    values_BT = critic.values(samples)
    assert values_BT.shape == samples.mask_BT.shape
    assert (values_BT[samples.mask_BT] != 0).all()
    assert (values_BT[~samples.mask_BT] == 0).all()
    critic.update(batch_of(samples, torch.ones_like(values_BT)), torch.arange(8), small())
    moments = critic.optimizer.state_dict()["state"]
    assert len(moments) == len(list(critic.model.parameters()))
    assert not any(module.training for module in critic.model.modules())
    for name, each in policy.state_dict().items():
        assert torch.equal(each, before[name])


def test_a_value_is_that_of_the_tokens_before_it() -> None:
    critic, samples = Critic(build("qwen2"), small()), drawn()
    with torch.no_grad():
        critic.model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    values_BT = critic.values(samples)
    place = 2
    ids_BL = samples.tokens_BL.clone()
    column = samples.prompt_width + place
    ids_BL[:, column] = 4 + (ids_BL[:, column] - 3) % 16
    changed_BT = critic.values(replace(samples, tokens_BL=ids_BL))
    before_BT = samples.mask_BT & (torch.arange(values_BT.shape[1]) <= place)
    after_BT = samples.mask_BT & ~before_BT
    assert torch.equal(changed_BT[before_BT], values_BT[before_BT])
    assert (changed_BT[after_BT] != values_BT[after_BT]).all()


def test_padding_changes_no_value() -> None:
    critic, samples = Critic(build("llama"), small()), drawn()
    with torch.no_grad():
        critic.model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    pad = torch.nn.functional.pad
    wider = replace(
        samples,
        tokens_BL=pad(samples.tokens_BL, (3, 2), value=9),
        attention_BL=pad(samples.attention_BL, (3, 2), value=False),
        prompt_width=samples.prompt_width + 3,
        logprobs_BT=pad(samples.logprobs_BT, (0, 2)),
    )
    torch.testing.assert_close(
        critic.values(wider)[:, :-2], critic.values(samples), rtol=1e-5, atol=1e-6
    )


def test_the_critic_of_a_policy_with_adapters_is_a_whole_copy() -> None:
    config = small("model.name=x", "model.lora_rank=2")
    policy = build("qwen2")
    samples = drawn()
    inputs = {"input_ids": samples.tokens_BL, "attention_mask": samples.attention_BL.long()}
    with torch.no_grad():
        bare = policy.double().base_model(**inputs).last_hidden_state
    add_adapters(policy, config.model, seed=0)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(0))
    # In float64 the merge rounds far less than the adapters change, on every machine.
    critic = ValueModel(policy.double(), config)
    assert all(weight.requires_grad for weight in critic.parameters())
    assert not any("lora" in name for name, _ in critic.named_parameters())
    with torch.no_grad():
        hidden = critic.backbone(**inputs).last_hidden_state
        expected = policy.base_model(**inputs).last_hidden_state
    torch.testing.assert_close(hidden, expected, rtol=1e-10, atol=1e-10)
    assert (hidden - bare).abs().mean() > 1e-3


def test_a_coarse_policy_has_a_critic_whose_head_is_not() -> None:
    critic = Critic(build("qwen2").to(torch.bfloat16), small())
    assert critic.model.head.weight.dtype == torch.float32
    assert critic.model.backbone.dtype == torch.bfloat16
    samples = drawn()
    update = critic.update(
        batch_of(samples, torch.ones(samples.mask_BT.shape)), torch.arange(8), small()
    )
    assert update.applied
    assert critic.values(samples).dtype == torch.float32


def test_a_critic_multiplies_in_the_precision_of_the_policy() -> None:
    samples, values = drawn(), []
    for precision in ("weights", "bfloat16"):
        critic = Critic(build("qwen2"), small("model.name=x", f"model.compute={precision}"))
        with torch.no_grad():
            critic.model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
        values.append(critic.values(samples))
        assert critic.model.backbone.dtype == torch.float32
    fine, coarse = values
    assert 0 < (coarse - fine).norm() < 0.05 * fine.norm()


def test_a_model_that_is_all_head_makes_no_critic() -> None:
    policy = build("qwen2")
    policy.base_model_prefix = "there_is_no_such_part"
    with pytest.raises(ModelError, match=r"cannot be used as a critic.*advantage\.kind=group"):
        ValueModel(policy, small("model.name=x"))


def test_a_critic_learns_a_value_function_that_is_there_to_learn() -> None:
    """What a response is worth: how large the first id of its prompt is, and its own third."""
    samples = drawn(64)
    first_B = samples.tokens_BL[torch.arange(64), samples.attention_BL.int().argmax(dim=1)]
    bonus_B1 = (samples.response_BT[:, 2] % 2)[:, None] * (torch.arange(6) > 2)
    returns_BT = ((first_B > 11).float()[:, None] + 0.5 * bonus_B1) * samples.mask_BT
    config = small("critic.learning_rate=3e-3", "critic.value_clip=1e9")
    critic, explained = Critic(build("qwen2"), config), []
    for _ in range(60):
        batch = batch_of(samples, returns_BT, critic.values(samples))
        explained.append(scalar(value_readings(batch)["critic/explained_variance"]))
        critic.update(batch, torch.arange(64), config)
    assert explained[0] == pytest.approx(0.0, abs=1e-6)
    assert explained[-1] is not None
    assert explained[-1] > 0.9


def gradient(critic: Critic, batch: ValueBatch, config: TrainConfig) -> Tensor:
    """The gradient of one update, read back from the first moment of a fresh AdamW."""
    fresh = Critic(build("qwen2"), config)
    fresh.model.load_state_dict(critic.model.state_dict())
    fresh.update(batch, torch.arange(len(batch.samples)), config)
    moments = fresh.optimizer.state_dict()["state"]
    return torch.cat([moments[index]["exp_avg"].flatten() for index in sorted(moments)])


@pytest.mark.parametrize("clip", [(), ("critic.value_clip=0.1",)], ids=["plain", "clipped"])
def test_micro_batches_change_no_gradient(clip: tuple[str, ...]) -> None:
    extra = (*clip, "critic.max_grad_norm=1e9")
    samples, generator = drawn(), torch.Generator().manual_seed(1)
    critic = Critic(build("qwen2"), small(*extra))
    with torch.no_grad():
        critic.model.head.weight.normal_(generator=generator)
    returns_BT = torch.randn(samples.mask_BT.shape, generator=generator)
    batch = batch_of(samples, returns_BT, critic.values(samples) + 0.05)
    whole = gradient(critic, batch, small(*extra))
    assert whole.abs().max() > 0
    for size in (1, 3, 5):
        split = gradient(critic, batch, small(*extra, f"optimizer.micro_batch={size}"))
        torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-6)
    recomputed = gradient(critic, batch, small(*extra, "model.gradient_checkpointing=true"))
    torch.testing.assert_close(recomputed, whole, rtol=1e-4, atol=1e-6)
    # What stands outside the mask has no gradient, whatever it is.
    noisy_BT = torch.where(samples.mask_BT, returns_BT, 1e9)
    noisy = gradient(critic, replace(batch, returns_BT=noisy_BT), small(*extra))
    assert torch.equal(noisy, whole)


def test_the_value_loss_is_half_the_square_and_the_worse_one_beyond_its_clip() -> None:
    values = torch.tensor([0.5, 0.5, 0.1, 0.9], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([0.0, 0.0, 0.0, 0.8], dtype=torch.float64)
    returns = torch.tensor([1.0, -1.0, 1.0, 0.0], dtype=torch.float64)
    plain = value_loss(values, old, returns, None)
    assert plain.tolist() == pytest.approx([0.125, 1.125, 0.405, 0.405])
    clipped = value_loss(values, old, returns, 0.2)
    assert clipped.tolist() == pytest.approx([0.32, 1.125, 0.405, 0.405])
    (pull,) = torch.autograd.grad(clipped.sum(), values)
    # The first has moved towards its return by more than the clip: it is pulled no further.
    assert pull.tolist() == pytest.approx([0.0, 1.5, -0.9, 0.9])


def test_what_a_critic_foretells_is_the_return_that_came() -> None:
    samples = drawn(2)
    outcomes_BT = torch.arange(12.0).view(2, 6) * samples.mask_BT
    exact = replace(batch_of(samples, outcomes_BT * 0), values_BT=outcomes_BT + 3.0)
    exact = replace(exact, outcomes_BT=outcomes_BT)
    assert scalar(value_readings(exact)["critic/explained_variance"]) == pytest.approx(1.0)
    chosen_N = outcomes_BT[samples.mask_BT].double()
    mean = scalar(value_readings(exact)["critic/value_mean"])
    assert mean == pytest.approx(float(chosen_N.mean()) + 3)
    flat = replace(exact, outcomes_BT=torch.ones(2, 6))
    assert isinstance(value_readings(flat)["critic/explained_variance"], NotApplicable)
    none = replace(exact, mask_BT=torch.zeros_like(samples.mask_BT))
    assert value_readings(none) == {}


def recorded(run_dir: Path) -> list[dict[str, Reading]]:
    """The readings of each step."""
    return [dict(step.values) for step in read_run(run_dir).steps]


def state(trainer: Trainer) -> list[Tensor]:
    assert trainer.critic is not None
    models = (trainer.policy.model, trainer.critic.model)
    optimizers = (trainer.learner.optimizer, trainer.critic.optimizer)
    moments = [optimizer.state_dict()["state"] for optimizer in optimizers]
    return [
        *(tensor for model in models for tensor in model.state_dict().values()),
        *(each[i][name] for each in moments for i in sorted(each) for name in sorted(each[i])),
    ]


@pytest.mark.parametrize(
    ("preset", "stop", "extra"),
    [
        ("ppo", 2, ()),
        ("ppo", 2, ("critic.passes=2", "engine.sync_every=3", "engine.precision=int8")),
        ("vapo", 1, VAPO),
        ("vapo", 3, VAPO),
    ],
    ids=["ppo", "passes-and-stale-engine", "vapo-while-pretraining", "vapo"],
)
def test_resumed_weights_are_the_uninterrupted_ones(
    preset: str, stop: int, extra: tuple[str, ...], tmp_path: Path
) -> None:
    config = small(*extra, preset=preset)
    whole = Trainer(config, tmp_path / "whole")
    whole.run()
    part = Trainer(config, tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == stop else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    assert resumed.done == stop
    resumed.run()
    for one, other in zip(state(whole), state(resumed), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_and_a_run_must_both_have_a_critic(tmp_path: Path) -> None:
    Trainer(small("steps=1"), tmp_path / "with").run()
    names = {path.name for path in checkpoints(tmp_path / "with")[-1].iterdir()}
    assert {"critic.safetensors", "critic-optimizer.safetensors"} <= names
    with pytest.raises(RunError, match="only one of the two has a critic"):
        Trainer(small(preset=None), tmp_path / "with", resume=True)
    Trainer(small("steps=1", preset=None), tmp_path / "without").run()
    with pytest.raises(RunError, match="only one of the two has a critic"):
        Trainer(small(), tmp_path / "without", resume=True)


def test_a_critic_is_pretrained_while_the_policy_stands_still(tmp_path: Path) -> None:
    trainer = Trainer(small(*VAPO, "steps=3", preset="vapo"), tmp_path / "run")
    assert trainer.critic is not None
    policy, values = (
        [each.clone() for each in model.parameters()]
        for model in (trainer.policy.model, trainer.critic.model)
    )
    for step in (1, 2, 3):
        trainer.train_step()
        still = all(map(torch.equal, policy, trainer.policy.model.parameters()))
        assert still == (step < 3)
        assert not all(map(torch.equal, values, trainer.critic.model.parameters()))
    trainer.recording.close(finished=True)
    first, second, third = recorded(tmp_path / "run")
    for early in (first, second):
        assert scalar(early["updates_per_batch"]) == 0
        assert "optimizer/grad_norm" not in early
        assert "optimizer/update_norm_ratio" not in early
        assert scalar(early["critic/loss"]) > 0
    assert scalar(third["updates_per_batch"]) == 4
    assert scalar(third["staleness/max"]) == 0


def test_staleness_and_warm_up_begin_with_the_policys_first_step(tmp_path: Path) -> None:
    extra = (*VAPO, "engine.sync_every=4", "steps=4", "optimizer.warmup_steps=1")
    Trainer(small(*extra, preset="vapo"), tmp_path / "run").run()
    steps = recorded(tmp_path / "run")
    # In optimizer steps: the engine is synced before step 1, the policy moves from step 3 on.
    assert [scalar(step["staleness/max"]) for step in steps] == [0, 0, 0, 4]
    rates = [scalar(step["optimizer/learning_rate"]) for step in steps[2:]]
    assert rates == pytest.approx([5e-5, 1e-4])


def test_a_run_tells_of_its_critic_and_one_without_says_nothing(tmp_path: Path) -> None:
    Trainer(small("steps=2"), tmp_path / "with").run()
    Trainer(small("steps=2", preset=None), tmp_path / "without").run()
    own = {
        *("critic/loss", "critic/explained_variance", "critic/value_mean", "critic/grad_norm"),
        *("critic/skipped_rate", "advantage/lambda_mean"),
    }
    last = recorded(tmp_path / "with")[-1]
    assert own <= last.keys()
    assert scalar(last["advantage/lambda_mean"]) == 0.95
    assert isinstance(last["advantage/bound_excess"], NotApplicable)
    assert own.isdisjoint(recorded(tmp_path / "without")[-1])
    assert read_run(tmp_path / "with").manifest.knobs["advantage"] == "gae"


def test_a_critic_learns_in_passes_of_its_own(tmp_path: Path) -> None:
    counts = []
    for passes in (0, 3):
        trainer = Trainer(small(f"critic.passes={passes}"), tmp_path / str(passes))
        trainer.train_step()
        trainer.recording.close(finished=True)
        counts.append(recorded(tmp_path / str(passes))[0]["critic/loss"].count)
    assert counts == [4, 12]


def test_a_critic_neither_begins_nor_ends_in_flight(tmp_path: Path) -> None:
    trainer = Trainer(small("steps=1", preset=None), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"neither added nor removed.*new run"):
        trainer._prepare(small("steps=1"))
    trainer.recording.close(finished=False)


def config_error(*assignments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(assignments=assignments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        (("advantage.kind=gae", "rollout.dynamic_sampling=true"), "a policy with a critic learns"),
        (("advantage.kind=gae", "rollout.filter_groups=true"), "a policy with a critic learns"),
        (("advantage.kind=gae", "loss.kind=gspo"), "one term per response"),
        (("advantage.kind=gae", "advantage.component_weights.x=1.0"), "not standardize components"),
        (
            ("advantage.kind=gae", "critic.pretrain_steps=9", "steps=9"),
            "leave none of the 9 steps to the policy",
        ),
        (("critic.learning_rate=0.5",), "critic.learning_rate has no effect"),
        (
            ("advantage.whiten=true", "critic.passes=2"),
            "advantage.whiten, critic.passes have no effect",
        ),
        (("loss.kind=gmpo", "loss.positive_nll=0.1"), "share no denominator"),
    ],
)
def test_what_a_critic_does_not_go_with_is_refused(
    assignments: tuple[str, ...], reason: str
) -> None:
    assert reason in config_error(*assignments)


def test_a_lambda_for_long_responses_gives_a_warning_for_short_ones() -> None:
    (warning,) = small("steps=20", preset="vapo").warnings()
    assert "28 tokens lambda is 0.29" in warning
    assert small("rollout.max_length=40", "steps=20", preset="vapo").warnings() == []
    assert small(preset="ppo").warnings() == []


VECTORS = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())


def plain_batch(samples: Samples, mask_BT: Tensor, correct_B: Tensor | None) -> LearnBatch:
    zeros_BT = torch.zeros(mask_BT.shape)
    groups_B = torch.zeros(len(mask_BT), dtype=torch.long)
    return LearnBatch(
        samples=samples,
        group_ids_B=groups_B,
        advantages_BT=zeros_BT,
        loss_mask_BT=mask_BT,
        old_logprobs_BT=zeros_BT,
        corrected=None,
        reference_logprobs_BT=None,
        correct_B=correct_B,
        kept_B=torch.ones(len(mask_BT), dtype=torch.bool),
    )


def test_ppo_with_the_likelihood_of_correct_responses_is_the_published_one() -> None:
    core, wanted = VECTORS["core"], VECTORS["losses"]["vapo_ppo_plus_positive_nll"]
    mask_BT = torch.tensor(core["mask"]).bool()
    new_BT, old_BT = (torch.tensor(core[f"p_{name}"]).double().log() for name in ("new", "old"))
    new_BT = torch.where(mask_BT, new_BT, 0.0).requires_grad_()
    config = loss_config({"clip_high": 0.28, "aggregation": "token-mean", "positive_nll": 0.1})
    advantages_BT = torch.tensor(core["advantages"]).double()[:, None].expand(mask_BT.shape)
    inputs = LossInputs(new_BT, old_BT, old_BT, advantages_BT, mask_BT, config)
    loss_BT = torch.where(mask_BT, loss_of("ppo_clip")(inputs).loss_BT, 0.0)
    tokens = StepTokens(mask_BT, torch.tensor([0, 0]), 4)
    loss = (loss_BT * token_weights("token-mean", tokens)).sum()
    correct_B = torch.tensor(wanted["params"]["correct"]).bool()
    batch = plain_batch(drawn(2), mask_BT, correct_B)
    weights_BT = positive_weights(batch, torch.arange(2), config.positive_nll)
    assert weights_BT is not None
    loss = loss - (weights_BT * new_BT).sum()
    (gradient_BT,) = torch.autograd.grad(loss, new_BT)
    assert loss.item() == pytest.approx(wanted["loss"], rel=1e-6)
    torch.testing.assert_close(
        gradient_BT, torch.tensor(wanted["grad_wrt_new_logp"]).double(), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize(
    ("correct", "coefficient"), [(None, 0.1), ([True] * 8, 0.0), ([False] * 8, 0.1)]
)
def test_without_a_correct_response_there_is_nothing_to_imitate(
    correct: list[bool] | None, coefficient: float
) -> None:
    samples = drawn()
    correct_B = None if correct is None else torch.tensor(correct)
    batch = plain_batch(samples, samples.mask_BT, correct_B)
    assert positive_weights(batch, torch.arange(8), coefficient) is None


def learner_step(trainer: Trainer, batch: LearnBatch, config: TrainConfig) -> tuple[float, Tensor]:
    """The likelihood that an update reports, and its gradient, read back from the moments."""
    fresh = Learner(trainer.policy.model, config.optimizer)
    rows = torch.arange(len(batch.samples))
    update = fresh.update(batch, rows, config, 0.0, torch.Generator())
    moments = fresh.optimizer.state_dict()["state"]
    gradient_N = torch.cat([moments[index]["exp_avg"].flatten() for index in sorted(moments)])
    assert update.positive_nll is not None
    return update.positive_nll, gradient_N


def test_correct_responses_are_imitated_with_a_denominator_of_their_own(tmp_path: Path) -> None:
    extra = ("loss.positive_nll=0.5", "optimizer.max_grad_norm=1e9")
    config = small(*extra, preset=None)
    trainer = Trainer(config, tmp_path / "run")
    rollouts = trainer._collect(1)
    scores = score(trainer.policy.model, rollouts.samples, 1.0)
    batch = trainer._learn_batch(rollouts, scores)
    correct_B = torch.arange(16) % 3 == 0
    batch = replace(
        batch, correct_B=correct_B, advantages_BT=torch.zeros_like(batch.old_logprobs_BT)
    )
    found, whole = learner_step(trainer, batch, config)
    lengths_B = rollouts.samples.mask_BT.sum(dim=1)
    wanted = -scores.logprobs_BT[correct_B].sum() / lengths_B[correct_B].sum()
    assert found == pytest.approx(float(wanted), rel=1e-5)
    assert whole.abs().max() > 0
    for size in (1, 5):
        split, gradient_N = learner_step(
            trainer, batch, small(*extra, f"optimizer.micro_batch={size}", preset=None)
        )
        assert split == pytest.approx(found, rel=1e-5)
        torch.testing.assert_close(gradient_N, whole, rtol=1e-4, atol=1e-7)
    # The loss of a zero advantage is nothing: the gradient is the likelihood's alone.
    _, heavier = learner_step(
        trainer, batch, small("loss.positive_nll=1", "optimizer.max_grad_norm=1e9", preset=None)
    )
    torch.testing.assert_close(heavier, 2 * whole, rtol=1e-4, atol=1e-7)
    trainer.recording.close(finished=False)


def test_rewards_without_verdicts_imitate_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(40)]
    data.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unjudged.py").write_text(
        "def reward(prompts, completions, answers):\n    return [0.5] * len(prompts)\n"
    )
    extra = (f"task.data={data}", "task.reward=unjudged:reward")
    config = small(*extra, "loss.positive_nll=0.1", "model.warm_start_steps=0", preset=None)
    trainer = Trainer(config, tmp_path / "run")
    with pytest.raises(DataError, match=r"which responses are correct.*loss\.positive_nll=0"):
        trainer.run()
