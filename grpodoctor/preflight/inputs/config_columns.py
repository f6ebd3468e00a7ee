"""What the run's config says in its own words: columns, lists and changes of the model's config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grpodoctor.vocabulary.knobs import Setting

_COLUMNS = {
    "data.prompt_key": "prompts", "data.reward_fn_key": "data sources",
    "input_key": "prompts", "label_key": "answers", "data.input_key": "prompts",
    "data.label_key": "answers",
}  # fmt: skip
"""Settings that name a column, with what is in it: verl's under `data.`, OpenRLHF's on top.

Sources: verl/utils/dataset/rl_dataset.py (`prompt_key`), verl/workers/reward_manager/naive.py
(`reward_fn_key`); openrlhf/datasets/prompts_dataset.py (`input_key`, `label_key`).
"""
_OVERRIDES = frozenset({"model_init_kwargs", "override_config"})
"""Settings of TRL and verl below which values replace those of the model's config.json."""
_DEEPEST = 8


def config_columns(settings: Mapping[str, Setting]) -> tuple[tuple[str, str, str], ...]:
    """Setting, content and column name of each setting that names a column of the data.

    Args:
        settings: the config with dotted keys.
    """
    return tuple(
        (key, _COLUMNS[key], value)
        for key, value in settings.items()
        if key in _COLUMNS and isinstance(value, str) and value
    )


def model_override(settings: Mapping[str, Setting], name: str) -> Setting | None:
    """The value by which a config with dotted keys replaces one of the model's; None without."""
    for key, value in settings.items():
        parent, _, last = key.rpartition(".")
        if last == name and parent.rpartition(".")[2] in _OVERRIDES:
            return value
    return None


def listed_settings(
    settings: Mapping[str, Any], depth: int = _DEEPEST
) -> Iterator[tuple[str, list[Any]]]:
    """The last parts of the keys whose values are lists, with these.

    Args:
        settings: the config, nested or with dotted keys.
        depth: how many levels are read.
    """
    for key, value in settings.items():
        if isinstance(value, list | tuple):
            yield str(key).rpartition(".")[2], list(value)
        elif isinstance(value, Mapping) and depth:
            yield from listed_settings(value, depth - 1)
