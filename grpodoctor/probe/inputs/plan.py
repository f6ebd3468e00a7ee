"""The plan of a probe: from the command line, or from a TOML file with a grid.

    model = "Qwen/Qwen3-0.6B"         # default model of the engines
    prompts = "prompts.jsonl"         # default: built-in prompts
    stale = "checkpoints/step-100"    # an older checkpoint, which the probe must flag

    [sampling]
    samples = 8
    max_tokens = [128, 512]           # one cell per length

    [[sampler]]
    engine = "vllm"
    python = ".venv-vllm/bin/python"
    options = { dtype = ["bfloat16", "float32"], tensor_parallel_size = [1, 2] }

    [[learner]]
    engine = "transformers"
    options = { dtype = ["float32", "bfloat16"], attention = "sdpa" }

Every option that is a list is expanded: this file has four samplers, two learners and two lengths,
which is sixteen cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from grpodoctor.errors import ConfigError
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.checksums import HUB_NAME, lacking
from grpodoctor.probe.inputs.engine_kinds import ENGINES
from grpodoctor.probe.inputs.engine_spec import EngineSpec, Option
from grpodoctor.support.files.regular_files import read_regular
from grpodoctor.support.toml_text import parse_toml
from grpodoctor.support.validation_reasons import plain_reason

_UNION_MEMBERS = ("str", "int", "float", "bool")
_MAX_CELLS = 4096
_SHOWN = 60
"""Characters of a wrong value in a message."""
_MAX_TOML_BYTES = 4 << 20


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SamplingSettings(_Section):
    """Sampling settings."""

    samples: int = Field(default=4, ge=1, le=4096)
    """Responses per prompt."""
    max_tokens: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = (256,)
    """Maximum response length; each length makes its own cell."""
    temperature: float = Field(default=1.0, gt=0, le=100)
    """Sampling temperature."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sampling top-p; 1 disables it."""
    top_k: int = Field(default=0, ge=0)
    """Sampling top-k; 0 disables it."""
    min_p: float = Field(default=0.0, ge=0, lt=1)
    """Sampling min-p; 0 disables it."""
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    """Seed of the samples, the built-in prompts and the bootstrap."""
    ignore_end: bool = False
    """Sample exactly `max_tokens` tokens."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a response, in addition to the engine's own."""

    repetition_penalty: float = Field(default=1.0, gt=0, le=100)
    """Penalty on tokens of prompt and response; 1 disables it."""
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    """Penalty on tokens of the response so far; 0 disables it."""
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    """Penalty on each occurrence in the response so far; 0 disables it."""
    min_tokens: int = Field(default=0, ge=0)
    """End tokens are excluded before this position."""
    logit_bias: dict[int, float] = Field(default_factory=dict)
    """Numbers added to the logits of tokens, by token id."""

    @field_validator("max_tokens", mode="before")
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return value if isinstance(value, list | tuple) else (value,)

    @field_validator("max_tokens")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value:
            raise ValueError("the list is empty")
        return tuple(dict.fromkeys(value))

    def lengths(self) -> tuple[Sampling, ...]:
        """The settings of each length."""
        settings = self.model_dump(exclude={"max_tokens"})
        settings["logit_bias"] = tuple(sorted(self.logit_bias.items()))
        return tuple(Sampling(max_tokens=length, **settings) for length in self.max_tokens)


