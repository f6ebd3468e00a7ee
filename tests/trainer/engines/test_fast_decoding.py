"""Fast decoding of a plain model against the model's own modules."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from grpodoctor.trainer.engines.fast_decoding import (
    ModuleStepDecoder,
    PlainStepDecoder,
    step_decoder_of,
)
from grpodoctor.trainer.engines.kv_cache import preallocated_cache
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.forward import pack_left, positions
from grpodoctor.trainer.model.plain.weights import plain_weights
from grpodoctor.trainer.model.tokenizer import CharTokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
STEPS = 12


def qwen2(**settings: Any) -> PreTrainedModel:
    return build(Qwen2ForCausalLM, Qwen2Config(**{**SIZES, **settings}))


def llama(**settings: Any) -> PreTrainedModel:
    return build(LlamaForCausalLM, LlamaConfig(**{**SIZES, **settings}))


def build(kind: Callable[[Any], PreTrainedModel], config: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():  # biases and norms begin as zeros and ones, which would hide mistakes
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.parametrize(
    "model",
    [
        qwen2(),
        qwen2(tie_word_embeddings=True, num_key_value_heads=6, rope_theta=100.0),
        llama(),
        llama(attention_bias=True, head_dim=12),
    ],
    ids=["qwen2", "qwen2 tied", "llama", "llama with biases and wide heads"],
)
def test_fast_decoding_gives_the_logits_of_the_modules(model: PreTrainedModel) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(2, 97, (n,), generator=generator).tolist() for n in (3, 7, 1, 7, 5)]
    tokens, attention = pack_left(rows, 0, torch.device("cpu"))
    with torch.inference_mode():
        decoders = []
        for choose in (ModuleStepDecoder, step_decoder_of):
            cache = preallocated_cache(model, STEPS)
            model(
                input_ids=tokens,
                attention_mask=attention.long(),
                position_ids=positions(attention),
                past_key_values=cache,
            )
            decoders.append(choose(model, cache, attention, STEPS))
        assert [type(each) for each in decoders] == [ModuleStepDecoder, PlainStepDecoder]
        lengths = attention.sum(dim=1)
        for index in range(STEPS):
            if index == 5:
                kept = torch.tensor([3, 0, 4])
                lengths = lengths[kept]
                for each in decoders:
                    each.keep(kept)
            drawn = torch.randint(2, 97, (len(lengths),), generator=generator)
            expected, found = (each.step(drawn, lengths + index) for each in decoders)
            assert expected.std() > 1
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


class Adapter(nn.Linear):
    """Some other kind of linear layer."""


def with_an_adapter() -> PreTrainedModel:
    model: Any = qwen2()
    model.model.layers[1].mlp.up_proj = Adapter(48, 80, bias=False)
    return model


def with_a_hook() -> PreTrainedModel:
    model: Any = qwen2()
    model.model.layers[1].register_forward_hook(lambda *_: None)
    return model


YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda: build(Qwen3ForCausalLM, Qwen3Config(**SIZES)),
        lambda: qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=0),
        lambda: qwen2(hidden_act="gelu"),
        lambda: llama(mlp_bias=True),
        lambda: llama(rope_parameters=YARN),
        lambda: qwen2().to(torch.bfloat16),
        lambda: qwen2(vocab_size=200_000, hidden_size=96),
        with_an_adapter,
        with_a_hook,
    ],
    ids=["family", "window", "gelu", "bias", "yarn", "bfloat16", "large", "adapter", "hook"],
)
def test_unsupported_models_decode_through_their_modules(
    make: Callable[[], PreTrainedModel],
) -> None:
    model = make()
    assert plain_weights(model) is None
    tokenizer = CharTokenizer()
    samples = sample(
        model,
        [tokenizer.encode("1+2="), tokenizer.encode("7=")],
        max_length=4,
        temperature=1.0,
        tokenizer=tokenizer,
        generator=torch.Generator().manual_seed(0),
    )
    assert samples.logprobs_BT.isfinite().all()


def test_fast_decoding_is_not_used_under_autocast() -> None:
    model = qwen2()
    assert plain_weights(model) is not None
    with torch.autocast("cpu", torch.bfloat16):
        assert plain_weights(model) is None
