"""The bundled trainer's configuration: one section per concern, every field bounded and explained.

A TOML file holds the same sections; `--set section.key=value` changes one field.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig
from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.filters.difficulty import DifficultyConfig
from grpodoctor.trainer.algorithms.losses.settings import LossConfig
from grpodoctor.trainer.algorithms.losses.token_level.ppo_clip import PpoClip
from grpodoctor.trainer.algorithms.reweightings.settings import ReweightingConfig
from grpodoctor.trainer.algorithms.shaping.repetition import RepetitionConfig
from grpodoctor.trainer.algorithms.shaping.soft_overlong import OverlongConfig
from grpodoctor.trainer.config.loss import kept_under_another_loss, loss_config, loss_fields
from grpodoctor.trainer.config.sections import (
    CheckpointConfig,
    CriticConfig,
    EngineConfig,
    EvaluationConfig,
    ModelConfig,
    OptimizerConfig,
    RanksConfig,
    RecordConfig,
    RolloutConfig,
    TaskConfig,
)
from grpodoctor.trainer.config.validation import contradictions, doubts
from grpodoctor.trainer.section import Section


class TrainConfig(Section):
    """Everything that decides the numbers of a run."""

    steps: int = Field(100, ge=1)
    """Training steps: rollout batches."""
    seed: int = Field(0, ge=0)
    """Seeds prompts, sampling and initialisation."""
    threads: int = Field(0, ge=0)
    """Torch threads; 0 leaves torch's choice."""
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = EngineConfig()
    overlong: OverlongConfig = OverlongConfig()
    repetition: RepetitionConfig = RepetitionConfig()
    difficulty: DifficultyConfig = DifficultyConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    critic: CriticConfig = CriticConfig()
    reweighting: ReweightingConfig = ReweightingConfig()
    correction: CorrectionConfig = CorrectionConfig()
    loss: SerializeAsAny[LossConfig] = PpoClip()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    record: RecordConfig = RecordConfig()
    ranks: RanksConfig = RanksConfig()

    @field_validator("loss", mode="before")
    @classmethod
    def _by_its_kind(cls, loss: object) -> object:
        return loss_config(loss) if isinstance(loss, Mapping) else loss

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for each in contradictions(self):
            raise ConfigError(each.what, where=each.keys, remedy=each.remedy)
        return self

    def doubts(self) -> list[str]:
        """What is allowed and hardly meant, a line each."""
        return doubts(self)


def load_config(
    *layers: Mapping[str, Any], file: Path | None = None, assignments: Iterable[str] = ()
) -> TrainConfig:
    """Build a configuration: defaults, then `layers` (a preset), then the file, then assignments.

    Args:
        layers: nested dictionaries, later ones winning.
        file: a TOML file with the sections of `TrainConfig`.
        assignments: `section.key=value` texts, the value in TOML syntax or bare text.

    Raises:
        ConfigError: if the file is not TOML, a key is unknown or a value out of bounds.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _overlay(merged, layer)
    from_file = {} if file is None else _read_toml(file)
    merged = _overlay(merged, from_file)
    assigned: dict[str, Any] = {}
    for text in assignments:
        assigned = _overlay(assigned, _parse_assignment(text))
    try:
        return TrainConfig.model_validate(_overlay(merged, assigned))
    except ValidationError as error:
        raise _explain(error.errors()[0], file, from_file, assigned) from None


def _overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            kept = kept_under_another_loss(below, value) if key == "loss" else below
            result[key] = _overlay(kept, value)
        else:
            result[key] = value
    return result


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise ConfigError(
            f"the configuration file cannot be read: {reason}", where=str(file)
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", where=str(file)) from None


def _parse_assignment(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f"--set {text[:60]!r} has no value", remedy="write --set section.key=value"
        )
    nested: Any = _parse_value(value.strip())
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    result: dict[str, Any] = nested
    return result


def _parse_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _explain(
    problem: ErrorDetails,
    file: Path | None,
    from_file: Mapping[str, Any],
    assigned: Mapping[str, Any],
) -> ConfigError:
    """Say what pydantic found, with the file where the setting comes from there."""
    path = problem["loc"]
    key = ".".join(map(str, path))
    where = str(file) if _holds(from_file, path) and not _holds(assigned, path) else ""
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known_keys(), n=3, cutoff=0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else f"sections: {_sections()}"
        return ConfigError(f"there is no setting {key[:80]}", where=where, remedy=remedy)
    if problem["type"] == "model_type":
        example = next(name for name in known_keys() if name.startswith(f"{key}."))
        return ConfigError(
            f"{key} is a section, not a setting", where=where, remedy=f"set {example} or another"
        )
    reason = problem["msg"][:1].lower() + problem["msg"][1:]
    return ConfigError(f"{key} cannot be {str(problem['input'])[:60]!r}: {reason}", where=where)


def _holds(layer: Any, path: Iterable[int | str]) -> bool:
    for part in path:
        if not isinstance(layer, Mapping) or part not in layer:
            return False
        layer = layer[part]
    return True


def _sections() -> str:
    return ", ".join(sorted({key.partition(".")[0] for key in known_keys() if "." in key}))


def known_keys() -> list[str]:
    """Every dotted key of the configuration."""
    keys: list[str] = []
    for name, field in TrainConfig.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            fields = loss_fields() if section is LossConfig else section.model_fields
            keys.extend(f"{name}.{key}" for key in fields)
        else:
            keys.append(name)
    return keys
