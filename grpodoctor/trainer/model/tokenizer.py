"""Tokenizers: text to token ids and back, for the built-in model and for other models.

A `Tokenizer` knows every token that ends a response. The tokenizer, the model configuration and the
generation configuration can each declare some. A response that ends with any of them is not
truncated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from grpodoctor.errors import DataError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ALPHABET = "".join(chr(code) for code in range(32, 127))
"""Printable ASCII: what the built-in model reads and writes."""


class Tokenizer(Protocol):
    """How a policy reads prompts and writes responses."""

    @property
    def pad_id(self) -> int:
        """Fills positions that no mask counts."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a response."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that `encode` gives."""

    @property
    def template_hash(self) -> str:
        """Changes with whatever turns a prompt into ids: the template, the alphabet."""

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, in the model's chat template where it has one.

        Raises:
            DataError: if the text has no ids.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a response, without special tokens."""


class CharTokenizer:
    """One token per character of `ALPHABET`, one to pad with and one to end with."""

    pad_id = 0
    _END_ID = 1
    end_ids = frozenset({_END_ID})
    vocab_size = 2 + len(ALPHABET)
    template_hash = hashlib.sha256(ALPHABET.encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, one per character.

        Raises:
            DataError: if a character is not in the alphabet, or there is none at all.
        """
        if not text:
            raise DataError("a prompt is empty", remedy="give every prompt at least one character")
        for letter in text:
            if not " " <= letter <= "~":
                raise DataError(
                    f"the built-in model cannot read the character {letter!a}",
                    where=f"prompt {text[:40]!a}",
                    remedy="use printable ASCII, or set model.name to a model with a tokenizer",
                )
        return [ord(letter) - 30 for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        """The characters of `ids`; padding and end tokens have none."""
        return "".join(chr(each + 30) for each in ids if each > self._END_ID)


class HubTokenizer:
    """The tokenizer that came with a model.

    Args:
        tokenizer: a transformers tokenizer.
        model: the model whose configurations may declare further end tokens.

    Raises:
        ModelError: if tokenizer and model do not fit each other, or nothing ends a response.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> None:
        self.pretrained = tokenizer
        self._template = str(getattr(tokenizer, "chat_template", None) or "")
        self.vocab_size = max(tokenizer.get_vocab().values(), default=-1) + 1
        self.end_ids = _declared_end_ids(tokenizer, model)
        self._check(model)
        pad_id = tokenizer.pad_token_id
        self.pad_id = pad_id if isinstance(pad_id, int) else min(self.end_ids)
        self.template_hash = hashlib.sha256(self._template.encode()).hexdigest()[:16]

    def _check(self, model: PreTrainedModel) -> None:
        rows = next(model.get_input_embeddings().parameters()).shape[0]
        where = str(model.config.name_or_path)
        # Models pad their embeddings a little; a tokenizer half as large is another one, or the
        # empty one that transformers makes up where the files are missing.
        if not rows / 2 <= self.vocab_size <= rows:
            raise ModelError(
                f"the tokenizer has {self.vocab_size} ids and the model {rows} embeddings",
                where=where,
                remedy="use the tokenizer that the model was trained with",
            )
        if not self.end_ids or max(self.end_ids) >= rows:
            raise ModelError(
                "no end token that the model can write is declared",
                where=where,
                remedy="set eos_token_id in its config.json or generation_config.json",
            )

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, in the chat template where the tokenizer has one.

        Raises:
            DataError: if the prompt has no tokens.
        """
        if self._template:
            message = [{"role": "user", "content": text}]
            text = str(
                self.pretrained.apply_chat_template(
                    message, tokenize=False, add_generation_prompt=True
                )
            )
        ids = self.pretrained(text, add_special_tokens=not self._template)["input_ids"]
        if not ids:
            raise DataError("a prompt has no tokens", where=f"prompt {text[:40]!a}")
        return list(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without special tokens."""
        return str(
            self.pretrained.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )


def _declared_end_ids(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> frozenset[int]:
    declared = [
        tokenizer.eos_token_id,
        model.config.eos_token_id,
        getattr(model.generation_config, "eos_token_id", None),
    ]
    return frozenset(each for entry in declared for each in _as_ids(entry))


def _as_ids(entry: object) -> Iterable[int]:
    entries = entry if isinstance(entry, list | tuple) else [entry]
    return [each for each in entries if isinstance(each, int)]
