"""A tiny Qwen2 with a tokenizer of characters, and trainers for it: 0.03 s a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHARACTERS = "0123456789+= "


def share_of_sevens(completions: list[str], **_: Any) -> list[float]:
    """A reward that a tiny model can learn."""
    return [text.count("7") / 8 for text in completions]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights and its tokenizer."""
    return save_model(tmp_path_factory.mktemp("tiny"))


def save_model(folder: Path, width: int = 32) -> Path:
    """Save a model with random weights and its tokenizer; returns the folder."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = {word: index for index, word in enumerate(["<pad>", "<end>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106 - a token's name
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    named = {"unk_token": "<pad>", "pad_token": "<pad>", "eos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=width, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False, eos_token_id=1,
        pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def make_trainer(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Makes a `GRPOTrainer`: 4 prompts, groups of 4, answers of 8 characters."""
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")

    def make(
        name: str = "run",
        reward: Any = share_of_sevens,
        kind: Any = None,
        callbacks: list[Any] | None = None,
        peft_config: Any = None,
        rollout_func: Any = None,
        evaluates: bool = False,
        **settings: Any,
    ) -> Any:
        from datasets import Dataset
        from transformers import PrinterCallback
        from trl import GRPOConfig, GRPOTrainer

        defaults: dict[str, Any] = {
            "max_steps": 4, "per_device_train_batch_size": 16, "num_generations": 4,
            "max_completion_length": 8, "learning_rate": 1e-2, "lr_scheduler_type": "constant",
            "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "logging_steps": 1,
            "disable_tqdm": True, "save_strategy": "no", "report_to": "none", "seed": 7,
            "dataloader_pin_memory": False,
        }  # fmt: skip
        prompts = [f"{number}+{number + 1}=" for number in range(10, 42)]
        trainer = (kind or GRPOTrainer)(
            model=str(model_folder),
            reward_funcs=reward,
            args=GRPOConfig(str(tmp_path / name), **(defaults | settings)),
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            callbacks=callbacks,
            peft_config=peft_config,
            **({} if rollout_func is None else {"rollout_func": rollout_func}),
            **({"eval_dataset": Dataset.from_dict({"prompt": prompts[:4]})} if evaluates else {}),
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    return make
