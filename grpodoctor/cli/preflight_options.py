"""The options of `grpodoctor preflight`, and their validation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import (
    ExitZero,
    FailOn,
    FailOnOption,
    JsonOption,
    ReportFormatOption,
    TrustRemoteCode,
)
from grpodoctor.errors import ConfigError
from grpodoctor.support.files.regular_files import read_regular

if TYPE_CHECKING:
    from grpodoctor.probe.inputs.engine_spec import EngineSpec


Model = Annotated[
    Path | None,
    typer.Option(
        help="Model directory, with its tokenizer. Without it, the checks that read it are skipped."
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        help="Training prompts and answers: .jsonl, .json, .csv, .tsv, .parquet, .arrow, .txt, or "
        "a data set's folder."
    ),
]
HeldOut = Annotated[
    Path | None,
    typer.Option(help="Evaluation prompts, which must not occur in --prompts."),
]
PromptColumn = Annotated[
    str, typer.Option(help="Column that holds the prompt. \\[default: detected]")
]
AnswerColumn = Annotated[
    str, typer.Option(help="Column that holds the answer. \\[default: detected]")
]
Reward = Annotated[
    str | None,
    typer.Option(
        help="Reward function, FILE.py:function or module:function, written for grpodoctor, TRL "
        "or verl."
    ),
]
RewardSeconds = Annotated[
    float, typer.Option(min=0.1, help="Time limit of the reward function per batch, in seconds.")
]
Sampler = Annotated[str | None, typer.Option(help="Sampling engine, ENGINE:MODEL?option=value.")]
Learner = Annotated[
    str | None, typer.Option(help="Training-side engine; same syntax as --sampler.")
]
Reference = Annotated[
    str | None,
    typer.Option(help="Reference model of the KL penalty; same syntax. \\[default: --learner]"),
]
Control = Annotated[Path | None, typer.Option(help="Log of a control run with learning rate 0.")]
RunConfig = Annotated[
    Path | None,
    typer.Option(help="Config (JSON, YAML, TOML) or start script of the run."),
]
Framework = Annotated[
    str | None, typer.Option(help="Framework of --run-config. \\[default: detected]")
]
Template = Annotated[
    list[str] | None,
    typer.Option(
        help="Candidate prompt template, NAME=FILE, with {prompt} as placeholder; repeatable."
    ),
]
GoldFormat = Annotated[
    str | None, typer.Option(help="Format of a correct answer, with {answer} as placeholder.")
]
_OF_CONFIG = "\\[default: that of --run-config, otherwise {}]"
GroupSize = Annotated[
    int | None,
    typer.Option(min=2, help=f"Responses per prompt in the run. {_OF_CONFIG.format(8)}"),
]
BatchPrompts = Annotated[
    int | None,
    typer.Option(min=1, help=f"Prompts per step of the run. {_OF_CONFIG.format(64)}"),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help=f"Maximum response length of the run, in tokens. {_OF_CONFIG.format(512)}"
    ),
]
Temperature = Annotated[
    list[float] | None,
    typer.Option(
        help="Sampling temperature; repeatable, the run's temperature first. \\[default: 1.0]"
    ),
]
Samples = Annotated[
    int, typer.Option(min=2, help="Responses to sample per prompt for the pass rates.")
]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of prompts to sample.")]
MemoryGib = Annotated[
    float | None, typer.Option(min=0.001, help="Memory of one device of the run, in GiB.")
]
WriteFiltered = Annotated[
    Path | None,
    typer.Option(help="File for the sampled prompts with a pass rate of 20% to 80%."),
]
Budget = Annotated[
    float | None, typer.Option(min=1, help="Time limit for all engines together, in seconds.")
]
Work = Annotated[Path, typer.Option(help="Folder for engine output; later calls reuse it.")]
Seed = Annotated[int, typer.Option(help="Seed for the choice of prompts and for sampling.")]
Select = Annotated[
    list[str] | None, typer.Option(help="Checks to run: codes, code prefixes or names.")
]
Ignore = Annotated[
    list[str] | None, typer.Option(help="Checks to skip: codes, code prefixes or names.")
]
Output = Annotated[Path | None, typer.Option(help="Report file. \\[default: stdout]")]


@dataclass(frozen=True)
class PreflightOptions:
    """The options of the command."""

    model: Model = None
    prompts: Prompts = None
    held_out: HeldOut = None
    prompt_column: PromptColumn = ""
    answer_column: AnswerColumn = ""
    reward: Reward = None
    reward_seconds: RewardSeconds = 60.0
    sampler: Sampler = None
    learner: Learner = None
    reference: Reference = None
    trust_remote_code: TrustRemoteCode = False
    control: Control = None
    run_config: RunConfig = None
    framework: Framework = None
    template: Template = None
    gold_format: GoldFormat = None
    group_size: GroupSize = None
    batch_prompts: BatchPrompts = None
    max_tokens: MaxTokens = None
    temperature: Temperature = None
    samples: Samples = 8
    limit: Limit = 64
    memory_gib: MemoryGib = None
    write_filtered: WriteFiltered = None
    budget: Budget = None
    work: Work = Path("preflight")
    seed: Seed = 0
    select: Select = None
    ignore: Ignore = None
    output_format: ReportFormatOption = None
    output: Output = None
    as_json: JsonOption = False
    fail_on: FailOnOption = FailOn.warning
    exit_zero: ExitZero = False


def check_output(output: Path | None) -> None:
    """Refuse, before any engine runs, a file to which the report cannot be written.

    Raises:
        ConfigError: if it is a directory, or its directory does not exist.
    """
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise ConfigError(
            "the report cannot be written: the path is a directory, or its directory is missing",
            where=f"--output {output}",
            remedy="name a file in a writable directory",
        )


def parse_engine(text: str | None) -> EngineSpec | None:
    """The engine that an option names.

    Raises:
        ConfigError: if the syntax is wrong.
    """
    from grpodoctor.probe.inputs.engine_spec import EngineSpec

    return None if text is None else EngineSpec.parse(text)


def parse_temperatures(values: list[float] | None) -> tuple[float, ...]:
    """The distinct temperatures, the run's first.

    Raises:
        ConfigError: if one is not above zero: greedy responses to a prompt are all the same.
    """
    temperatures = tuple(dict.fromkeys(values or [1.0]))
    for temperature in temperatures:
        if not (math.isfinite(temperature) and temperature > 0):
            raise ConfigError(
                f"responses cannot be sampled at a temperature of {temperature:g}",
                where="--temperature",
                remedy="use a temperature above zero",
            )
    return temperatures


def parse_gold_format(text: str | None) -> str | None:
    """The format of a correct answer.

    Raises:
        ConfigError: if it has no placeholder for the answer.
    """
    if text is not None and "{answer}" not in text:
        raise ConfigError(
            f"{text[:60]!r} has no placeholder for the answer",
            where="--gold-format",
            remedy="put {answer} where the answer belongs",
        )
    return text


def parse_templates(values: list[str] | None) -> dict[str, str]:
    """Candidate templates by name.

    Raises:
        ConfigError: if one cannot be read or has no placeholder, or two have the same name.
    """
    templates = [_read_template(value) for value in values or ()]
    names = [name for name, _ in templates]
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise ConfigError(
            f"two templates have the name {duplicates[0][:60]!r}",
            where="--template",
            remedy="give each template its own name",
        )
    return dict(templates)


def _read_template(value: str) -> tuple[str, str]:
    name, equals, file = value.partition("=")
    if not (name and equals and file):
        raise ConfigError(
            f"{value[:60]!r} is not a template", where="--template", remedy="write NAME=FILE"
        )
    try:
        template = read_regular(Path(file)).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"the template cannot be read: {reason}", where=file) from error
    if "{prompt}" not in template:
        raise ConfigError(
            "the template has no placeholder for the prompt",
            where=file,
            remedy="put {prompt} where the prompt belongs",
        )
    return name, template
