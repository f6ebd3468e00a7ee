"""Reads the files of engines and models that experiments need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpodoctor.errors import EngineError
from grpodoctor.support.files.regular_files import read_regular

_CONFIG_BYTES = 4 << 20


def read_config(model: Path) -> dict[str, Any]:
    """A model directory's `config.json`; empty if it is missing or unreadable."""
    path = model / "config.json"
    try:
        config = json.loads(read_regular(path, _CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def read_ids(folder: Path) -> list[list[int]]:
    """The prompts' token ids that an engine wrote.

    Raises:
        EngineError: if the file is damaged.
    """
    path = folder / "ids.json"
    try:
        ids = json.loads(read_regular(path))
        return [[int(token) for token in prompt] for prompt in ids]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise EngineError(
            "cannot read the engine's prompt ids",
            where=str(path),
            remedy="delete the file and probe again",
        ) from error
