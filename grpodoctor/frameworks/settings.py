"""A change of knobs, written as the settings of a framework."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.frameworks.registry import configurable_frameworks, find_framework
from grpodoctor.support.suggestions import check_name
from grpodoctor.vocabulary.knobs import KNOBS, Setting

ENGINE_SETTINGS: Mapping[str, str] = {
    "sampler_dtype": "The sampler's compute dtype, as torch names it.",
    "learner_dtype": "The learner's compute dtype.",
    "float32_head": "The sampler's output head in float32.",
    "sampler_tensor_parallel": "Tensor-parallel size of the sampler.",
    "unquantized_sampler": "The sampler's weights in the learner's precision.",
    "unquantized_cache": "The sampler's key-value cache in the model's precision.",
    "whole_distribution": "Sampling without top-p, top-k and min-p.",
    "processed_logprobs": "Log-probabilities after the temperature, of the sampled distribution.",
    "no_prefix_cache": "No prefix cache.",
    "balanced_routers": "Weight of the auxiliary loss that balances the load of the experts.",
}
"""Settings of the two engines that a probe or a remedy asks for. No log holds them, and a change
requires a restart. Every framework has a row for each in `KnobTable.engine_settings`."""


def framework_settings(
    changes: Mapping[str, Setting], framework: str, knobs: Mapping[str, Setting] | None = None
) -> list[SettingLine]:
    """Write a change of knobs or of `ENGINE_SETTINGS` as the framework's own settings.

    Args:
        changes: canonical knobs and their new values; an engine setting without a value is set to
            True.
        framework: its name. For an unknown one, which may come from a log, each knob gets a note.
        knobs: the other knobs in force, for settings that depend on them.

    Raises:
        ConfigError: if a changed knob is not in the vocabulary.
    """
    known = find_framework(framework, configurable_frameworks())
    if known is None:
        unknown = f"the settings of {framework[:40]!r} are unknown"
        return [SettingLine("", "", f"{unknown}: find its name for {knob}") for knob in changes]
    in_force = {**(knobs or {}), **changes}
    lines: list[SettingLine] = []
    for knob, setting in changes.items():
        check_name(knob, (*KNOBS, *ENGINE_SETTINGS), "knob", where=f"settings of {known.name}")
        lines += known.knobs.lines(knob, setting, in_force)
    return list(dict.fromkeys(lines))
