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
from grpodoctor.probe.inputs.recordings import recording_in

GENERATION_CONFIG = "generation_config"
_FILE = "generation_config.json"
_SENT: Mapping[str, type[float] | type[int]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "min_tokens": int,
}
_OTHER_NAMES = {"min_new_tokens": "min_tokens"}
_MOST_TOKENS = (
    "max_tokens", "max_new_tokens", "max_completion_tokens", "max_completion_length", "max_length",
)  # fmt: skip
_NEUTRAL = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_tokens": 0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}
"""Settings that the probe sends, with the values that change nothing."""
_UNSENT = {
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "top_h": None,
}
"""Settings that no request of the probe contains, with the values that change nothing."""
_UNSENT_LISTS = ("bad_words", "allowed_token_ids", "begin_suppress_tokens", "forced_bos_token_id",
                 "forced_eos_token_id", "sequence_bias", "guided_json", "guided_regex",
                 "guided_choice", "guided_grammar", "guided_decoding",
                 "structured_outputs")  # fmt: skip
_BANS = ("suppress_tokens", "bad_words_ids")
"""Lists of tokens that are never sampled; sent as biases."""
_NESTED = ("generation_kwargs", "sampling_params")
"""Keys with nested sampling settings, which take precedence."""
_BANNED = -100.0
"""The bias of a token that is never sampled: the least that engines accept."""


@dataclass(frozen=True, slots=True)
class SourcedSampling:
    """Sampling settings from elsewhere."""

    settings: Mapping[str, Any]
    """Fields of `SamplingSettings`."""
    notes: tuple[str, ...]
    """Where they come from."""
    untried: tuple[str, ...] = ()
    """Active settings that the probe cannot send, with their values."""


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
        return _sourced(_of_mapping(read_file(path)), str(path), samplers)
    path = Path(source)
    if path.is_dir():
        return _sourced(_of_run(path), source, samplers)
    if not path.exists():
        raise ConfigError(
            "there is no such run or file",
            where=f"--sampling-from {source[:200]}",
            remedy=f"pass a run directory, a JSON, YAML or TOML file, or {GENERATION_CONFIG}",
        )
    return _sourced(_of_mapping(read_file(path)), source, samplers)


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
    if name in _MOST_TOKENS:
        return False
    if name in (*_UNSENT_LISTS, *_BANS, "logit_bias"):
        return bool(value) or value == 0  # 0 is the id of a token
    return bool(value != {**_NEUTRAL, **_UNSENT}.get(name))


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

    manifest = open_run(recording_in(path)).manifest
    known = complete_config(manifest.framework, manifest.config, manifest.knobs)
    return _of_mapping(known.settings(manifest.knobs))


def _of_mapping(given: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling settings of a mapping: a run's knobs, or the keys of transformers and vLLM."""
    framework = _framework_settings(given)
    nested = [given[name] for name in _NESTED if isinstance(given.get(name), Mapping)]
    settings = dict(framework)
    for part in (given, *nested):
        settings |= {
            _OTHER_NAMES.get(name, name): value for name, value in part.items() if value is not None
        }
    known = {*_SENT, *_UNSENT, *_UNSENT_LISTS, *_BANS, "logit_bias"}
    found = {name: value for name, value in settings.items() if name in known}
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
    knobs = framework.knobs.read(config)
    known = complete_config(framework.name, config, knobs)
    settings = known.settings(knobs)
    if "max_length" not in {**knobs, **known.facts}:  # the framework's default limit is long
        settings.pop("max_length", None)
    return settings


def _sourced(
    settings: Mapping[str, Any], where: str, samplers: Sequence[EngineSpec]
) -> SourcedSampling:
    if settings.get("greedy") or settings.get("temperature") == 0:
        raise ConfigError(
            "greedy sampling has no log-probabilities to compare",
            where=f"--sampling-from {where}",
            remedy="pass --temperature, or a source that samples",
        )
    sent: dict[str, Any] = {
        name: _number(name, settings[name], where) for name in _SENT if name in settings
    }
    if sent.get("top_k", 0) < 0:
        sent["top_k"] = 0  # vLLM and SGLang write -1 for no limit
    if "max_tokens" in settings:
        sent["max_tokens"] = [settings["max_tokens"]]
    biases, unsent = _biases(settings)
    sent |= {"logit_bias": biases} if biases else {}
    for name in (*_UNSENT, *_UNSENT_LISTS):
        is_option = bool(samplers) and all(name in spec.options for spec in samplers)
        if name in settings and _is_active(name, settings[name]) and not is_option:
            unsent[name] = settings[name]
    if not sent and not unsent:
        raise ConfigError(
            "there is no sampling setting",
            where=f"--sampling-from {where}",
            remedy="set temperature, top_p, top_k, min_p, a penalty or max_tokens there",
        )
    notes = (f"sampling settings from {where}: {_listed(sent) or 'none that can be sent'}",)
    return SourcedSampling(sent, notes, tuple(_named(*each) for each in unsent.items()))


def _biases(settings: Mapping[str, Any]) -> tuple[dict[int, float], dict[str, Any]]:
    """Biases of single tokens, and the settings with biases or bans of anything else."""
    biases: dict[int, float] = {}
    unsent: dict[str, Any] = {}
    for name in (*_BANS, "logit_bias"):
        value = settings.get(name)
        try:
            biases |= _token_biases(name, value) if value else {}
        except (TypeError, ValueError):
            unsent[name] = value
    return biases, unsent


def _token_biases(name: str, value: Any) -> dict[int, float]:
    """The biases of a setting.

    Raises:
        TypeError: if it is no list or mapping.
        ValueError: if it concerns anything but single tokens.
    """
    if name == "logit_bias":
        return {int(token): float(bias) for token, bias in dict(value).items()}
    words = [each if isinstance(each, list) else [each] for each in value]
    if not all(len(word) == 1 and isinstance(word[0], int) for word in words):
        raise ValueError(name)
    return {word[0]: _BANNED for word in words}


def _number(name: str, value: Any, where: str) -> float | int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise ConfigError(
            f"{name} is {str(value)[:60]!r}, not a number", where=f"--sampling-from {where}"
        )
    return _SENT[name](value)


def _listed(settings: Mapping[str, Any]) -> str:
    values = {
        name: value[0] if name == "max_tokens" and isinstance(value, list) else value
        for name, value in settings.items()
    }
    return ", ".join(_named(*each) for each in values.items())


def _named(name: str, value: Any) -> str:
    return f"{name} {str(value)[:60]}"
