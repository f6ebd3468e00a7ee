"""The policy: the trained model with its tokenizer, either built-in or the user's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from grpodoctor.errors import ConfigError, ModelError
from grpodoctor.trainer.config.sections import ModelConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import Ranks
from grpodoctor.trainer.model.forward import set_compute_dtype
from grpodoctor.trainer.model.lora import add_adapters
from grpodoctor.trainer.model.tokenizer import CharTokenizer, HubTokenizer, Tokenizer
from grpodoctor.trainer.model.warm_start import is_cached, warm_start
from grpodoctor.trainer.task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BUILTIN = "builtin"

_INITIAL_SEED = 20_250_101
_INITIAL_STD = 0.08
"""Four times the default of larger models: such a narrow model learns far faster with it."""
_ROPE_THETA = 100.0
"""Wavelengths up to a few hundred tokens: longer ones are useless for such short texts."""
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model with its tokenizer."""

    model: PreTrainedModel
    tokenizer: Tokenizer
    name: str


def load_policy(config: TrainConfig, task: Task) -> Policy:
    """Load the policy that `config.model` names, in evaluation mode with dropout off.

    Raises:
        ModelError: if the model is missing, damaged or not safetensors, or lacks its tokenizer.
        ConfigError: if the device does not exist.
        MissingExtraError: if adapters are configured and peft is not installed.
    """
    device = device_of(config.model.device)
    builtin = config.model.name == BUILTIN
    policy = _load_builtin(config.model, task) if builtin else _load_hub(config.model)
    if config.model.lora_rank:
        add_adapters(policy.model, config.model, config.seed)
    if config.model.compute == "bfloat16":
        set_compute_dtype(policy.model, torch.bfloat16)
    policy.model.to(device)  # type: ignore[arg-type]  # of transformers
    return policy


def load_policy_on_ranks(config: TrainConfig, task: Task, ranks: Ranks) -> Policy:
    """Load the policy on every rank, with the first rank's weights.

    Raises:
        InputError: as `load_policy`, on all ranks if it fails on one.
    """
    if not ranks.is_first:  # the first rank's warm-started weights are broadcast
        cold = config.model.model_copy(update={"warm_start_steps": 0})
        config = config.model_copy(update={"model": cold})
    ranks.run_all(lambda: _refuse_crowding(config, ranks))
    policy = ranks.run_all(lambda: load_policy(config, task))
    ranks.broadcast_weights(policy.model)
    return policy


def _refuse_crowding(config: TrainConfig, ranks: Ranks) -> None:
    """Refuse several ranks on one CUDA device, because NCCL does not support it."""
    device = device_of(config.model.device)
    if ranks.world == 1 or device.type == "cpu":
        return
    local_ranks, devices = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if local_ranks > devices or device.index is not None:
        raise ConfigError(
            f"each of {local_ranks} ranks needs a separate CUDA device; there are {devices}",
            where="model.device",
            remedy="set model.device=auto and start no more ranks than devices, or use the CPU",
        )


def device_of(name: str) -> torch.device:
    """The device that `model.device` selects on this machine.

    Raises:
        ConfigError: if the machine does not have this CUDA device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"this machine has {torch.cuda.device_count()} CUDA devices, and not this one",
            where=f"model.device={name}",
            remedy="set model.device=auto",
        )
    return device


def is_warm_start_cached(config: TrainConfig, task: Task) -> bool:
    """Whether loading the built-in model takes its warm start from the cache."""
    model, steps = _build_builtin(config.model, CharTokenizer()), config.model.warm_start_steps
    return not steps or is_cached(model, task, steps)


def _load_builtin(config: ModelConfig, task: Task) -> Policy:
    tokenizer = CharTokenizer()
    model = _build_builtin(config, tokenizer)
    if config.warm_start_steps:
        warm_start(model, tokenizer, task, config.warm_start_steps)
    return Policy(model, tokenizer, BUILTIN)


def _build_builtin(config: ModelConfig, tokenizer: CharTokenizer) -> PreTrainedModel:
    """The built-in model before its warm start, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_INITIAL_SEED + config.initial_seed)
        model = _random_model(config, tokenizer)
    model.train(mode=False)
    return model


