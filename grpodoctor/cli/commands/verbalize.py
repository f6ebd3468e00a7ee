"""`grpodoctor verbalize`: several responses per prompt, with stated and true probabilities."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import JsonOption
from grpodoctor.errors import DataError
from grpodoctor.support.numbers import count_of

if TYPE_CHECKING:
    from grpodoctor.trainer.verbalized import VerbalizedResponse

_MAX_PROMPTS = 100_000


class TableFormat(StrEnum):
    """Output format of the responses."""

    text = "text"
    json = "json"


_Model = Annotated[
    str, typer.Option("--model", help="Local path or Hugging Face Hub name of the model.")
]
_Prompt = Annotated[list[str] | None, typer.Option("--prompt", help="A prompt; repeatable.")]
_Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", help="File of prompts: .txt, .csv, .tsv, .jsonl, .json or .parquet."),
]
_Count = Annotated[int, typer.Option("--count", min=2, max=100, help="Responses per prompt.")]
_MaxLength = Annotated[
    int, typer.Option("--max-length", min=1, help="Maximum length of a reply, in tokens.")
]
_Temperature = Annotated[
    float, typer.Option("--temperature", min=0.01, max=10, help="Sampling temperature.")
]
_BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Prompts per forward pass.")]
_Draw = Annotated[
    bool,
    typer.Option("--draw", help="Keep one response per prompt, drawn by the stated probabilities."),
]
_Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed for sampling.")]
_Device = Annotated[str, typer.Option("--device", help="Device: auto, cpu or cuda[:N].")]
_Output = Annotated[
    Path | None, typer.Option("--output", help="File for the responses, as JSON lines.")
]
_OutputFormat = Annotated[TableFormat, typer.Option("--output-format", "-o", help="Output format.")]


def verbalize(
    model: _Model,
    prompt: _Prompt = None,
    prompts: _Prompts = None,
    count: _Count = 5,
    max_length: _MaxLength = 1024,
    temperature: _Temperature = 1.0,
    batch_size: _BatchSize = 8,
    draw: _Draw = False,
    seed: _Seed = 0,
    device: _Device = "auto",
    output: _Output = None,
    output_format: _OutputFormat = TableFormat.text,
    as_json: JsonOption = False,
) -> None:
    """Ask a model for several responses per prompt with their probabilities.

    The table shows the probability that the model states and the actual log-probability of each
    response. Replies that cannot be parsed are reported; if no reply can be parsed, the exit code
    is 2.
    """
    from grpodoctor.cli.commands.train import require_torch
    from grpodoctor.support.safe_text import plain

    questions = _questions(prompt or [], prompts)
    if output is not None:
        _check_output(output)
    require_torch()
    sizes = (count, max_length, batch_size)
    responses = _sample(model, device, questions, sizes, temperature, seed)
    _report_unparsed(responses, model)
    if draw:
        responses = _drawn(responses, seed)
    kept = [response for of_prompt in responses for response in of_prompt]
    if output is not None:
        _write(_json_lines(kept), output)
        print(f"{count_of(len(kept), 'response')} written to {plain(str(output))}", file=sys.stderr)
    if as_json or output_format is TableFormat.json:
        print(_json_lines(kept).decode(), end="")
    else:
        print("\n\n".join(_table(of_prompt) for of_prompt in responses if of_prompt))


def _questions(given: list[str], file: Path | None) -> list[str]:
    """The prompts as text.

    Raises:
        DataError: if there is no prompt, or one is empty or not text.
    """
    from grpodoctor.probe.inputs.prompts import read_prompts

    rows = [] if file is None else read_prompts(file, _MAX_PROMPTS)
    if any("text" not in row for row in rows):
        raise DataError(
            "a prompt is a conversation or token IDs", where=str(file), remedy="use text prompts"
        )
    questions = [*given, *(str(row["text"]) for row in rows)]
    if not questions:
        raise DataError("no prompt is given", remedy="use --prompt TEXT or --prompts FILE")
    if any(not question.strip() for question in questions):
        raise DataError("the prompt is empty", where="--prompt", remedy="write some text")
    return questions


def _sample(
    model: str,
    device: str,
    questions: list[str],
    sizes: tuple[int, int, int],
    temperature: float,
    seed: int,
) -> list[list[VerbalizedResponse]]:
    """The responses to each prompt.

    Args:
        model: path or name of the model.
        device: `auto`, `cpu` or `cuda[:N]`.
        questions: the prompts.
        sizes: responses per prompt, tokens per reply, prompts per forward pass.
        temperature: of the sampling.
        seed: of the sampling.
    """
    import torch

    from grpodoctor.support.progress import progress_bar
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.model.policy import load_policy
    from grpodoctor.trainer.verbalized import sample_responses

    config = load_config({"model": {"name": model, "device": device}})
    policy = load_policy(config, build_task(config.task))
    count, max_length, batch_size = sizes
    generator = torch.Generator().manual_seed(seed)
    responses: list[list[VerbalizedResponse]] = []
    with progress_bar("sampling", total=len(questions)) as bar:
        for start in range(0, len(questions), batch_size):
            batch = questions[start : start + batch_size]
            responses += sample_responses(
                policy,
                batch,
                count,
                max_length=max_length,
                temperature=temperature,
                generator=generator,
            )
            bar.update(len(responses))
    return responses


def _report_unparsed(responses: list[list[VerbalizedResponse]], model: str) -> None:
    """Print how many replies list no response.

    Raises:
        DataError: if no reply lists one.
    """
    unparsed = sum(not of_prompt for of_prompt in responses)
    if unparsed == len(responses):
        raise DataError(
            "no reply lists a response with a probability",
            where=model,
            remedy="raise --max-length, or use a model that follows instructions",
        )
    if unparsed:
        print(f"note: {unparsed} of {len(responses)} replies cannot be parsed", file=sys.stderr)


def _drawn(responses: list[list[VerbalizedResponse]], seed: int) -> list[list[VerbalizedResponse]]:
    """One response per prompt, drawn with its stated probability."""
    import random

    from grpodoctor.trainer.verbalized import draw

    rng = random.Random(seed)  # noqa: S311
    return [[of_prompt[draw(of_prompt, rng)]] if of_prompt else [] for of_prompt in responses]


def _json_lines(responses: list[VerbalizedResponse]) -> bytes:
    from grpodoctor.support.safe_text import json_bytes

    return b"".join(json_bytes(asdict(response)) + b"\n" for response in responses)


def _check_output(path: Path) -> None:
    """Refuse an unusable output file before the model is loaded.

    Raises:
        DataError: if the suffix is not that of JSON lines, or the folder does not exist.
    """
    if path.suffix not in (".jsonl", ".ndjson"):
        raise DataError("the responses are JSON lines", where=str(path), remedy="name it .jsonl")
    if not path.parent.is_dir():
        raise DataError("the folder does not exist", where=str(path.parent), remedy="create it")


def _write(content: bytes, path: Path) -> None:
    """Write a file.

    Raises:
        DataError: if it cannot be written.
    """
    from grpodoctor.support.files.atomic_files import write_bytes

    try:
        write_bytes(path, content)
    except OSError as error:
        raise DataError(f"cannot write the file: {error.strerror}", where=str(path)) from error


def _table(responses: list[VerbalizedResponse]) -> str:
    from grpodoctor.support.safe_text import plain

    lines = [plain(responses[0].question), "  probability  logprob  response"]
    for response in responses:
        logprob = "" if response.logprob is None else f"{response.logprob:.2f}"
        lines.append(f"  {response.probability:11.3f}  {logprob:>7}  {plain(response.text)}")
    return "\n".join(lines)
