"""The bundled trainer's configuration: one section per concern, every field bounded and explained.

A TOML file holds the same sections; `--set section.key=value` changes one field.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    Field,
    FiniteFloat,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.loss_settings import (
    Gspo,
    GspoToken,
    LossConfig,
    PpoClip,
    loss_config,
    loss_fields,
    outlasting,
)
from grpodoctor.trainer.registry import check_variant
from grpodoctor.trainer.section import Section

_WIDE = 0.05
"""A clip beyond it does not bind on responses: ten times the widest that is known to work there."""


class ModelConfig(Section):
    """Which policy is trained."""

    name: str = "builtin"
    """`builtin` for the tiny character model, else a local path or a hub name."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the learner's weights; the built-in model is always float32."""
    width: int = Field(64, ge=16, le=512, multiple_of=8)
    """Hidden size of the built-in model."""
    layers: int = Field(2, ge=1, le=12)
    """Layers of the built-in model."""
    heads: int = Field(4, ge=1, le=16)
    """Attention heads of the built-in model; twice as many must divide the width."""
    warm_start_steps: int = Field(1000, ge=0, le=20_000)
    """Supervised steps before the first run of the built-in model; the result is cached."""


class TaskConfig(Section):
    """What it is trained on."""

    name: str = "arithmetic"
    """A built-in task; ignored when `data` is given."""
    data: str | None = None
    """JSONL or Parquet file with the columns `prompt` and `answer`."""
    heldout_data: str | None = None
    """The same for evaluation; without it the last tenth of `data` is held out."""
    reward: str | None = None
    """`module:function` called with prompts, completions and answers; the task's own otherwise."""
    difficulty: int = Field(3, ge=1, le=8)
    """Size of the built-in tasks' problems: operations, digits or items."""
    verifier: Literal["last", "any"] = "last"
    """Which answers of a response the reward looks at; `any` invites the policy to list many."""
    format_weight: float = Field(0.0, ge=0, le=1)
    """Weight of the built-in tasks' format component in the reward; correctness weighs 1."""
    hedge_rate: float = Field(0.0, ge=0, le=1)
    """Share of the warm start's responses that add a second answer; what `any` can amplify."""


class RolloutConfig(Section):
    """How the batch of responses is drawn."""

    prompts_per_batch: int = Field(16, ge=1)
    """Prompts per rollout batch."""
    group_size: int = Field(8, ge=2)
    """Responses per prompt; the group mean is the baseline, so one is not enough."""
    max_length: int = Field(28, ge=1)
    """Longest response, in tokens."""
    temperature: float = Field(1.0, gt=0, le=10)
    """Sampling temperature; the learner's log-probabilities are taken at the same."""
    dynamic_sampling: bool = False
    """Replace groups without variance in reward by fresh ones (DAPO)."""
    resample_limit: int = Field(4, ge=1, le=64)
    """Most rounds of dynamic sampling per batch; then the batch is used as it is."""


class EngineConfig(Section):
    """Which engine samples, and how far it may be from the learner."""

    precision: Literal["learner", "bf16", "int8", "int4"] = "learner"
    """`learner` samples from the learner itself; the others from a fake-quantised copy."""
    temperature: float | None = Field(None, gt=0, le=10)
    """A temperature of the engine's own, which the learner does not know of; none by default."""
    sync_every: int = Field(1, ge=1)
    """Steps between two weight syncs; 1 keeps the engine fresh."""
    old_logprobs: Literal["recompute", "sampler"] = "recompute"
    """Whose log-probabilities stand for the old policy in the ratio."""


class OverlongConfig(Section):
    """What is done about responses that hit the length limit."""

    kind: Literal["none", "mask", "soft-punishment"] = "none"
    """`mask` takes them out of the loss, `soft-punishment` (DAPO Eq. 13) is added to the reward."""
    buffer: int = Field(4, ge=1)
    """Width of the soft punishment's ramp before the limit, in tokens."""


class AdvantageConfig(Section):
    """How rewards become advantages."""

    kind: str = "group"
    """A registered advantage."""
    std: Literal["population", "unbiased"] = "population"
    """Which standard deviation divides; the papers do not say, libraries use the unbiased one."""
    epsilon: float = Field(1e-6, ge=0, le=1)
    """Added to the standard deviation."""
    ties: Literal["average", "position"] = "average"
    """How `gopo` ranks equal rewards: all alike, or by their place, as its authors' code does."""
    component_weights: dict[str, FiniteFloat] = Field(default_factory=dict)
    """What each component of the reward weighs in `gdpo`; 1 where none is given."""

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        check_variant("advantages", kind)
        return kind


class CorrectionConfig(Section):
    """Correction of the mismatch between the engine that samples and the learner."""

    kind: str = "none"
    """A registered correction."""
    cap: float = Field(2.0, ge=1, le=100)
    """Cap of the importance weight: `tis` lowers what is above, the others leave it out."""
    floor: float = Field(0.0, ge=0, le=1)
    """Weights below it are left out by `mis`, `icepop` and `geo_mask`; 0 leaves out none."""

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        check_variant("corrections", kind)
        return kind


class OptimiserConfig(Section):
    """AdamW and how often it steps."""

    learning_rate: float = Field(1e-4, ge=0, le=1)
    """Learning rate after warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Training steps over which the learning rate rises linearly."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's first moment."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """AdamW's second moment."""
    weight_decay: float = Field(0.0, ge=0, le=1)
    """AdamW's weight decay."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The gradient is scaled down to this norm."""
    updates_per_batch: int = Field(4, ge=1)
    """Optimiser steps per rollout batch (mini-batches times epochs)."""
    epochs: int = Field(1, ge=1)
    """Passes over the batch; `updates_per_batch` is divided among them."""
    micro_batch: int = Field(0, ge=0)
    """Responses per forward pass; 0 takes a mini-batch whole. Gradients do not depend on it."""


