"""A probe's result as JSON: writing and reading."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from grpodoctor.errors import RunError
from grpodoctor.probe.results.results import ProbeResult
from grpodoctor.support.files import atomic_files
from grpodoctor.support.files.regular_files import read_regular
from grpodoctor.support.safe_text import clean_text
from grpodoctor.support.validation_reasons import first_reason

SCHEMA_VERSION = 2
"""2 renamed the fields of 1 that are listed in `_RENAMED`."""
_RENAMED = {
    "cells": {"told": "reason"},
    "controls": {"told": "summary"},
    "causes": {"told": "summary"},
    "worst": {"pieces": "token_texts"},
}
"""Former names of fields in schema 1, by the list that holds the objects."""
_MOST_BYTES = 512 << 20
_INSTEAD = "run the probe again, or name a probe.json that a probe wrote"


@cache
def _adapter() -> TypeAdapter[ProbeResult]:
    return TypeAdapter(ProbeResult)


def to_json(result: ProbeResult) -> dict[str, Any]:
    """The result as plain JSON data, with its `schema_version`.

    Non-finite numbers become the strings `NaN`, `Infinity` and `-Infinity`.
    """
    fields: dict[str, Any] = _plain(_adapter().dump_python(result))
    return {"schema_version": SCHEMA_VERSION, **fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):  # a truncated token may leave half a surrogate pair
        return clean_text(value)
    return value


def write_result(result: ProbeResult, path: Path) -> None:
    """Write the result atomically."""
    content = orjson.dumps(to_json(result), option=orjson.OPT_SERIALIZE_NUMPY)
    atomic_files.write_bytes(path, content)


def read_result(path: Path) -> ProbeResult:
    """Read a result that `write_result` wrote.

    Raises:
        RunError: if it is missing, damaged, too large, or of another version.
    """
    try:
        data = orjson.loads(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        raise RunError(
            f"cannot read the probe result: {error}", where=str(path), remedy=_INSTEAD
        ) from error
    version = data.pop("schema_version", None) if isinstance(data, dict) else None
    if version not in (1, SCHEMA_VERSION):
        raise RunError(
            f"not a probe result of schema 1 or {SCHEMA_VERSION}",
            where=str(path),
            remedy=_INSTEAD,
        )
    if version == 1:
        data = _upgraded(data)
    try:
        return _adapter().validate_python(data)
    except ValidationError as error:
        raise RunError(
            f"damaged probe result at {first_reason(error)}",
            where=str(path),
            remedy=_INSTEAD,
        ) from error


def _upgraded(value: Any, holder: str = "") -> Any:
    """Data of schema 1 with the field names of schema 2."""
    if isinstance(value, dict):
        renamed = _RENAMED.get(holder, {})
        return {renamed.get(key, key): _upgraded(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_upgraded(item, holder) for item in value]
    return value
