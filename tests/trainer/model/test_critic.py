"""The critic: construction, values, loss and gradient."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ModelError
from grpodoctor.trainer.algorithms.batches import ValueBatch
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.model.critic import Critic, ValueModel, value_loss, value_readings
from grpodoctor.trainer.model.lora import add_adapters
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.values import NotApplicable, scalar
from tests.trainer.families import build
from tests.trainer.model.critic_runs import drawn, small


def batch_of(samples: Samples, returns_BT: Tensor, values_BT: Tensor | None = None) -> ValueBatch:
    values_BT = torch.zeros_like(returns_BT) if values_BT is None else values_BT
    return ValueBatch(samples, samples.mask_BT, values_BT, returns_BT, returns_BT)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "mixtral", "qwen2_moe"])
def test_any_causal_model_gives_a_critic_of_its_own(family: str) -> None:
    policy = build(family)
    before = {name: each.clone() for name, each in policy.state_dict().items()}
    critic, samples = Critic(policy, small()), drawn()
    assert (critic.values(samples) == 0).all()  # before training
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


def test_a_value_depends_only_on_earlier_tokens() -> None:
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
    critic.model.backbone.double()  # the rounding of float32 depends on the processor
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


def test_a_bfloat16_policy_has_a_critic_with_a_float32_head() -> None:
    critic = Critic(build("qwen2").to(torch.bfloat16), small())
    assert critic.model.head.weight.dtype == torch.float32
    assert critic.model.backbone.dtype == torch.bfloat16
    samples = drawn()
    update = critic.update(
        batch_of(samples, torch.ones(samples.mask_BT.shape)), torch.arange(8), small()
    )
    assert update.applied
    assert critic.values(samples).dtype == torch.float32


def test_a_critic_computes_in_the_precision_of_the_policy() -> None:
    samples, values = drawn(), []
    for precision in ("weights", "bfloat16"):
        critic = Critic(build("qwen2"), small("model.name=x", f"model.compute={precision}"))
        with torch.no_grad():
            critic.model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
        values.append(critic.values(samples))
        assert critic.model.backbone.dtype == torch.float32
    fine, coarse = values
    assert 0 < (coarse - fine).norm() < 0.05 * fine.norm()


def test_a_model_without_a_separable_body_is_refused_as_a_critic() -> None:
    policy = build("qwen2")
    policy.base_model_prefix = "there_is_no_such_part"
    with pytest.raises(ModelError, match=r"cannot be used as a critic.*advantage\.kind=group"):
        ValueModel(policy, small("model.name=x"))


def test_a_critic_learns_a_simple_value_function() -> None:
    """The return depends on the first id of the prompt and on the third token of the response."""
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
    # Values outside the mask have no gradient.
    noisy_BT = torch.where(samples.mask_BT, returns_BT, 1e9)
    noisy = gradient(critic, replace(batch, returns_BT=noisy_BT), small(*extra))
    assert torch.equal(noisy, whole)


def test_the_value_loss_is_half_the_squared_error_clipped_pessimistically() -> None:
    values = torch.tensor([0.5, 0.5, 0.1, 0.9], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([0.0, 0.0, 0.0, 0.8], dtype=torch.float64)
    returns = torch.tensor([1.0, -1.0, 1.0, 0.0], dtype=torch.float64)
    plain = value_loss(values, old, returns, None)
    assert plain.tolist() == pytest.approx([0.125, 1.125, 0.405, 0.405])
    clipped = value_loss(values, old, returns, 0.2)
    assert clipped.tolist() == pytest.approx([0.32, 1.125, 0.405, 0.405])
    (pull,) = torch.autograd.grad(clipped.sum(), values)
    # The first value has moved toward its return by more than the clip: no gradient.
    assert pull.tolist() == pytest.approx([0.0, 1.5, -0.9, 0.9])


def test_explained_variance_compares_values_with_observed_returns() -> None:
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
