"""What a probe is to do: from the command line, or from a TOML file with a grid.

    model = "Qwen/Qwen3-0.6B"         # of engines that name none
    prompts = "prompts.jsonl"         # built-in ones by default
    stale = "checkpoints/step-100"    # an older checkpoint, which must be flagged

    [sampling]
    samples = 8
    max_tokens = [128, 512]           # a cell for each length

    [[sampler]]
    engine = "vllm"
    python = ".venv-vllm/bin/python"
    options = { dtype = ["bfloat16", "float32"], tensor_parallel_size = [1, 2] }

    [[learner]]
    engine = "transformers"
    options = { dtype = ["float32", "bfloat16"], attention = "sdpa" }

Every option that is a list is expanded: the above are four samplers, two learners and two lengths,
sixteen cells.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from grpodoctor.errors import ConfigError
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.checksums import HUB_NAME
from grpodoctor.probe.inputs.engine_kinds import ENGINES
from grpodoctor.probe.inputs.engine_spec import EngineSpec

Option = str | int | float | bool
_TYPES = ("str", "int", "float", "bool")
_MOST_CELLS = 4096
_MOST_TOML_BYTES = 4 << 20


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SamplingSettings(_Section):
    """How responses are drawn."""

    samples: int = Field(default=8, ge=1, le=4096)
    """Responses a prompt."""
    max_tokens: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = (512,)
    """Longest response; each length makes a cell of its own."""
    temperature: float = Field(default=1.0, gt=0, le=100)
    """Of the sampler; a trainer's usual one."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """1 cuts nothing off."""
    top_k: int = Field(default=0, ge=0)
    """0 cuts nothing off."""
    min_p: float = Field(default=0.0, ge=0, lt=1)
    """0 cuts nothing off."""
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    """Of the sampler, the built-in prompts and the bootstrap."""
    ignore_end: bool = False
    """Draw exactly max_tokens tokens."""
    stop_ids: tuple[int, ...] = ()
    """Ends of a response besides the engine's own."""

    @field_validator("max_tokens", mode="before")
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return value if isinstance(value, list | tuple) else (value,)

    @field_validator("max_tokens")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value:
            raise ValueError("there is no length")
        return tuple(dict.fromkeys(value))

    def lengths(self) -> tuple[Sampling, ...]:
        """The same for each length."""
        others = self.model_dump(exclude={"max_tokens"})
        return tuple(Sampling(max_tokens=length, **others) for length in self.max_tokens)


