"""Tiny random checkpoints of common model families, created by the tests."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

WORDS = ["<pad>", "<eos>", "<user>", "<unk>", *"0123456789+-*=#."]
TEMPLATE = (
    "<user>{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}.{% endif %}"
)
_SHAPE = {
    "vocab_size": len(WORDS) + 4,  # padded a little, as real embeddings are
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "decoder_sparse_step": 1,
}
FAMILIES = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"attention_dropout": 0.1}),
    "mixtral": (MixtralForCausalLM, MixtralConfig, {"num_local_experts": 4}),
    "qwen2_moe": (
        Qwen2MoeForCausalLM,
        Qwen2MoeConfig,
        {**_EXPERTS, "shared_expert_intermediate_size": 24},
    ),
    "qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig, {**_EXPERTS, "head_dim": 8}),
}
DENSE = ("qwen2", "qwen3", "llama")


def build(family: str, **changes: object) -> PreTrainedModel:
    """A model of the family with random weights, the same at every call, in evaluation mode."""
    model, config, more = FAMILIES[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model(config(**{**_SHAPE, **more, **changes})).eval()


def save(family: str, folder: Path, *, template: bool = False, **changes: object) -> Path:
    """The model and a tokenizer with a token per character, as model repositories hold them."""
    build(family, **changes).save_pretrained(folder)
    save_tokenizer(folder, template=template)
    return folder


def save_tokenizer(folder: Path, *, template: bool = False, words: list[str] | None = None) -> None:
    """A tokenizer with a token per character."""
    vocabulary = {word: index for index, word in enumerate(words or WORDS)}
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocabulary, [], unk_token=special["unk_token"])),
        additional_special_tokens=["<user>"],
        **special,
    )
    tokenizer.chat_template = TEMPLATE if template else None
    tokenizer.save_pretrained(folder)
