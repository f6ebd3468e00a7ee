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
"""The characters of the built-in model: printable ASCII."""


class Tokenizer(Protocol):
    """Converts prompts to token ids and responses to text."""

    @property
    def pad_id(self) -> int:
        """The id that fills positions outside the mask."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a response."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that `encode` returns."""

    @property
    def template_hash(self) -> str:
        """A hash of what turns a prompt into ids: the chat template or the alphabet."""

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, in the model's chat template if it has one.

        Raises:
            DataError: if the text has no ids.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a response, without special tokens."""


class CharTokenizer:
    """One token per character of `ALPHABET`, a padding token and an end token."""

    pad_id = 0
    _END_ID = 1
    end_ids = frozenset({_END_ID})
    vocab_size = 2 + len(ALPHABET)
    template_hash = hashlib.sha256(ALPHABET.encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, one per character.

        Raises:
            DataError: if the text is empty or a character is not in the alphabet.
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
        """The characters of `ids`, without padding and end tokens."""
        return "".join(chr(token + 30) for token in ids if token > self._END_ID)


class HubTokenizer:
    """The tokenizer of a Hugging Face model.

    Args:
        tokenizer: a transformers tokenizer.
        model: the model; its configurations may declare further end tokens.

    Raises:
        ModelError: if the tokenizer does not fit the model, or no end token is declared.
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
        # Models pad their embeddings a little. A tokenizer of less than half the size belongs to
        # another model, or is the empty one that transformers creates if the files are missing.
        if not rows / 2 <= self.vocab_size <= rows:
            raise ModelError(
                f"the tokenizer has {self.vocab_size} ids and the model {rows} embeddings",
                where=where,
                remedy="use the tokenizer of this model",
            )
        if not self.end_ids or max(self.end_ids) >= rows:
            raise ModelError(
                "no end token is declared that the model can generate",
                where=where,
                remedy="set eos_token_id in its config.json or generation_config.json",
            )

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, in the chat template if the tokenizer has one.

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
    return frozenset(token for entry in declared for token in _as_ids(entry))


def _as_ids(entry: object) -> Iterable[int]:
    entries = entry if isinstance(entry, list | tuple) else [entry]
    return [token for token in entries if isinstance(token, int)]
