"""The options of `grpodoctor preflight`, and what becomes of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.errors import ConfigError

if TYPE_CHECKING:
    from grpodoctor.probe.inputs.engine_spec import EngineSpec


Model = Annotated[Path, typer.Option(help="The model's directory, with its tokenizer.")]
Prompts = Annotated[
    Path | None,
    typer.Option(help="Training data (.jsonl, .json, .parquet): prompts, and answers beside."),
]
HeldOut = Annotated[
    Path | None,
    typer.Option(help="Prompts to evaluate with, which are not to be among --prompts."),
]
Reward = Annotated[
    str | None,
    typer.Option(
        help="FILE.py:function or module:function, called as grpodoctor, TRL or verl would."
    ),
]
RewardSeconds = Annotated[
    float, typer.Option(min=0.1, help="Longest wait for the reward function, a batch.")
]
Sampler = Annotated[
    str | None, typer.Option(help="The engine that answers: ENGINE:MODEL?option=value.")
]
Learner = Annotated[
    str | None, typer.Option(help="The engine that learns, to compare with the sampler.")
]
Reference = Annotated[
    str | None, typer.Option(help="The reference of the KL penalty; default: the learner itself.")
]
Control = Annotated[
    Path | None, typer.Option(help="What a run with a learning rate of zero has left.")
]
Template = Annotated[
    list[str] | None,
    typer.Option(help="NAME=FILE, a prompt template with {prompt} in it; may be repeated."),
]
GoldFormat = Annotated[
    str | None, typer.Option(help="How a right answer is written, with {answer} in it.")
]
GroupSize = Annotated[int, typer.Option(min=2, help="Responses a prompt in the run.")]
BatchPrompts = Annotated[int, typer.Option(min=1, help="Prompts of a step of the run.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Longest response of the run, in tokens.")]
Temperature = Annotated[
    list[float] | None,
    typer.Option(help="To sample at; may be repeated, the first is the run's. [default: 1.0]"),
]
Samples = Annotated[int, typer.Option(min=2, help="Responses a prompt, to tell pass rates from.")]
Limit = Annotated[int, typer.Option(min=1, help="Prompts that are sampled from.")]
MemoryGib = Annotated[
    float | None, typer.Option(min=0.001, help="Memory of one device of the run, in GiB.")
]
WriteFiltered = Annotated[
    Path | None,
    typer.Option(help="Write the sampled prompts that 20 to 80 % of the responses solve."),
]
Budget = Annotated[float | None, typer.Option(min=1, help="Seconds that engines may take in all.")]
Work = Annotated[
    Path, typer.Option(help="Folder of what engines have answered, and need not answer again.")
]
Seed = Annotated[int, typer.Option(help="Of the choice of prompts and of sampling.")]
Select = Annotated[list[str] | None, typer.Option(help="Only these checks: codes or prefixes.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Not these checks: codes or prefixes.")]
Output = Annotated[Path | None, typer.Option(help="Write the report to this file.")]


def check_output(output: Path | None) -> None:
    """Refuse at once a file that the report could not be written to after minutes of engines.

    Raises:
        ConfigError: if it is a directory, or in none.
    """
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise ConfigError(
            "the report cannot be written: it is a directory, or in none",
            where=f"--output {output}",
            remedy="name a file in a directory that you can write to",
        )


def engine_of(text: str | None) -> EngineSpec | None:
    """The engine that an option names.

    Raises:
        ConfigError: if it names none.
    """
    from grpodoctor.probe.inputs.engine_spec import EngineSpec

    return None if text is None else EngineSpec.parse(text)


def temperatures_of(given: list[float] | None) -> tuple[float, ...]:
    """The temperatures, the run's first.

    Raises:
        ConfigError: if one is not above zero: greedy responses of a prompt are all the same.
    """
    heats = tuple(dict.fromkeys(given or [1.0]))
    for heat in heats:
        if not (math.isfinite(heat) and heat > 0):
            raise ConfigError(
                f"responses cannot be drawn at a temperature of {heat:g}",
                where="--temperature",
                remedy="give one above zero",
            )
    return heats


def gold_format_of(text: str | None) -> str | None:
    """How a right answer is written.

    Raises:
        ConfigError: if there is no place for the answer in it.
    """
    if text is not None and "{answer}" not in text:
        raise ConfigError(
            f"{text[:60]!r} has no place for the answer",
            where="--gold-format",
            remedy="put {answer} where it belongs",
        )
    return text


def templates_of(given: list[str] | None) -> dict[str, str]:
    """Candidate templates by name.

    Raises:
        ConfigError: if one cannot be read, has no place for the prompt, or two have one name.
    """
    templates = [_template(each) for each in given or ()]
    names = [name for name, _ in templates]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"two templates are called {twice[0][:60]!r}",
            where="--template",
            remedy="give each a name of its own",
        )
    return dict(templates)


def _template(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise ConfigError(
            f"{text[:60]!r} names no template", where="--template", remedy="write NAME=FILE"
        )
    try:
        template = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"a template cannot be read: {reason}", where=file) from error
    if "{prompt}" not in template:
        raise ConfigError(
            "the template has no place for the prompt",
            where=file,
            remedy="put {prompt} where it belongs",
        )
    return name, template
