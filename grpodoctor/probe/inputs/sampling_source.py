"""The sampling settings of a run, a file or a model: `--sampling-from`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.complete_config import complete_config, framework_of_config
from grpodoctor.frameworks.run_config import flattened, read_file
from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec

GENERATION_CONFIG = "generation_config"
_FILE = "generation_config.json"
_SENT: Mapping[str, type[float] | type[int]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
}
_MOST_TOKENS = (
    "max_tokens", "max_new_tokens", "max_completion_tokens", "max_completion_length", "max_length",
)  # fmt: skip
_NEUTRAL = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_tokens": 0,
    "min_new_tokens": 0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "length_penalty": 1.0,
}
"""Settings that no request of the probe contains, with the values that change nothing."""
_LISTS = ("logit_bias", "bad_words", "bad_words_ids", "allowed_token_ids", "suppress_tokens",
          "begin_suppress_tokens", "sequence_bias", "guided_json",
          "structured_outputs")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourcedSampling:
    """Sampling settings from elsewhere."""

    settings: Mapping[str, Any]
    """Fields of `SamplingSettings`."""
    notes: tuple[str, ...]
    """Where they come from, and which settings the probe does not send."""


def sampling_from(source: str, samplers: Sequence[EngineSpec]) -> SourcedSampling:
    """The sampling settings of a source.

    Args:
        source: a run directory, a JSON, YAML or TOML file, or `generation_config`.
        samplers: the probe's samplers; `generation_config` is that of the first one's model.

    Raises:
        ConfigError: if the source is missing, unreadable or contains no sampling setting.
    """
    if source == GENERATION_CONFIG:
        path = _generation_config(samplers)
        return _sourced(_of_mapping(read_file(path)), str(path))
    path = Path(source)
    if path.is_dir():
        return _sourced(_of_run(path), source)
    if not path.exists():
        raise ConfigError(
            "there is no such run or file",
            where=f"--sampling-from {source[:200]}",
            remedy=f"pass a run directory, a JSON, YAML or TOML file, or {GENERATION_CONFIG}",
        )
    return _sourced(_of_mapping(read_file(path)), source)


def default_notes(samplers: Sequence[EngineSpec], source: str | None = None) -> tuple[str, ...]:
    """What the models' `generation_config.json` sets and the probe's requests override.

    Args:
        samplers: the probe's samplers.
        source: the source of the sampling settings; the file that it names is left out.
    """
    notes = []
    models = dict.fromkeys(spec.model for spec in samplers)
    if source == GENERATION_CONFIG and samplers:
        del models[samplers[0].model]
    for model in models:
        folder = local_model(model)
        if folder is None or not (folder / _FILE).is_file():
            continue
        try:
            found = _of_mapping(read_file(folder / _FILE))
        except ConfigError:
            continue  # the engine reports a damaged file itself
        active = {name: value for name, value in found.items() if _is_active(name, value)}
        if active:
            notes.append(
                f"{folder / _FILE} sets {_listed(active)}; the probe's requests do not use it, "
                f"a server may (--sampling-from {GENERATION_CONFIG} probes with it)"
            )
    return tuple(notes)


def _is_active(name: str, value: Any) -> bool:
    neutral = {**_NEUTRAL, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    if name in _MOST_TOKENS or name == "max_tokens":
        return False
    return name in _LISTS or value != neutral.get(name)


def _generation_config(samplers: Sequence[EngineSpec]) -> Path:
    folder = local_model(samplers[0].model) if samplers else None
    if folder is None or not (folder / _FILE).is_file():
        raise ConfigError(
            f"the sampler's model has no {_FILE}",
            where=f"--sampling-from {GENERATION_CONFIG}",
            remedy="name a model directory as sampler, or pass the file itself",
        )
    return folder / _FILE


def _of_run(path: Path) -> dict[str, Any]:
    """The settings in force at the start of a run."""
    from grpodoctor.runs.reading.opening import open_run

    manifest = open_run(path).manifest
    known = complete_config(manifest.framework, manifest.config, manifest.knobs)
    return _of_mapping(known.settings(manifest.knobs))


def _of_mapping(given: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling settings of a mapping: a run's knobs, or the keys of transformers and vLLM."""
    framework = _framework_settings(given)
    settings = {**framework, **{name: value for name, value in given.items() if value is not None}}
    found = {
        name: value
        for name, value in settings.items()
        if name in _SENT or name in _NEUTRAL or (name in _LISTS and value)
    }
    longest = next((settings[name] for name in _MOST_TOKENS if name in settings), None)
    if isinstance(longest, int) and longest > 0:
        found["max_tokens"] = longest
    if settings.get("do_sample") is False or settings.get("greedy_sampling") is True:
        found["greedy"] = True
    return found


def _framework_settings(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The canonical settings of a framework's config file; empty if it is no such file."""
    config = dict(flattened(given))
    if not any("." in name for name in config):
        return {}
    try:
        framework = framework_of_config(config)
    except ConfigError:
        return {}
    known = complete_config(framework.name, config, framework.knobs.read(config))
    return known.settings(framework.knobs.read(config))


def _sourced(found: Mapping[str, Any], where: str) -> SourcedSampling:
    if found.get("greedy") or found.get("temperature") == 0:
        raise ConfigError(
            "greedy sampling has no log-probabilities to compare",
            where=f"--sampling-from {where}",
            remedy="pass --temperature, or a source that samples",
        )
    sent: dict[str, Any] = {
        name: _number(name, found[name], where) for name in _SENT if name in found
    }
    if sent.get("top_k", 0) < 0:
        sent["top_k"] = 0  # vLLM and SGLang write -1 for no limit
    if "max_tokens" in found:
        sent["max_tokens"] = [found["max_tokens"]]
    if not sent:
        raise ConfigError(
            "there is no sampling setting",
            where=f"--sampling-from {where}",
            remedy="set temperature, top_p, top_k, min_p or max_tokens there",
        )
    notes = [f"sampling settings from {where}: {_listed(sent)}"]
    unsent = {
        name: value
        for name, value in found.items()
        if (name in _NEUTRAL or name in _LISTS) and _is_active(name, value)
    }
    if unsent:
        notes.append(
            f"{where} also sets {_listed(unsent)}; the probe samples without, because no learner "
            "computes log-probabilities with it"
        )
    return SourcedSampling(sent, tuple(notes))


def _number(name: str, value: Any, where: str) -> float | int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise ConfigError(
            f"{name} is {str(value)[:60]!r}, not a number", where=f"--sampling-from {where}"
        )
    return _SENT[name](value)


def _listed(settings: Mapping[str, Any]) -> str:
    parts = []
    for name, value in settings.items():
        shown = value[0] if name == "max_tokens" and isinstance(value, list) else value
        parts.append(f"{name} {str(shown)[:60]}")
    return ", ".join(parts)
