"""JSON as Python programs write it, which the standard does not cover in full."""

from __future__ import annotations

import codecs
import json
from typing import Any

import orjson

_ONLY_PYTHON = (b"NaN", b"Infinity", b"\\u")


def loads(text: bytes) -> Any:
    """Parse JSON, including `NaN`, `Infinity` and halves of surrogate pairs.

    Python writes them, although JSON lacks them.

    Raises:
        ValueError: if it is not JSON.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not any(mark in text for mark in _ONLY_PYTHON):
            raise ValueError(f"not JSON: {error}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
