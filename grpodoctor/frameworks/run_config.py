"""Finds and reads the settings that a run was started with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeGuard

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.launch_command import (
    FRAMEWORK_KEY,
    LIKELY_FRAMEWORK_KEY,
    METHOD_KEY,
)
from grpodoctor.frameworks.launch_script import (
    SCRIPT_SUFFIXES,
    launch_of_script,
    settings_of_script,
)
from grpodoctor.support.files.regular_files import files_below, read_regular
from grpodoctor.support.toml_text import parse_toml
from grpodoctor.vocabulary.knobs import Setting

_CONFIG_FILES = (
    "run.json",
    "config.json",
    "config.yaml",
    "config.yml",
    ".hydra/config.yaml",
    "training_config.yaml",
    "args.json",
    "config.toml",
    "files/config.yaml",
)
"""Where trainers and loggers write their settings. `training_args.bin` is a pickle and is never
opened."""

_MOST_PARENTS = 6
"""Levels above a log to search."""

_MOST_FILES = 64
"""Limit on the logs, and on the config files, that are considered."""

_SUFFIXES = (".json", ".yaml", ".yml", ".toml", *SCRIPT_SUFFIXES)
_LARGEST = 512 * 1024
_DEEPEST = 16
_PAIR = 2
_MOST_SETTINGS = 20_000
"""Limit on the settings of a run: aliases let a small YAML file expand to any number of them."""

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_CHECKPOINT = re.compile(r"checkpoint-\d{1,12}")


def read_settings(
    path: Path,
    framework: Framework,
    logged_settings: Sequence[Mapping[str, Any]] = (),
    user_file: Path | None = None,
    logs: Sequence[Path] = (),
) -> dict[str, Setting]:
    """The settings of a run, with dotted keys. The user's file overrides all others.

    Args:
        path: the log or the directory.
        framework: the framework that wrote it.
        logged_settings: settings that the logs themselves contain.
        user_file: a config file that the user named.
        logs: the logs that are read.

    Raises:
        ConfigError: if the user's file cannot be read, or has no setting of the framework.
    """
    settings: dict[str, Setting] = {}
    for logged in logged_settings:
        settings = {**dict(flattened(logged)), **settings}
    for directory in _search_path(path, logs):
        settings = {**_in_directory(directory), **settings}
    if user_file is None and not framework.knobs.reads_any_of(settings):
        settings = {**_below(path, framework), **settings}
    if user_file is not None:
        named = dict(flattened(read_file(user_file)))
        if framework.knobs.mappings and not _is_config_of(framework, named):
            raise ConfigError(
                f"the config file has no known setting of {framework.title}",
                where=str(user_file),
                remedy="pass the config that this run was started with",
            )
        settings |= named
    return settings


def _is_config_of(framework: Framework, settings: Mapping[str, Setting]) -> bool:
    """Whether a config has the key of a knob, or a setting that decides what a log key means."""
    deciding = {name for row in framework.meanings for name in row.when}
    return framework.knobs.reads_any_of(settings) or not deciding.isdisjoint(settings)


def _search_path(path: Path, logs: Sequence[Path]) -> list[Path]:
    """Directories that may hold a run's settings, the nearest to its logs first.

    They lead from each log up to the given path, or one level higher if that is a checkpoint, since
    its run's directory is the parent.
    """
    top = (path if path.is_dir() else path.parent).resolve()
    if is_checkpoint(top):
        top = top.parent
    directories: dict[Path, None] = {}
    for log in logs[:_MOST_FILES]:
        for directory in islice(log.resolve().parents, _MOST_PARENTS):
            directories[directory] = None
            if directory == top or not directory.is_relative_to(top):
                break
    return [*directories, *([] if top in directories else [top])]


def is_checkpoint(directory: Path) -> bool:
    """Whether a directory has the name that transformers gives to checkpoints."""
    return _CHECKPOINT.fullmatch(directory.name) is not None


def _in_directory(directory: Path) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for name in _CONFIG_FILES:
        file = directory / name
        if not file.is_file():
            continue
        try:
            config = read_file(file)
        except ConfigError:
            continue  # something else with the name of a config file
        if not _is_model_config(config):
            settings = {**dict(flattened(config)), **settings}
    return settings


def _is_model_config(config: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is the model's, which has its own temperature and length."""
    return "architectures" in config or {"model_type", "vocab_size"} <= config.keys()


def _below(path: Path, framework: Framework) -> dict[str, Setting]:
    """Settings from elsewhere below the directory: Hydra writes them to a folder for each launch.

    They count only if all config files give the same knobs, since their run is unknown otherwise.
    """
    if not path.is_dir():
        return {}
    files = islice((file for file in files_below(path) if _is_config(file)), _MOST_FILES)
    configs = [
        _in_directory(file.parent.parent if _is_hydra(file) else file.parent) for file in files
    ]
    relevant = [config for config in configs if framework.knobs.reads_any_of(config)]
    knobs = [framework.knobs.read(config) for config in relevant]
    return relevant[0] if relevant and all(values == knobs[0] for values in knobs) else {}


def _is_config(file: Path) -> bool:
    return file.name in _CONFIG_FILES or _is_hydra(file)


def _is_hydra(file: Path) -> bool:
    return file.parent.name == ".hydra" and file.name == "config.yaml"