class EngineSection(_Section):
    """One engine, or several where an option is a list."""

    engine: str
    """Which, such as `vllm` or `transformers`."""
    model: str | tuple[str, ...] = ""
    """A directory, a name on the hub, a URL; the file's `model` by default."""
    python: str = ""
    """The Python that has the engine; that of the probe by default."""
    launcher: str = ""
    """What stands before the program's path in place of a Python, such as `srun -n 2 python`."""
    timeout: float = Field(default=1800.0, gt=0)
    """Seconds without any sign of life after which it is ended."""
    processes: int | tuple[int, ...] = 1
    """Under torchrun on this machine."""
    options: dict[str, Option | tuple[Option, ...]] = Field(default_factory=dict)
    """What the engine's program is told; lists are expanded."""

    @field_validator("engine")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ENGINES:
            raise ValueError(f"there is no such engine; use one of {', '.join(ENGINES)}")
        return value

    @field_validator("options", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        for name, each in value.items() if isinstance(value, dict) else ():
            entries = each if isinstance(each, list) else [each]
            if not all(isinstance(entry, str | int | float) for entry in entries):
                raise ValueError(
                    f"{name[:60]} is no text, number, true or false, nor a list of these; "
                    "a structure is written as JSON, in a text"
                )
        return value

    def specs(self, model: str, folder: Path) -> Iterator[EngineSpec]:
        """Every engine that is meant.

        Args:
            model: of engines that name none.
            folder: where the file stands; paths that exist below it are meant.

        Raises:
            ConfigError: if there is no model, or a list is empty.
        """
        axes = {name: _several(name, value) for name, value in self.options.items()}
        axes |= {"processes": _several("processes", self.processes)}
        python = _placed(self.python, folder)
        ours = {"python": python, "launcher": self.launcher, "timeout": self.timeout}
        for named in _several("model", model if self.model == "" else self.model):
            if not named:
                raise ConfigError(
                    f"an engine of the kind {self.engine} has no model",
                    remedy="give it model=, or give the file one for all",
                )
            for values in product(*axes.values()):
                options = {
                    name: _placed(value, folder) if "/" in str(value) else value
                    for name, value in zip(axes, values, strict=True)
                }
                yield EngineSpec.of(self.engine, _placed(named, folder), options | ours)


def _placed(text: Any, folder: Path) -> Any:
    """A path as seen from here, where it exists beside the file; everything else as it is."""
    try:
        return str(folder / text) if text and (folder / text).exists() else text
    except (OSError, ValueError):  # too long for a path, or a zero byte in it
        return text


def _file(text: str, folder: Path) -> Path | None:
    return Path(_placed(text, folder)).expanduser() if text else None


def _several(name: str, value: Any) -> tuple[Any, ...]:
    if value == ():
        raise ConfigError(f"{name} is an empty list", remedy="give it a value, or leave it out")
    return value if isinstance(value, tuple) else (value,)


class _File(_Section):
    """What stands in the TOML file."""

    model: str = ""
    """Of engines that name none."""
    prompts: str = ""
    """A file; built-in prompts by default."""
    limit: int = Field(default=512, ge=1, le=1_000_000)
    """Prompts at most."""
    stale: str = ""
    """A checkpoint that is known to be older, for the control that it is flagged."""
    attribution: bool = True
    """Whether to find out why engines differ."""
    budget: float | None = Field(default=None, gt=0)
    """Seconds; what does not fit is not run."""
    experts: bool = True
    """Whether to ask engines for routed experts where the model has routers."""
    sampling: SamplingSettings = SamplingSettings()
    sampler: tuple[EngineSection, ...] = Field(min_length=1)
    learner: tuple[EngineSection, ...] = Field(min_length=1)


class ProbePlan(_Section):
    """What a probe is to do."""

    samplers: tuple[EngineSpec, ...]
    """Without repetitions."""
    learners: tuple[EngineSpec, ...]
    """The same."""
    sampling: SamplingSettings = SamplingSettings()
    prompts: Path | None = None
    """Built-in ones where None."""
    limit: int = Field(default=512, ge=1, le=1_000_000)
    """Prompts at most."""
    stale: Path | None = None
    """A checkpoint that is known to be older."""
    attribution: bool = True
    """Whether to find out why engines differ."""
    budget: float | None = Field(default=None, gt=0)
    """Seconds; what does not fit is not run."""
    experts: bool = True
    """Whether to ask engines for routed experts where the model has routers."""

    @field_validator("samplers", "learners")
    @classmethod
    def _distinct(cls, value: tuple[EngineSpec, ...]) -> tuple[EngineSpec, ...]:
        if not value:
            raise ValueError("there is none")
        return tuple({spec.key: spec for spec in value}.values())

    @field_validator("stale")
    @classmethod
    def _there(cls, value: Path | None) -> Path | None:
        if value is not None and not value.exists() and not HUB_NAME.fullmatch(str(value)):
            raise ValueError("there is no such checkpoint")
        return value

    @property
    def cells(self) -> int:
        """Samplers times learners times lengths."""
        return len(self.samplers) * len(self.learners) * len(self.sampling.max_tokens)


def plan_from_options(
    samplers: Sequence[str], learners: Sequence[str], **settings: Any
) -> ProbePlan:
    """The plan that command line options make.

    Args:
        samplers: specs, see `EngineSpec.parse`.
        learners: the same.
        settings: fields of `ProbePlan`; those of `SamplingSettings` under `sampling`.

    Raises:
        ConfigError: if a spec cannot be read or a setting is out of bounds.
    """
    for name, specs in (("--sampler", samplers), ("--learner", learners)):
        if not specs:
            raise ConfigError(
                f"{name} is missing",
                remedy="give --sampler and --learner as ENGINE:MODEL?option=value, or a TOML file",
            )
    parsed = {
        "samplers": tuple(EngineSpec.parse(each) for each in samplers),
        "learners": tuple(EngineSpec.parse(each) for each in learners),
    }
    try:
        return ProbePlan.model_validate(parsed | settings)
    except ValidationError as error:
        raise _explained(error.errors()[0], "") from None


def read_plan(file: Path) -> ProbePlan:
    """The plan that a TOML file describes.

    Paths in it are relative to it, where they exist there.

    Raises:
        ConfigError: if it is not TOML, has an unknown key or a value out of bounds, or its grid has
            more cells than anybody means.
    """
    try:
        told = _File.model_validate(_read_toml(file))
    except ValidationError as error:
        raise _explained(error.errors()[0], str(file)) from None
    folder = file.parent
    try:
        plan = ProbePlan(
            samplers=_expanded(told.sampler, told.model, folder),
            learners=_expanded(told.learner, told.model, folder),
            sampling=told.sampling,
            prompts=_file(told.prompts, folder),
            limit=told.limit,
            stale=_file(told.stale, folder),
            attribution=told.attribution,
            budget=told.budget,
            experts=told.experts,
        )
    except ConfigError as error:
        raise ConfigError(error.what, where=str(file), remedy=error.remedy) from None
    except ValidationError as error:
        raise _explained(error.errors()[0], str(file)) from None
    if plan.cells > _MOST_CELLS:
        raise ConfigError(
            f"the grid has {plan.cells} cells", where=str(file), remedy=f"at most {_MOST_CELLS} go"
        )
    return plan


def _expanded(plans: Sequence[EngineSection], model: str, folder: Path) -> tuple[EngineSpec, ...]:
    specs = (spec for each in plans for spec in each.specs(model, folder))
    return tuple(islice(specs, _MOST_CELLS + 1))


def _read_toml(file: Path) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > _MOST_TOML_BYTES:
            raise ConfigError("too large for a plan", where=str(file))
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(
            f"the plan cannot be read: {error.strerror}", where=str(file), remedy="check the path"
        ) from None
    except (ValueError, RecursionError) as error:  # not UTF-8 and numbers of 5,000 digits too
        raise ConfigError(f"not TOML: {error}", where=str(file)) from None


def _explained(problem: ErrorDetails, where: str) -> ConfigError:
    """What pydantic has found, for a person."""
    # Without the names of the types that were tried.
    parts = [str(part) for part in problem["loc"]]
    key = ".".join(part for part in parts if part not in _TYPES and "[" not in part)[:100]
    if problem["type"] == "extra_forbidden":
        remedy = "see: grpodoctor probe --help, and docs/probe.md for the keys of a grid"
        if key.startswith(("sampler.", "learner.")):
            remedy = "what an engine is told stands in its options = { … }"
        return ConfigError(f"there is no setting {key}", where=where, remedy=remedy)
    if problem["type"] == "missing":
        last = parts[-1][:100]
        form = f"[[{last}]]" if last in ("sampler", "learner") else f"{last} = …"
        return ConfigError(f"{key} is missing", where=where, remedy=f"write {form}")
    reason = problem["msg"].removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    remedy = f"write [[{key}]]" if key in ("sampler", "learner") else ""
    told = f"{key} cannot be {str(problem['input'])[:60]!r}: {reason}"
    return ConfigError(told, where=where, remedy=remedy)
