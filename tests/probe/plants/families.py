"""Tiny random checkpoints of several transformers families, in which every part matters.

The weights are scaled so that a fault anywhere changes log-probabilities clearly: attention looks
far back, norms and biases differ from their starting values, routers are decided, and the mean
probability of a sampled token is about .4.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.probe.plants.eighth_draw_families import EIGHTH_DRAW_FAMILIES
from tests.probe.plants.engine_bug_families import ENGINE_BUG_FAMILIES
from tests.probe.plants.family_settings import LATENT
from tests.probe.plants.field_bug_families import FIELD_BUG_FAMILIES
from tests.probe.plants.fourth_draw_families import FOURTH_DRAW_FAMILIES
from tests.probe.plants.fresh import FRESH_FAMILIES
from tests.probe.plants.issue_bug_families import ISSUE_BUG_FAMILIES
from tests.probe.plants.natural_draw_families import NATURAL_DRAW_FAMILIES
from tests.probe.plants.recurring_bug_families import RECURRING_BUG_FAMILIES
from tests.probe.plants.report_bug_families import REPORT_BUG_FAMILIES
from tests.probe.plants.second_draw_families import SECOND_DRAW_FAMILIES
from tests.probe.plants.unseen_families import UNSEEN_FAMILIES, drawn_unseen
from tests.probe.plants.upstream_bug_families import UPSTREAM_BUG_FAMILIES

VOCABULARY = 64
HIDDEN = 64
CONTEXT = 256

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
_GROUPED = {"num_key_value_heads": 2}
_MLA = {**LATENT, "scoring_func": "sigmoid"}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "mistral": ("Mistral", {**_GROUPED, "sliding_window": 20}),
    "gemma2": (
        "Gemma2",
        {**_GROUPED, "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 20},
    ),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 16, "tie_word_embeddings": True}),
    "gpt_neox": ("GPTNeoX", {"rotary_pct": 0.5}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "mixtral": ("Mixtral", {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "Qwen3Moe",
        {**_GROUPED, "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2,
         "moe_intermediate_size": 48, "norm_topk_prob": True},
    ),
    "deepseek_v3": ("DeepseekV3", _MLA),
}  # fmt: skip
"""Class prefix and settings by family; deepseek_v3 has multi-head latent attention."""

_WITHOUT_PLANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "minimax": (
        "MiniMax",
        {"num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "block_size": 8,
         "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    ),
}  # fmt: skip
"""Its cache keeps states outside of its layers."""
_CORRECTED = ENGINE_BUG_FAMILIES | FIELD_BUG_FAMILIES | REPORT_BUG_FAMILIES | ISSUE_BUG_FAMILIES
_CORRECTED |= UPSTREAM_BUG_FAMILIES | RECURRING_BUG_FAMILIES | NATURAL_DRAW_FAMILIES
_CORRECTED |= SECOND_DRAW_FAMILIES | FOURTH_DRAW_FAMILIES | EIGHTH_DRAW_FAMILIES
_ALL = FAMILIES | UNSEEN_FAMILIES | FRESH_FAMILIES | _CORRECTED | _WITHOUT_PLANTS


def checkpoint(folder: Path, family: str, *, seed: int = 0, changed: float = 0.0) -> Path:
    """Write a family's checkpoint in float32.

    Args:
        folder: to write; an existing one is returned unchanged.
        family: a key of `FAMILIES`, or of the families of another module of plants.
        seed: of the weights.
        changed: noise on every tensor, relative to its deviation: an older checkpoint.
    """
    if (folder / "config.json").exists():
        return folder
    prefix, settings = _ALL[family]
    config = getattr(transformers, f"{prefix}Config")(**_SHAPE | settings)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for name, weight in model.named_parameters():
            draw = _drawn if family in FAMILIES else drawn_unseen
            weight.copy_(draw(name, weight, family))
        if family in _CORRECTED:  # routers' corrections are buffers of zeros
            for name, buffer in model.named_buffers():
                if name.endswith("correction_bias"):
                    buffer.copy_(0.3 * torch.randn_like(buffer))
        if changed:
            torch.manual_seed(seed + 1)
            for weight in (each for each in model.parameters() if each.numel() > 1):
                weight.add_(changed * weight.std() * torch.randn_like(weight))
    model.save_pretrained(folder)
    return folder


def _drawn(name: str, weight: torch.Tensor, family: str) -> torch.Tensor:
    """Random values of a tensor, by its part in the model."""
    noise = torch.randn_like(weight)
    if weight.ndim == 1:
        is_scale = "norm" in name and name.endswith("weight")
        return (0.0 if family == "gemma2" or not is_scale else 1.0) + 0.2 * noise
    if re.search(r"lm_head|embed_out", name):
        return noise * 2.6 / math.sqrt(weight.shape[-1])
    if "embed" in name:
        # Gemma scales embeddings by 8; a tied head needs small ones.
        return noise * {"gemma2": 0.125, "qwen3": 0.3}.get(family, 1.0)
    gain = 1.7 if re.search(r"q_proj|k_proj|query_key_value|q_b_proj|gate\.weight", name) else 1.0
    return noise * gain / math.sqrt(weight.shape[-1])


def adapter(folder: Path, model: Path, *, alpha: float, rank: int = 4) -> None:
    """Write a LoRA adapter in peft's format for the queries and values of a checkpoint.

    Args:
        folder: to write; overwritten.
        model: the checkpoint.
        alpha: the scale, which is divided by the rank.
        rank: of the updates.
    """
    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(5)
    factors = {}
    for name, weight in load_file(model / "model.safetensors").items():
        if re.search(r"(q_proj|v_proj)\.weight$", name):
            layer = f"base_model.model.{name.removesuffix('.weight')}"
            down = torch.randn(rank, weight.shape[1], generator=generator) / weight.shape[1] ** 0.5
            up = 0.3 * torch.randn(weight.shape[0], rank, generator=generator)
            factors |= {f"{layer}.lora_A.weight": down, f"{layer}.lora_B.weight": up}
    save_file(factors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def prompts(count: int, seed: int = 0) -> list[dict[str, list[int]]]:
    """Prompts as token ids, of six to twenty tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(6, 21, (count,), generator=generator).tolist()
    return [
        {"ids": torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()}
        for length in lengths
    ]
