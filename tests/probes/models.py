"""Tiny models for the tests of engines: one dense, one mixture of experts, and changed copies.

They are trained for a few seconds on chains of additions and subtractions, so that their
probabilities are peaked like those of a trained model: operands are random, results are not. A
sampled token has a probability of .4 to .5 on average, and about a quarter have more than .9. The
weights are cached in the user's cache folder under a hash of the recipe.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, processors
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from grpodoctor.trainer.model.muon import Muon
from grpodoctor.trainer.model.warm_start import cache_folder

SPECIALS = ("<pad>", "<eos>", "<bos>", "<user>", "<assistant>", "<unk>")
WORDS = (*SPECIALS, *"0123456789+-=; abcdefghijklmnopqrstuvwxyz")
PAD, EOS, BOS, USER, ASSISTANT = range(5)
ROWS = 64
"""Of the embeddings: padded beyond the tokenizer's words, as real ones are."""
CONTEXT = 2048
TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

_SHAPE: dict[str, Any] = {
    "vocab_size": ROWS,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": PAD,
    "bos_token_id": None,
    "eos_token_id": EOS,
    "initializer_range": 0.08,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "head_dim": 32,
}
_STEPS, _BATCH, _LENGTH = 90, 24, 96
_MUON_RATE, _ADAM_RATE = 0.012, 5e-3


def dense(folder: Path) -> Path:
    """A trained Qwen2 with tied embeddings, in bfloat16, and its tokenizer, in a folder."""
    return _save(folder, Qwen2ForCausalLM, Qwen2Config(**_SHAPE, tie_word_embeddings=True))


def moe(folder: Path) -> Path:
    """A trained Qwen3-MoE, two of eight experts a token in each of four layers, as `dense`."""
    config = Qwen3MoeConfig(**_SHAPE, **_EXPERTS, tie_word_embeddings=False)
    return _save(folder, Qwen3MoeForCausalLM, config)


def texts(count: int, seed: int = 0) -> list[str]:
    """Prompts: one to six chained problems, the last of them without its result."""
    rng = random.Random(seed)
    return [
        "".join([*(_problem(rng) for _ in range(rng.randrange(6))), _problem(rng).split("=")[0]])
        + "="
        for _ in range(count)
    ]


def messages(count: int, seed: int = 0) -> list[list[dict[str, str]]]:
    """The same as conversations, for the chat template."""
    return [[{"role": "user", "content": text}] for text in texts(count, seed)]


def prompts_file(path: Path, count: int, seed: int = 0) -> Path:
    """A file of `texts` as engine programs read them."""
    path.write_text(json.dumps([{"text": text} for text in texts(count, seed)]), encoding="utf-8")
    return path


def variant(
    folder: Path,
    from_: Path,
    *,
    perturb: float = 0.0,
    only: str = "",
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    begin: bool = False,
    template: str | None = None,
) -> Path:
    """A changed copy of a model directory.

    Args:
        folder: to write.
        from_: the original.
        perturb: noise on the tensors, relative to each one's standard deviation.
        only: a regular expression: perturb the tensors in whose names it is found.
        seed: of the noise.
        config: entries of config.json to set.
        begin: whether the tokenizer puts a beginning-of-sequence token before raw text.
        template: another chat template.
    """
    shutil.copytree(from_, folder, dirs_exist_ok=True)
    if perturb:
        _perturb(folder / "model.safetensors", perturb, only, seed)
    if config:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(config)), encoding="utf-8")
    if begin or template is not None:
        tokenizer(begin=begin, template=TEMPLATE if template is None else template).save_pretrained(
            folder
        )
    return folder


def tokenizer(*, begin: bool = False, template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    """One token a character; `begin` puts `<bos>` first."""
    words = {word: number for number, word in enumerate(WORDS)}
    plain = Tokenizer(models.BPE(words, [], unk_token="<unk>"))  # noqa: S106  # no password
    plain.decoder = decoders.Fuse()
    if begin:
        plain.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", BOS)]
        )
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        **(special | {"bos_token": "<bos>"} if begin else special),
        additional_special_tokens=["<user>", "<assistant>"],
        chat_template=template,
    )


def _problem(rng: random.Random) -> str:
    left, right = rng.randrange(10, 100), rng.randrange(1, 10)
    if rng.random() < 0.5:
        return f"{left}+{right}={left + right};"
    return f"{left}-{right}={left - right};"


def _perturb(path: Path, relative: float, only: str, seed: int) -> None:
    weights = load_file(path)
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in weights.items():
        if re.search(only, name):
            noise = torch.randn(tensor.shape, generator=generator) * tensor.float().std()
            weights[name] = (tensor.float() + relative * noise).to(tensor.dtype)
    save_file(weights, path, metadata={"format": "pt"})


def _save(folder: Path, kind: type[PreTrainedModel], config: Any) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20_250_101)
        model = kind(config)
        cached = cache_folder() / f"probe-model-{_key(config)}.safetensors"
        if cached.exists():
            model.load_state_dict(load_file(cached), strict=False)
        else:
            _train(model)
            cached.parent.mkdir(parents=True, exist_ok=True)
            weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            aside = cached.with_name(f"{cached.name}.{id(model)}")
            save_file(weights, aside)
            aside.replace(cached)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def _key(config: Any) -> str:
    recipe = [inspect.getsource(each) for each in (_train, _loss, _line, _problem, Muon)]
    facts = [config.to_diff_dict(), _STEPS, _BATCH, _LENGTH, _MUON_RATE, _ADAM_RATE, recipe, WORDS]
    versions = [torch.__version__, transformers.__version__]
    return hashlib.sha256(json.dumps([*facts, *versions], default=str).encode()).hexdigest()[:24]


def _train(model: PreTrainedModel) -> None:
    rng = random.Random(1)
    named = dict(model.named_parameters())
    inside = {name for name, each in named.items() if each.ndim == 2 and ".layers." in name}
    hidden = [each for name, each in named.items() if name in inside]
    others = [each for name, each in named.items() if name not in inside]
    muon = Muon(hidden)
    adam = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(_STEPS):
        rate = min(1.0, (step + 1) / 5) * (1 - step / _STEPS)
        model.zero_grad()
        _loss(model, torch.tensor([_line(rng) for _ in range(_BATCH)])).backward()
        adam.param_groups[0]["lr"] = _ADAM_RATE * rate
        adam.step()
        muon.step(_MUON_RATE * rate)


def _loss(model: PreTrainedModel, ids_BT: torch.Tensor) -> torch.Tensor:
    logits_BTV = model(input_ids=ids_BT[:, :-1]).logits
    return torch.nn.functional.cross_entropy(
        logits_BTV.flatten(0, 1).float(), ids_BT[:, 1:].flatten(), ignore_index=PAD
    )


def _line(rng: random.Random) -> list[int]:
    """A chain of problems, as text or in the template, ending or cut off."""
    words = {word: number for number, word in enumerate(WORDS)}
    text = "".join(_problem(rng) for _ in range(rng.randrange(4, 24)))
    ids = [words[letter] for letter in text]
    if rng.random() < 0.5:
        first = text.index("=") + 1
        ids = [USER, *ids[:first], ASSISTANT, *ids[first:]]
    ids = [*ids, EOS][:_LENGTH]
    return [*ids, *[PAD] * (_LENGTH - len(ids))]
