"""The settings that a run was started with, where its files tell them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.log_keys import Framework
from grpodoctor.support.directory_walk import files_below
from grpodoctor.vocabulary.knobs import KNOBS, Setting

_NAMES = (
    "run.json",
    "config.json",
    "config.yaml",
    "config.yml",
    ".hydra/config.yaml",
    "training_config.yaml",
    "args.json",
    "config.toml",
)
"""Where trainers leave their settings. `training_args.bin` is a pickle and is never opened."""

_BESIDE_LOGS = ("files/config.yaml",)
"""Where loggers keep them, beside the log of their own."""

_HIGHEST = 6
"""Levels above a log that are looked into."""

_MOST_LOGS = 64
"""Logs, and files of settings, that are looked at."""

_LARGEST = 512 * 1024
_DEEPEST = 16
_MOST = 20_000
"""Settings of a run: a small file can be made to unfold to any number of them."""

_CHECKPOINT = re.compile(r"checkpoint-\d{1,12}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def read_settings(
    path: Path,
    framework: Framework,
    inside: Sequence[Mapping[str, Any]] = (),
    given: Path | None = None,
    logs: Sequence[Path] = (),
) -> dict[str, Setting]:
    """The settings of a run, keys dotted; those given by the user before those found.

    Args:
        path: the log or the directory.
        framework: who wrote it.
        inside: settings that stand in the logs themselves.
        given: a file that the user names.
        logs: the logs that are read.

    Raises:
        ConfigError: if the file that the user names cannot be used.
    """
    found: dict[str, Setting] = {}
    for settings in inside:
        found = {**dict(flattened(settings)), **found}
    for directory in _near(path, logs):
        found = {**_in_directory(directory), **found}
    if given is None and not _says_anything(framework, found):
        found = {**_below(path, framework), **found}
    if given is not None:
        found |= dict(flattened(read_file(given)))
    return found


def _near(path: Path, logs: Sequence[Path]) -> list[Path]:
    """Directories that may hold the settings of a run, the nearest to its logs first.

    Those from a log upwards to the one that was given; a level more where that is a checkpoint,
    whose run lies above it.
    """
    top = (path if path.is_dir() else path.parent).resolve()
    if is_checkpoint(top):
        top = top.parent
    found: dict[Path, None] = {}
    for log in logs[:_MOST_LOGS]:
        for directory in islice(log.resolve().parents, _HIGHEST):
            found[directory] = None
            if directory == top or not directory.is_relative_to(top):
                break
    return [*found, *([] if top in found else [top])]


def is_checkpoint(directory: Path) -> bool:
    """Whether the directory has the name of a checkpoint of transformers."""
    return _CHECKPOINT.fullmatch(directory.name) is not None


def _in_directory(directory: Path) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name in (*_NAMES, *_BESIDE_LOGS):
        file = directory / name
        if not file.is_file():
            continue
        try:
            settings = read_file(file)
        except ConfigError:
            continue  # a file of that name that is something else
        if not _is_of_model(settings):
            found = {**dict(flattened(settings)), **found}
    return found


def _is_of_model(settings: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is the model's, which has a temperature and a length of its own."""
    return "architectures" in settings or {"model_type", "vocab_size"} <= settings.keys()


def _says_anything(framework: Framework, settings: Mapping[str, Setting]) -> bool:
    return any(each.key in settings for each in framework.knobs)


def _below(path: Path, framework: Framework) -> dict[str, Setting]:
    """Settings that lie elsewhere under the directory: Hydra's, where each launch has its own.

    Only if they are all alike: of several runs nobody says whose they are.
    """
    if not path.is_dir():
        return {}
    files = islice((each for each in files_below(path) if _is_settings(each)), _MOST_LOGS)
    found = [
        _in_directory(file.parent.parent if _is_hydra(file) else file.parent) for file in files
    ]
    telling = [each for each in found if _says_anything(framework, each)]
    alike = all(
        knobs_from(framework, each) == knobs_from(framework, telling[0]) for each in telling
    )
    return telling[0] if telling and alike else {}


def _is_settings(file: Path) -> bool:
    return file.name in _NAMES or _is_hydra(file)


def _is_hydra(file: Path) -> bool:
    return file.parent.name == ".hydra" and file.name == "config.yaml"


def read_file(path: Path) -> Mapping[str, Any]:
    """The settings in a JSON, YAML or TOML file.

    Raises:
        ConfigError: if it is missing, too large, or none of these.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError(f"larger than {_LARGEST} bytes", where=str(path))
        text = path.read_text(encoding="utf-8-sig")
        data = _parse(path, text)
    except OSError as error:
        raise ConfigError(
            f"the settings cannot be read: {error.strerror}", where=str(path)
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            "no settings in it: not a text",
            where=str(path),
            remedy="give JSON, YAML or TOML; a pickle such as training_args.bin is never loaded",
        ) from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ConfigError(f"no settings in it: {reason}", where=str(path)) from None
    if not isinstance(data, Mapping):
        raise ConfigError("no settings in it: not a mapping", where=str(path))
    return _unwrapped(data)


def _unwrapped(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings as W&B was given them: it writes each as a value with a description."""
    wrapped = {key: each for key, each in settings.items() if key != "wandb_version"}
    if not wrapped or not all(
        isinstance(each, Mapping) and set(each) in ({"value"}, {"value", "desc"})
        for each in wrapped.values()
    ):
        return settings
    return {key: each["value"] for key, each in wrapped.items() if key != "_wandb"}


def _parse(path: Path, text: str) -> object:
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix in (".yaml", ".yml"):
        import yaml

        try:
            # Not the loader in C: brackets that are nested deeply enough kill the process there.
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    return json.loads(text)


def flattened(settings: Mapping[str, Any]) -> Iterable[tuple[str, Setting]]:
    """Nested settings as dotted keys, so many of them at most; lists and nothings are left out."""
    return islice(_flattened(settings, "", 0, count()), _MOST)


def _flattened(
    settings: Mapping[str, Any], prefix: str, depth: int, seen: Iterator[int]
) -> Iterator[tuple[str, Setting]]:
    for key, value in settings.items():
        if next(seen) > _MOST:
            return
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if depth < _DEEPEST:
                yield from _flattened(value, f"{name}.", depth + 1, seen)
        elif isinstance(value, bool | int | float | str):
            yield name, value


def knobs_from(framework: Framework, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The canonical knobs that a framework's settings amount to; what does not fit is left out."""
    knobs: dict[str, Setting] = {}
    for each in framework.knobs:
        setting = _plain(settings.get(each.key, each.default))
        if setting is None:
            continue
        value = each.of(setting, settings) if callable(each.of) else each.of.get(setting)
        if not callable(each.of) and not each.of:
            value = setting
        if value is not None and each.knob not in knobs and _fits(each.knob, value):
            knobs[each.knob] = value
    return knobs


def _plain(setting: Setting | None) -> Setting | None:
    """A number that YAML takes for text, as it does `1e-6`, is a number still."""
    if isinstance(setting, str) and len(setting) <= 40 and _NUMBER.fullmatch(setting):
        return float(setting)
    return setting


def _fits(knob: str, setting: Setting) -> bool:
    try:
        KNOBS[knob].check(setting)
    except ConfigError:
        return False
    return True