class EngineSection(_Section):
    """One engine, or several if an option is a list."""

    engine: str
    """Engine, such as `vllm` or `transformers`."""
    model: str | tuple[str, ...] = ""
    """Directory, name on the hub or URL; default: the file's `model`."""
    python: str = ""
    """Python that has the engine; default: the Python that runs the probe."""
    launcher: str = ""
    """Command in front of the program's path instead of a Python, such as `srun -n 2 python`."""
    timeout: float = Field(default=1800.0, gt=0)
    """Seconds without a sign of life after which the engine is ended."""
    processes: int | tuple[int, ...] = 1
    """Processes on this machine, under torchrun."""
    options: dict[str, Option | tuple[Option, ...]] = Field(default_factory=dict)
    """Options of the engine's program; lists are expanded."""

    @field_validator("engine")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ENGINES:
            raise ValueError(f"unknown engine; use one of {', '.join(ENGINES)}")
        return value

    @field_validator("options", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        for name, option in value.items() if isinstance(value, dict) else ():
            entries = option if isinstance(option, list) else [option]
            if not all(isinstance(entry, str | int | float) for entry in entries):
                raise ValueError(
                    f"{name[:60]} is not a string, number, boolean or list of these; write a "
                    "structure as JSON in a string"
                )
        return value

    def specs(self, default_model: str, folder: Path) -> Iterator[EngineSpec]:
        """All engines of this section.

        Args:
            default_model: used if the section names no model.
            folder: of the file; paths that exist below it are resolved against it.

        Raises:
            ConfigError: if there is no model, or a list is empty.
        """
        axes = {name: _as_tuple(name, value) for name, value in self.options.items()}
        axes |= {"processes": _as_tuple("processes", self.processes)}
        python = _resolved(self.python, folder)
        launch = {"python": python, "launcher": self.launcher, "timeout": self.timeout}
        for model in _as_tuple("model", default_model if self.model == "" else self.model):
            if not model:
                raise ConfigError(
                    f"the engine {self.engine} has no model",
                    remedy="set model= for the engine, or model= for the whole file",
                )
            for values in product(*axes.values()):
                options = {
                    name: _resolved(value, folder) if "/" in str(value) else value
                    for name, value in zip(axes, values, strict=True)
                }
                yield EngineSpec.of(self.engine, _resolved(model, folder), options | launch)


def _resolved(text: Any, folder: Path) -> Any:
    """A path relative to the file's folder if it exists there; everything else unchanged."""
    try:
        return str(folder / text) if text and (folder / text).exists() else text
    except (OSError, ValueError):  # too long for a path, or a zero byte
        return text


def _path(text: str, folder: Path) -> Path | None:
    return Path(_resolved(text, folder)).expanduser() if text else None


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    if value == ():
        raise ConfigError(f"{name} is an empty list", remedy="set a value, or remove the key")
    return value if isinstance(value, tuple) else (value,)


class _Common(_Section):
    """Settings of a plan and of a grid file."""

    limit: int = Field(default=64, ge=1, le=1_000_000)
    """Maximum number of prompts."""
    attribution: bool = True
    """Whether to search for the causes of differences."""
    controls: bool = True
    """Whether to measure the controls, and the rounding of a model where a verdict needs it."""
    budget: float | None = Field(default=None, gt=0)
    """Time limit in seconds; what does not fit is not run."""
    experts: bool = True
    """Whether to request routed experts from engines if the model has routers."""
    sampling: SamplingSettings = SamplingSettings()


class _GridFile(_Common):
    """The content of a grid file."""

    model: str = ""
    """Default model of the engines."""
    prompts: str = ""
    """File with prompts; default: built-in prompts."""
    stale: str = ""
    """A checkpoint known to be older, for the control that it is flagged."""
    sampler: tuple[EngineSection, ...] = Field(min_length=1)
    learner: tuple[EngineSection, ...] = Field(min_length=1)


class ProbePlan(_Common):
    """The plan of a probe."""

    samplers: tuple[EngineSpec, ...]
    """Without duplicates."""
    learners: tuple[EngineSpec, ...]
    """Without duplicates."""
    prompts: Path | None = None
    """File with prompts; None for built-in prompts."""
    stale: Path | None = None
    """A checkpoint known to be older."""
    notes: tuple[str, ...] = ()
    """Remarks on the settings, repeated in the result."""
    untried: tuple[str, ...] = ()
    """Sampling settings of the run that no engine can be sent, with their values."""

    @field_validator("samplers", "learners")
    @classmethod
    def _distinct(cls, value: tuple[EngineSpec, ...]) -> tuple[EngineSpec, ...]:
        if not value:
            raise ValueError("the list is empty")
        return tuple({spec.key: spec for spec in value}.values())

    @field_validator("stale")
    @classmethod
    def _exists(cls, value: Path | None) -> Path | None:
        if value is not None and not value.exists() and not HUB_NAME.fullmatch(str(value)):
            raise ValueError("the checkpoint does not exist")
        if value is not None and value.is_dir() and (reason := lacking(value)):
            raise ValueError(f"the directory {reason}")
        return value

    @property
    def cells(self) -> int:
        """Samplers times learners times lengths."""
        return len(self.samplers) * len(self.learners) * len(self.sampling.max_tokens)


def plan_from_options(
    samplers: Sequence[str], learners: Sequence[str], **settings: Any
) -> ProbePlan:
    """The plan of command-line options.

    Args:
        samplers: engine specs, see `EngineSpec.parse`.
        learners: engine specs.
        settings: fields of `ProbePlan`; those of `SamplingSettings` under `sampling`.

    Raises:
        ConfigError: if a spec cannot be read or a setting is out of bounds.
    """
    for name, specs in (("--sampler", samplers), ("--learner", learners)):
        if not specs:
            raise ConfigError(
                f"{name} is missing",
                remedy="pass --sampler and --learner as ENGINE:MODEL?option=value, or a TOML file",
            )
    parsed = {
        "samplers": tuple(EngineSpec.parse(spec) for spec in samplers),
        "learners": tuple(EngineSpec.parse(spec) for spec in learners),
    }
    try:
        return ProbePlan.model_validate(parsed | settings)
    except ValidationError as error:
        raise _explained(error.errors()[0], "") from None


def read_plan(file: Path) -> ProbePlan:
    """The plan of a TOML file.

    Paths are relative to the file if they exist there.

    Raises:
        ConfigError: if the file is not TOML, has an unknown key or a value out of bounds, or its
            grid has too many cells.
    """
    try:
        content = _GridFile.model_validate(_read_toml(file))
    except ValidationError as error:
        raise _explained(error.errors()[0], str(file)) from None
    folder = file.parent
    try:
        plan = ProbePlan(
            **{name: getattr(content, name) for name in _Common.model_fields},
            samplers=_expanded(content.sampler, content.model, folder),
            learners=_expanded(content.learner, content.model, folder),
            prompts=_path(content.prompts, folder),
            stale=_path(content.stale, folder),
        )
    except ConfigError as error:
        raise ConfigError(error.what, where=str(file), remedy=error.remedy) from None
    except ValidationError as error:
        raise _explained(error.errors()[0], str(file)) from None
    if plan.cells > _MAX_CELLS:
        raise ConfigError(
            f"the grid has {plan.cells} cells", where=str(file), remedy=f"use at most {_MAX_CELLS}"
        )
    return plan


def _expanded(
    sections: Sequence[EngineSection], model: str, folder: Path
) -> tuple[EngineSpec, ...]:
    specs = (spec for section in sections for spec in section.specs(model, folder))
    return tuple(islice(specs, _MAX_CELLS + 1))


def _read_toml(file: Path) -> Mapping[str, Any]:
    try:
        return parse_toml(read_regular(file, _MAX_TOML_BYTES))
    except OSError as error:
        raise ConfigError(
            f"the grid file cannot be read: {error.strerror}",
            where=str(file),
            remedy="check the path",
        ) from None
    except ValueError as error:
        remedy = "the format is documented in docs/probe.md"
        raise ConfigError(
            f"the grid file is not TOML: {error}", where=str(file), remedy=remedy
        ) from None


def _explained(problem: ErrorDetails, where: str) -> ConfigError:
    """A validation error as a message for the user."""
    # Without the names of the union members that pydantic tried.
    parts = [str(part) for part in problem["loc"]]
    key = ".".join(part for part in parts if part not in _UNION_MEMBERS and "[" not in part)[:100]
    if problem["type"] == "extra_forbidden":
        remedy = "see: grpodoctor probe --help, and docs/probe.md for the keys of a grid"
        if key.startswith(("sampler.", "learner.")):
            remedy = "set options of the engine in its options = { … }"
        return ConfigError(f"there is no setting {key}", where=where, remedy=remedy)
    if problem["type"] == "missing":
        last = parts[-1][:100]
        form = f"[[{last}]]" if last in ("sampler", "learner") else f"{last} = …"
        return ConfigError(f"{key} is missing", where=where, remedy=f"add {form}")
    remedy = f"write [[{key}]]" if key in ("sampler", "learner") else ""
    given = str(problem["input"])
    if key == "stale":
        remedy = "name a model's directory, with its config.json and weights"
        if len(given) > _SHOWN:
            given = f"…{given[1 - _SHOWN :]}"  # the end of a path shows most
    what = f"{key} cannot be {given[:_SHOWN]!r}: {plain_reason(problem['msg'])}"
    return ConfigError(what, where=where, remedy=remedy)
