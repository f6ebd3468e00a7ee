"""A model folder with a tokenizer in the style of Llama 2: words start with a mark, bytes as tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.preflight.planted import tables
from tests.preflight.planted.models import Model

_UNKNOWN = "<unk>"
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
    "{% elif m.role == 'system' %}[INST] <<SYS>>\n{{ m.content | trim }}\n<</SYS>> [/INST]"
    "{% else %} {{ m.content | trim }} {{ eos_token }}{% endif %}{% endfor %}"
)


@dataclass(frozen=True)
class MarkedWords(Model):
    """BPE over characters with bytes as a fallback; blanks are written as a mark."""

    def save(self, folder: Path) -> Path:
        """Write the folder."""
        bytes_ = [f"<0x{number:02X}>" for number in range(256)]
        tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN, byte_fallback=True, fuse_unk=True))
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
        trainer = trainers.BpeTrainer(
            vocab_size=1500, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False,
            max_token_length=8,
        )  # fmt: skip
        rows = [*tables.word_problems(60), *tables.functions(30)]
        tokenizer.train_from_iterator(
            (text for row in rows for text in row.values() if isinstance(text, str)), trainer
        )
        made = json.loads(tokenizer.to_str())
        made["added_tokens"] = [
            token for token in made["added_tokens"] if not token["content"].startswith("<0x")
        ]
        tokenizer = Tokenizer.from_str(json.dumps(made))
        tokenizer.add_special_tokens(
            [AddedToken(each, special=True, normalized=False) for each in ("<unk>", "<s>", "</s>")]
        )
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )  # fmt: skip
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
        wrapped = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, eos_token=self.eos, pad_token=self.pad,
            bos_token=self.bos, unk_token=_UNKNOWN,
        )  # fmt: skip
        wrapped.chat_template = self.template
        wrapped.save_pretrained(folder)
        config = {"vocab_size": len(wrapped), "max_position_embeddings": 4096, **self.config}
        (folder / "config.json").write_text(json.dumps(config))
        ends = [wrapped.convert_tokens_to_ids(end) for end in self.ends]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        return folder


OLD_LLAMA = MarkedWords(
    ("<unk>", "<s>", "</s>"), eos="</s>", pad="<unk>", ends=("</s>",), template=_TEMPLATE, bos="<s>"
)
