"""Scores of a plain model on rearranged weights against the model's own modules."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from grpodoctor.trainer.model import forward_scores as scores_module
from grpodoctor.trainer.model.forward import gradient_checkpointing
from grpodoctor.trainer.model.forward_scores import ForwardOutput, forward_scores
from grpodoctor.trainer.model.plain import scoring
from grpodoctor.trainer.model.plain.weights import plain_weights
from grpodoctor.trainer.samples import Samples

SHAPE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen2 tied": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 6}),
    "llama with biases": (
        LlamaForCausalLM,
        LlamaConfig,
        {"attention_bias": True, "head_dim": 10, "rms_norm_eps": 0.1},
    ),
}


def model_of(name: str) -> PreTrainedModel:
    kind, config, more = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = kind(config(**{**SHAPE, **more})).eval()
        with torch.no_grad():  # biases and norms begin as zeros and ones, which would hide mistakes
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def samples_of(prompts: list[int], lengths: list[int]) -> Samples:
    """Random responses of these lengths to prompts of these lengths; padding holds any token."""
    width, length = max(prompts), max(lengths)
    generator = torch.Generator().manual_seed(len(prompts))
    tokens_BL = torch.randint(0, 61, (len(prompts), width + length), generator=generator)
    columns = torch.arange(width + length)
    starts, ends = width - torch.tensor(prompts), width + torch.tensor(lengths)
    return Samples(
        tokens_BL=tokens_BL,
        attention_BL=(columns >= starts[:, None]) & (columns < ends[:, None]),
        prompt_width=width,
        logprobs_BT=torch.zeros(len(prompts), length),
        truncated_B=torch.zeros(len(prompts), dtype=torch.bool),
        pad_id=0,
    )


BATCHES = {
    "full": samples_of([3, 3, 3], [5, 5, 5]),
    "prompts differ": samples_of([4, 5, 5, 5], [9, 9, 9, 9]),
    "mostly padding": samples_of([1, 8, 3, 2], [12, 1, 2, 5]),
    "all rows end early": samples_of([6, 2], [2, 4]),
    "one token": samples_of([1], [1]),
}


def passed(
    model: PreTrainedModel, samples: Samples, temperature: float = 0.7
) -> tuple[ForwardOutput, dict[str, Tensor]]:
    """Scores, and the gradient of every weight."""
    output = forward_scores(model, samples, temperature)
    coefficients = torch.linspace(-1, 2, samples.mask_BT.numel()).view(samples.mask_BT.shape)
    loss = (coefficients * (output.logprobs_BT + 0.3 * output.entropy_BT)).sum()
    loss.backward()
    gradients = {}
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        gradients[name] = weight.grad
    model.zero_grad(set_to_none=True)
    return output, gradients


def assert_equal_scores(model: PreTrainedModel, samples: Samples) -> None:
    with patch.object(scores_module, "plain_weights", return_value=None):
        expected, expected_gradients = passed(model, samples)
    output, gradients = passed(model, samples)
    assert not output.logprobs_BT.equal(expected.logprobs_BT)  # computed in another order
    for own, others in zip(output[:2], expected[:2], strict=True):
        torch.testing.assert_close(own, others, atol=1e-4, rtol=0)
    # A gradient that is zero in exact arithmetic, such as that of the queries of a single token,
    # consists of rounding errors of the others.
    rounding = torch.finfo().eps * max(
        float(each.abs().max()) for each in expected_gradients.values()
    )
    for name, gradient in expected_gradients.items():
        allowed = 2e-5 * float(gradient.abs().max()) + rounding
        torch.testing.assert_close(gradients[name], gradient, atol=allowed, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_gradients_are_those_of_the_modules(name: str) -> None:
    assert_equal_scores(model_of(name), BATCHES["mostly padding"])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("packed_below", [0.0, 2.0], ids=["padded", "packed"])
def test_padding_changes_no_score(batch: str, packed_below: float) -> None:
    with patch.object(scoring, "_PACKED_BELOW", packed_below):
        assert_equal_scores(model_of("qwen2"), BATCHES[batch])


def test_padding_is_left_out_of_the_products() -> None:
    model = model_of("qwen2")
    weights = plain_weights(model)
    assert weights is not None
    read = []
    linear = scoring.functional.linear

    def counting(hidden: Tensor, *arguments: Tensor) -> Tensor:
        read.append(len(hidden))
        return linear(hidden, *arguments)

    samples = BATCHES["mostly padding"]
    with patch.object(scoring.functional, "linear", counting):
        scoring.plain_logits(weights, samples)
    attention_BL = samples.attention_BL
    assert set(read[:-1]) == {int(attention_BL.sum()) - len(attention_BL)}
    assert read[-1] == int(samples.mask_BT.sum())


def test_checkpointed_layers_store_less_and_give_the_same_gradients() -> None:
    model, samples = model_of("qwen2"), BATCHES["prompts differ"]
    stored = []

    def measured() -> tuple[ForwardOutput, dict[str, Tensor]]:
        saved = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal saved
            saved += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = passed(model, samples)
        stored.append(saved)
        return result

    expected, expected_gradients = measured()
    with gradient_checkpointing(model, enabled=True):
        output, gradients = measured()
    assert output.logprobs_BT.equal(expected.logprobs_BT)
    assert all(gradients[name].equal(expected_gradients[name]) for name in gradients)
    assert stored[1] < stored[0] / 2


def test_a_model_in_training_mode_runs_its_modules() -> None:
    assert plain_weights(model_of("llama").train()) is None
