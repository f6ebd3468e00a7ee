"""Texts of token ids, read from a model's `tokenizer.json` without tokenizer libraries.

Used to show the worst responses. A token that is part of a character becomes the replacement
character. The texts are hostile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.results.results import Comparison
from grpodoctor.support.files.regular_files import read_regular

_MOST_BYTES = 256 << 20
_LONGEST = 200
"""Characters per token."""
_SPACE = "\u2581"
"""SentencePiece's symbol for a space."""


def with_token_texts(comparison: Comparison, models: Sequence[str]) -> Comparison:
    """Add the token texts of the worst responses to a comparison.

    Args:
        comparison: the comparison.
        models: models of the engines; the first with a local tokenizer provides the texts.
    """
    for model in models:
        texts = texts_of(model)
        if texts:
            worst = tuple(
                replace(response, token_texts=tuple(texts.get(token, "") for token in response.ids))
                for response in comparison.worst
            )
            return replace(comparison, worst=worst)
    return comparison


@lru_cache(maxsize=2)
def texts_of(model: str) -> Mapping[int, str]:
    """The text of each token id; empty if there is no readable local tokenizer."""
    folder = local_model(model)
    path = folder / "tokenizer.json" if folder else None
    try:
        if path is None:
            return {}
        data = json.loads(read_regular(path, _MOST_BYTES))
        return _decoded(data) if isinstance(data, dict) else {}
    except (
        OSError,
        ValueError,
        ArithmeticError,
        TypeError,
        AttributeError,
        KeyError,
        RecursionError,
    ):
        return {}


def _decoded(data: Mapping[str, Any]) -> dict[int, str]:
    steps = json.dumps([data.get("decoder"), data.get("pre_tokenizer")])
    in_bytes = '"ByteLevel"' in steps
    vocabulary = data["model"]["vocab"]
    pairs = (
        ((piece, number) for number, (piece, _) in enumerate(vocabulary))
        if isinstance(vocabulary, list)
        else vocabulary.items()
    )
    decode = _from_bytes if in_bytes else _from_pieces
    texts = {int(number): decode(str(piece)[:_LONGEST]) for piece, number in pairs}
    added = data.get("added_tokens") or ()
    return texts | {int(token["id"]): str(token["content"])[:_LONGEST] for token in added}


def _from_pieces(piece: str) -> str:
    return piece.replace(_SPACE, " ")


def _from_bytes(piece: str) -> str:
    codes = _byte_codes()
    raw = bytes(codes[letter] for letter in piece if letter in codes)
    return raw.decode("utf-8", "replace")


@lru_cache(maxsize=1)
def _byte_codes() -> dict[str, int]:
    """Byte-level BPE writes bytes as letters: printable bytes unchanged, others from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (code for code in range(0x100) if code not in set(printable))
    shifted = {chr(0x100 + at): code for at, code in enumerate(others)}
    return {chr(code): code for code in printable} | shifted