def read_file(path: Path) -> Mapping[str, Any]:
    """The settings in a JSON, YAML or TOML file, or of the commands in a shell script.

    A YAML file of NeMo RL or Hydra may name other files under `defaults`: it inherits the settings
    that it does not set. A name of no readable config is ignored.

    Raises:
        ConfigError: if the file is missing, too large, or in none of these formats.
    """
    return _with_bases(path, _read_alone(path), {path.resolve()})


def _read_alone(path: Path) -> Mapping[str, Any]:
    try:
        data = _parse(path, _text(read_regular(path, _LARGEST)))
    except OSError as error:
        raise ConfigError(
            f"the config file cannot be read: {error.strerror}",
            where=str(path),
            remedy="check the path and its permissions",
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            "the config file cannot be read: not a text file",
            where=str(path),
            remedy="pass JSON, YAML, TOML or a shell script; a pickle such as training_args.bin "
            "is never loaded",
        ) from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:160]
        if path.suffix not in _SUFFIXES:
            reason = "it is no JSON, and its name does not end in .yaml, .yml, .toml or .sh"
        raise ConfigError(
            f"the config file cannot be read: {reason}",
            where=str(path),
            remedy="correct the file, or pass JSON, YAML, TOML or a shell script",
        ) from None
    if not isinstance(data, Mapping):
        raise ConfigError(
            "the config file contains no settings: "
            + (
                "no command in it has options"
                if path.suffix in SCRIPT_SUFFIXES
                else "it is not a mapping"
            ),
            where=str(path),
            remedy="pass the file that holds the settings",
        )
    return _unwrapped(data)


def _text(content: bytes) -> str:
    """Decode a file; a NUL byte, which a script would take for a letter, shows a binary one."""
    if (place := content.find(b"\0")) >= 0:
        raise UnicodeDecodeError("utf-8", content, place, place + 1, "NUL byte")
    return content.decode("utf-8-sig")


def _with_bases(path: Path, own: Mapping[str, Any], seen: set[Path]) -> Mapping[str, Any]:
    for base in _bases(path, own):
        if base.resolve() in seen or len(seen) >= _MOST_FILES:
            continue
        seen.add(base.resolve())
        with suppress(ConfigError):
            own = _merged(_with_bases(base, _read_alone(base), seen), own)
    return own


def _bases(path: Path, settings: Mapping[str, Any]) -> Iterator[Path]:
    """The files that a config names under `defaults`, the one with the last word first."""
    named = settings.get("defaults") if path.suffix in (".yaml", ".yml") else None
    for name in reversed(named if isinstance(named, list) else [named]):
        if not isinstance(name, str):
            continue
        file = path.parent / name.removesuffix("@_here_")
        file = file if file.suffix == path.suffix else file.with_name(f"{file.name}{path.suffix}")
        if file.is_file():
            yield file


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], value)
        for key, value in own.items()
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
    }
    return {**base, **own, **both}


def _unwrapped(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings without the wrapper of W&B, which stores each as a value with a description."""
    wrapped = {key: entry for key, entry in settings.items() if key != "wandb_version"}
    if not wrapped or not all(
        isinstance(entry, Mapping) and set(entry) in ({"value"}, {"value", "desc"})
        for entry in wrapped.values()
    ):
        return settings
    return {key: entry["value"] for key, entry in wrapped.items() if key != "_wandb"}


def _parse(path: Path, text: str) -> object:
    if path.suffix in SCRIPT_SUFFIXES:
        return _of_script(text) or None
    if path.suffix == ".toml":
        return parse_toml(text)
    if path.suffix in (".yaml", ".yml"):
        import yaml

        try:
            # The C loader crashes the process on deeply nested brackets.
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    return json.loads(text)


def _of_script(text: str) -> dict[str, Setting]:
    """The settings of a launch script, with the framework and the method that it names."""
    settings, launch = settings_of_script(text), launch_of_script(text)
    if not settings or launch is None:
        return settings
    named = {FRAMEWORK_KEY: launch.framework} if launch.is_certain else {}
    named |= {LIKELY_FRAMEWORK_KEY: launch.framework} if not launch.is_certain else {}
    return settings | named | ({METHOD_KEY: launch.method} if launch.method else {})


def flattened(settings: Mapping[str, Any]) -> list[tuple[str, Setting]]:
    """Nested settings with dotted keys, up to a limit.

    A pair of numbers, such as two bounds, becomes text with a space between them. Other lists and
    nulls are left out. A value that is `${key}`, the reference of OmegaConf, is that of the key.
    """
    flat = dict(islice(_flattened(settings, "", 0, count()), _MOST_SETTINGS))
    return [(key, _referenced(value, flat)) for key, value in flat.items()]


def _referenced(value: Setting, settings: Mapping[str, Setting]) -> Setting:
    for _ in range(_DEEPEST):
        reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference is None or reference[1] not in settings:
            break
        value = settings[reference[1]]
    return value


def _is_pair_of_numbers(value: object) -> TypeGuard[Sequence[float]]:
    return (
        isinstance(value, list | tuple)
        and len(value) == _PAIR
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value)
    )


def _flattened(
    settings: Mapping[str, Any], prefix: str, depth: int, seen: Iterator[int]
) -> Iterator[tuple[str, Setting]]:
    for key, value in settings.items():
        if next(seen) > _MOST_SETTINGS:
            return
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if depth < _DEEPEST:
                yield from _flattened(value, f"{name}.", depth + 1, seen)
        elif isinstance(value, bool | int | float | str):
            yield name, value
        elif _is_pair_of_numbers(value):
            yield name, f"{value[0]} {value[1]}"
