"""A framework's configuration object as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

_PLAIN = (str, int, float, bool)
_DEEPEST = 8


def plain_config(config: object) -> dict[str, Any]:
    """Settings by name; nested ones as dictionaries, everything else that is not plain left out.

    Args:
        config: a mapping, a dataclass, a pydantic model, an `argparse.Namespace`, or None.
    """
    return _plain(config, 0) if config is not None else {}


def _plain(config: object, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in _settings(config).items():
        if isinstance(value, Enum):
            value = value.value  # noqa: PLW2901 - its plain form
        if value is None or isinstance(value, _PLAIN):
            plain[name] = value
        elif isinstance(value, list | tuple) and all(isinstance(each, _PLAIN) for each in value):
            plain[name] = list(value)
        elif depth < _DEEPEST and (nested := _plain(value, depth + 1)):
            plain[name] = nested
    return plain


def _settings(config: object) -> dict[str, Any]:
    if isinstance(config, Mapping):
        return {str(name): config[name] for name in config}
    if is_dataclass(config) and not isinstance(config, type):
        return {field.name: getattr(config, field.name, None) for field in fields(config)}
    if type(config).__module__ == "argparse" or hasattr(config, "model_dump"):
        return {name: each for name, each in vars(config).items() if not name.startswith("_")}
    return {}
