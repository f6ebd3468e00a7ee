"""Model folders in the styles of real families: byte-level BPE trained on the spot, no weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.preflight.planted import tables

CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% endif %}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>"
    "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


@dataclass(frozen=True)
class Model:
    """A tokenizer, a chat template and the two config files."""

    specials: tuple[str, ...]
    eos: str
    pad: str | None
    ends: tuple[str, ...]
    """EOS tokens of generation_config.json."""
    template: str | None = None
    bos: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> Path:
        """Write the folder."""
        backend = Tokenizer.from_str(_trained(self.specials))
        if self.bos:
            number = backend.token_to_id(self.bos)
            backend.post_processor = processors.TemplateProcessing(
                single=f"{self.bos} $A", special_tokens=[(self.bos, number)]
            )
        names = {"eos_token": self.eos, "pad_token": self.pad, "bos_token": self.bos}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend, **{name: text for name, text in names.items() if text}
        )
        tokenizer.chat_template = self.template
        tokenizer.save_pretrained(folder)
        config = {"vocab_size": len(tokenizer), "max_position_embeddings": 4096, **self.config}
        ends = [tokenizer.convert_tokens_to_ids(end) for end in self.ends]
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "generation_config.json").write_text(
            json.dumps({"eos_token_id": ends, **self.generation})
        )
        return folder


@cache
def _trained(specials: tuple[str, ...]) -> str:
    """A tokenizer of a few thousand merges, as JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_corpus(), trainer)
    return str(tokenizer.to_str())


def _corpus() -> Iterator[str]:
    for table in (tables.word_problems(60), tables.latex_problems(60), tables.functions(30)):
        for row in table:
            yield from (value for value in row.values() if isinstance(value, str))


CHATML = Model(
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    eos="<|im_end|>", pad="<|endoftext|>", ends=("<|im_end|>", "<|endoftext|>"),
    template=CHATML_TEMPLATE,
)  # fmt: skip
LLAMA = Model(
    ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
     "<|eot_id|>", "<|finetune_right_pad_id|>"),
    eos="<|eot_id|>", pad="<|finetune_right_pad_id|>", ends=("<|end_of_text|>", "<|eot_id|>"),
    template=LLAMA_TEMPLATE, bos="<|begin_of_text|>",
)  # fmt: skip
GEMMA = Model(
    ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    eos="<eos>", pad="<pad>", ends=("<eos>", "<end_of_turn>"), template=GEMMA_TEMPLATE, bos="<bos>",
)  # fmt: skip
BASE = Model(
    ("<|endoftext|>", "<|pad|>"), eos="<|endoftext|>", pad="<|pad|>", ends=("<|endoftext|>",)
)
