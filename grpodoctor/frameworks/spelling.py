"""How each framework spells the canonical knobs: one table per framework."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from functools import lru_cache

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.knob_spelling import Spelled, Table
from grpodoctor.vocabulary.knobs import Setting

__all__ = ["ENGINE_SETTINGS", "FRAMEWORKS", "Spelled", "framework_of", "spell"]

ENGINE_SETTINGS: Mapping[str, str] = {
    "sampler_dtype": "What the sampler computes in, as torch names it.",
    "learner_dtype": "What the learner computes in.",
    "float32_head": "The sampler's output head in float32.",
    "sampler_tensor_parallel": "Devices that share a layer of the sampler.",
    "unquantised_sampler": "The sampler's weights as the learner has them.",
    "unquantised_cache": "The sampler's key-value cache in the model's precision.",
    "whole_distribution": "Sample with neither top-p, top-k nor min-p.",
    "processed_logprobs": "Log-probabilities of what is drawn from: after the temperature.",
    "no_prefix_cache": "No cache of prompts.",
    "balanced_routers": "Weight of the auxiliary loss that spreads the load over experts.",
}
"""What a probe or a remedy asks of the two engines, beside the knobs: no log tells them, and they
take a restart. A row for each stands in every framework's `ENGINES`."""

_MODULES = {
    "grpodoctor": "bundled",
    "trl": "trl",
    "verl": "verl",
    "openrlhf": "openrlhf",
    "prime-rl": "prime_rl",
    "slime": "slime",
    "nemo-rl": "nemo_rl",
    "open-instruct": "open_instruct",
    "skyrl": "skyrl",
    "tinker-cookbook": "tinker_cookbook",
    "ms-swift": "ms_swift",
    "areal": "areal",
}
FRAMEWORKS: tuple[str, ...] = tuple(_MODULES)
"""Names of the frameworks; `grpodoctor` is the bundled trainer."""


def framework_of(name: str) -> str:
    """The framework that a person means: case, `_` for `-` and `bundled` are understood.

    Raises:
        ConfigError: if there is no table for it; the message names the nearest.
    """
    wanted = name.strip().lower().replace("_", "-")
    wanted = "grpodoctor" if wanted == "bundled" else wanted
    if wanted in _MODULES:
        return wanted
    near = difflib.get_close_matches(wanted, FRAMEWORKS, n=2, cutoff=0.5)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(FRAMEWORKS)}"
    raise ConfigError(f"there is no spelling table for {name[:60]!r}", remedy=remedy)


def spell(
    changes: Mapping[str, Setting], framework: str, knobs: Mapping[str, Setting] | None = None
) -> list[Spelled]:
    """Write a change of knobs or of `ENGINE_SETTINGS` as the framework's own settings.

    Args:
        changes: canonical knobs and what to set them to; an engine setting without a value is set
            to True.
        framework: one of `FRAMEWORKS`. For any other name, which may come from a log, each knob
            is answered with a note.
        knobs: the other knobs in force, for settings that are spelled relative to them.

    Raises:
        ConfigError: if a changed knob is not in the vocabulary.
    """
    name = framework.strip().lower()
    if name not in _MODULES and name != "bundled":
        note = f"no spelling table for {framework[:40]!r}: look up"
        return [Spelled("", "", f"{note} its name for {knob}") for knob in changes]
    table = _table(framework_of(name))
    settled = {**(knobs or {}), **changes}
    lines: list[Spelled] = []
    for knob, setting in changes.items():
        if knob not in table:
            raise ConfigError(f"there is no knob {knob[:60]!r}", where=f"spelling of {name}")
        lines += table[knob](setting, settled)
    return list(dict.fromkeys(lines))


@lru_cache(maxsize=len(_MODULES))
def _table(framework: str) -> Table:
    module = importlib.import_module(f"grpodoctor.frameworks.{_MODULES[framework]}.knobs")
    table: Table = {**module.TABLE, **module.ENGINES}
    return table
