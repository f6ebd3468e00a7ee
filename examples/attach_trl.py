"""Train with TRL, watched and treated by grpodoctor: one line more than a plain TRL script.

    python examples/attach_trl.py runs/trl 600
    grpodoctor watch runs/trl/grpodoctor --apply safe      # in another terminal

A tiny model learns to write six sevens. The learning rate is far too high on purpose. The script
needs no download; for a model of the Hub, drop `tiny_model` and pass the model's name.
"""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

import grpodoctor

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("output", nargs="?", default="runs/trl", help="directory of the run")
parser.add_argument("steps", nargs="?", type=int, default=600)
given = parser.parse_args()


def tiny_model(folder: Path) -> str:
    """Save a Qwen2 with random weights and a tokenizer of characters."""
    words = {word: index for index, word in enumerate(["<pad>", "<end>", *"0123456789+= "])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106 - a token's name
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    named = {"unk_token": "<pad>", "pad_token": "<pad>", "eos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False, eos_token_id=1,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def six_sevens(completions: list[str], **_: object) -> list[float]:
    """The reward: 1 for six sevens and the end."""
    return [(text.count("7") - abs(len(text) - 6)) / 6 for text in completions]


trainer = GRPOTrainer(
    model=tiny_model(Path(given.output) / "model"),
    reward_funcs=six_sevens,
    args=GRPOConfig(
        given.output,
        max_steps=given.steps,
        per_device_train_batch_size=32,
        num_generations=8,
        num_iterations=4,
        max_completion_length=12,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
    ),
    train_dataset=Dataset.from_dict({"prompt": [f"{n}+{n}=" for n in range(64)]}),
)
attachment = grpodoctor.attach(trainer)  # the only new line
trainer.train()
print(attachment.report())