def _random_model(config: ModelConfig, tokenizer: CharTokenizer) -> PreTrainedModel:
    """A float32 model with random weights: Qwen2, or Qwen3-MoE if it has experts.

    It has 110 thousand weights at the default size, and 310 thousand with eight experts.
    """
    from transformers import (
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
    )

    inner = config.width * 11 // 4
    common: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": inner,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.heads,
        "max_position_embeddings": _LONGEST,
        "tie_word_embeddings": True,
        "initializer_range": _INITIAL_STD,
        "rope_theta": _ROPE_THETA,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": None,
        "eos_token_id": sorted(tokenizer.end_ids),
    }
    if config.initial_seed:  # other weights; the name of a cached warm start contains the config
        common["initial_seed"] = config.initial_seed
    if not config.experts:
        return Qwen2ForCausalLM(Qwen2Config(**common))
    mixture: dict[str, Any] = {
        "head_dim": config.width // config.heads,
        "moe_intermediate_size": max(8, inner // config.experts_per_token),
        "num_experts": config.experts,
        "num_experts_per_tok": config.experts_per_token,
        "norm_topk_prob": True,
    }
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**common, **mixture))


def _load_hub(config: ModelConfig) -> Policy:
    """Load a model and its tokenizer from safetensors, without running code from its repository."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _refuse_non_model(config.name)
    failures = (
        *(OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, ImportError),
        *(SafetensorError, StrictDataclassError),
    )
    try:
        with _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                config.name,
                dtype=getattr(torch, config.dtype),
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # `_refuse_partial` refuses them in one line
            )
    except failures as error:
        raise _unloadable("the model does not load", config.name, error) from error
    model, info = loaded
    _refuse_partial(config.name, info)
    try:
        tokenizer = AutoTokenizer.from_pretrained(config.name, trust_remote_code=False)
    except failures as error:
        raise _unloadable("the tokenizer does not load", config.name, error) from error
    model.train(mode=False)
    return Policy(model, HubTokenizer(tokenizer, model), config.name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress transformers' tables and progress bars; errors are reported in one line."""
    from logging import CRITICAL

    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of transformers
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]  # as above


def _refuse_partial(name: str, info: Mapping[str, Any]) -> None:
    """Refuse a model with missing weights, which transformers would initialize randomly."""
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"the model lacks {len(missing)} of its weights, such as {missing[0]}",
            where=name,
            remedy="save the whole model with save_pretrained",
        )
    mismatched = sorted(info["mismatched_keys"])
    if mismatched:
        weight, saved, wanted = mismatched[0]
        raise ModelError(
            f"{len(mismatched)} weights do not have the size in config.json, such as "
            f"{weight}: {tuple(saved)} instead of {tuple(wanted)}",
            where=name,
            remedy="use the config.json that was saved with these weights",
        )


def _refuse_non_model(name: str) -> None:
    """Report separately the mistakes for which transformers has one common message."""
    path = Path(name)
    if path.is_file():
        raise ModelError("this is a file", where=name, remedy="pass the model's directory")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(
                "the directory contains no model",
                where=name,
                remedy="point to a directory with config.json and *.safetensors",
            )
        if not any(path.glob("*.safetensors")):
            raise ModelError(
                "the model has no safetensors weights",
                where=name,
                remedy="convert it with save_pretrained: pickled weights can run code",
            )
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError("no such directory", where=name, remedy="check model.name")


def _unloadable(what: str, name: str, error: Exception) -> ModelError:
    reason = " ".join(str(error).split()).partition(". ")[0][:160]
    return ModelError(
        f"{what}: {type(error).__name__}: {reason}",
        where=name,
        remedy="check model.name: a local directory, or a hub model that this machine can reach",
    )
