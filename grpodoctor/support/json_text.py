"""JSON as Python programs write it, which the standard does not cover in full."""

from __future__ import annotations

import codecs
import json
from typing import Any

import orjson


def loads(text: bytes) -> Any:
    """Parse JSON, including `NaN` and `Infinity`, which Python writes although JSON lacks them.

    Raises:
        ValueError: if it is not JSON.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise ValueError(f"not JSON: {error}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