class EvaluationConfig(Section):
    """Held-out evaluation."""

    every: int = Field(10, ge=0)
    """Steps between evaluations; 0 never evaluates."""
    prompts: int = Field(64, ge=1)
    """Held-out prompts."""
    samples: int = Field(1, ge=1)
    """Responses per prompt; more than one gives pass@k."""


class CheckpointConfig(Section):
    """Checkpoints for an exact resume."""

    every: int = Field(0, ge=0)
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: int = Field(2, ge=1)
    """Checkpoints kept."""


class RecordConfig(Section):
    """What is recorded about the run."""

    enabled: bool = True
    """Recording changes no number of the training; without it there is nothing to watch."""
    depth: Literal["off", "summary", "worst", "full"] = "summary"
    """Per-token columns of the rollout files."""
    worst: int = Field(8, ge=0)
    """Responses recorded in full at depth `worst`."""
    weights_every: int = Field(1, ge=0)
    """Steps between two measurements of how far the weights moved; 0 never measures it.

    Each costs a copy of the weights and a pass over them: raise it for a large model.
    """


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
    advantage: AdvantageConfig = AdvantageConfig()
    correction: CorrectionConfig = CorrectionConfig()
    loss: SerializeAsAny[LossConfig] = PpoClip()
    optimiser: OptimiserConfig = OptimiserConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    record: RecordConfig = RecordConfig()

    @field_validator("loss", mode="before")
    @classmethod
    def _by_its_kind(cls, loss: object) -> object:
        return loss_config(loss) if isinstance(loss, Mapping) else loss

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for holds, what, keys, remedy in (*self._twice_corrected(), *self._sizes_that_clash()):
            if holds:
                raise ConfigError(what, where=keys, remedy=remedy)
        return self

    def doubts(self) -> list[str]:
        """What is allowed and hardly meant, a line each."""
        loss = self.loss
        wide = isinstance(loss, Gspo | GspoToken) and max(loss.clip_low, loss.clip_high) > _WIDE
        line = (
            f"loss.clip_low or loss.clip_high is as wide as for single tokens: {loss.kind} clips "
            "the ratio of whole responses, whose paper uses 0.0003 and 0.0004"
        )
        return [line] if wide else []

    def _twice_corrected(self) -> Iterable[tuple[bool, str, str, str]]:
        """Corrections that another setting makes pointless or repeats."""
        yield (
            self.correction.kind != "none" and self.engine.old_logprobs == "sampler",
            f"{self.correction.kind} corrects from the sampler to the learner, which a ratio "
            "against the sampler's own log-probabilities does already",
            "correction.kind and engine.old_logprobs",
            "set engine.old_logprobs=recompute",
        )
        yield (
            self.correction.kind != "none" and self.loss.anchored_on_sampler,
            f"the ratio of {self.loss.kind} goes to the sampler: {self.correction.kind} would "
            "correct the same gap twice",
            "correction.kind and loss.kind",
            "set correction.kind=none",
        )
        yield (
            self.correction.kind in ("tis_token", "mis_token", "icepop", "geo_mask")
            and self.loss.of_responses,
            f"{self.loss.kind} has one term a response, which the weights of single tokens in "
            f"{self.correction.kind} would only average out",
            "correction.kind and loss.kind",
            "use tis_sequence or mis_sequence, or the loss gspo_token",
        )
        yield (
            self.correction.kind in ("mis_sequence", "geo_mask")
            and self.loss.off_policy_limit is not None,
            f"{self.correction.kind} and loss.off_policy_limit both leave out whole responses",
            "correction.kind and loss.off_policy_limit",
            "use one of them",
        )
        yield (
            self.correction.kind == "icepop" and self.correction.floor == 0,
            "without a floor icepop is mis_token",
            "correction.kind and correction.floor",
            "set correction.floor=0.5 and correction.cap=5, as its paper does",
        )

    def _sizes_that_clash(self) -> Iterable[tuple[bool, str, str, str]]:
        """Numbers that do not fit each other."""
        batches, left_over = divmod(self.optimiser.updates_per_batch, self.optimiser.epochs)
        yield (
            left_over != 0,
            f"{self.optimiser.updates_per_batch} updates do not divide into "
            f"{self.optimiser.epochs} epochs",
            "optimiser.updates_per_batch and optimiser.epochs",
            "make the first a multiple of the second",
        )
        yield (
            batches > self.rollout.prompts_per_batch,
            f"{batches} updates per epoch want more prompts than "
            f"the {self.rollout.prompts_per_batch} of a batch: a prompt's responses stay together",
            "optimiser.updates_per_batch and rollout.prompts_per_batch",
            "use fewer updates, more epochs or more prompts",
        )
        yield (
            self.overlong.kind == "soft-punishment"
            and self.overlong.buffer > self.rollout.max_length,
            f"a buffer of {self.overlong.buffer} tokens is longer than the responses",
            "overlong.buffer and rollout.max_length",
            f"use at most {self.rollout.max_length}",
        )
        yield (
            self.model.width % (2 * self.model.heads) != 0,
            f"{self.model.heads} heads of even size do not fit a width of {self.model.width}",
            "model.heads and model.width",
            "make the width a multiple of twice the heads",
        )


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
            kept = outlasting(below, value) if key == "loss" else below
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
