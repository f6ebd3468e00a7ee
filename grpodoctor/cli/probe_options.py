"""The options of `grpodoctor probe`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from grpodoctor.cli.options import (
    ExitZero,
    FailOn,
    FailOnOption,
    JsonOption,
    ReportFormat,
    TrustRemoteCode,
)

_Grid = Annotated[
    Path | None,
    typer.Argument(help="TOML file with a grid of engines, instead of the options."),
]
_Sampler = Annotated[
    list[str] | None,
    typer.Option(
        "--sampler", help="Sampling engine, ENGINE:MODEL?option=value; repeatable for a grid."
    ),
]
_Learner = Annotated[
    list[str] | None,
    typer.Option("--learner", help="Training-side engine; same syntax as --sampler."),
]
_Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        help="File of prompts: .txt, .csv, .tsv, .jsonl, .json or .parquet. \\[default: built-in]",
    ),
]
_Limit = Annotated[
    int | None, typer.Option("--limit", help="Maximum number of prompts. \\[default: 64]")
]
_Samples = Annotated[
    int | None, typer.Option("--samples", help="Responses per prompt. \\[default: 4]")
]
_MaxTokens = Annotated[
    list[int] | None,
    typer.Option(
        "--max-tokens",
        help="Maximum response length, in tokens; repeatable for a grid. \\[default: 256]",
    ),
]
_Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Sampling temperature. \\[default: 1.0]")
]
_TopP = Annotated[float | None, typer.Option("--top-p", help="Sampling top-p. \\[default: 1.0]")]
_TopK = Annotated[
    int | None, typer.Option("--top-k", help="Sampling top-k; 0 disables it. \\[default: 0]")
]
_MinP = Annotated[float | None, typer.Option("--min-p", help="Sampling min-p. \\[default: 0.0]")]
_Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", help="Seed for sampling, prompt selection and bootstrap. \\[default: 0]"
    ),
]
_Stale = Annotated[
    Path | None,
    typer.Option(
        "--stale",
        help="Older checkpoint for the stale-weights control. \\[default: noise on the weights]",
    ),
]
_Budget = Annotated[
    float | None,
    typer.Option("--budget", min=0.001, help="Time limit, in seconds. \\[default: none]"),
]
_Attribution = Annotated[
    bool | None,
    typer.Option(
        "--attribution/--no-attribution",
        help="Search for the causes of a gap. \\[default: on; with --accept or --exact off, "
        "together with the controls]",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output", help="Output folder; an existing folder is resumed. \\[default: probe/<time>]"
    ),
]
_Run = Annotated[
    Path | None,
    typer.Option(
        "--run", help="Judge the mismatch that a run recorded itself, instead of two engines."
    ),
]
_Steps = Annotated[int, typer.Option("--steps", min=1, help="Last steps of --run to read.")]
_Attach = Annotated[
    Path | None,
    typer.Option(
        "--attach", help="Run directory to attach the result to; check and watch then report it."
    ),
]
_SamplingFrom = Annotated[
    str | None,
    typer.Option(
        "--sampling-from",
        help="Sampling settings of a run directory, a JSON, YAML or TOML file, or "
        "generation_config of the sampler's model. Options given here take precedence.",
    ),
]
_Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        help="Limit of a figure, such as k3=0.015; repeatable. Prints one line; exit code 0 or 1.",
    ),
]
_Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Require bitwise equal log-probabilities. Prints one line; exit code 0 or 1.",
    ),
]
_OutputFormat = Annotated[
    ReportFormat, typer.Option("--output-format", "-o", help="Format of the printed report.")
]
_Framework = Annotated[
    str | None,
    typer.Option(
        "--framework", help="Framework whose config keys the remedies use (trl, verl, ...)."
    ),
]


@dataclass(frozen=True)
class ProbeOptions:
    """The options of the command."""

    grid: _Grid = None
    sampler: _Sampler = None
    learner: _Learner = None
    prompts: _Prompts = None
    limit: _Limit = None
    samples: _Samples = None
    max_tokens: _MaxTokens = None
    temperature: _Temperature = None
    top_p: _TopP = None
    top_k: _TopK = None
    min_p: _MinP = None
    seed: _Seed = None
    sampling_from: _SamplingFrom = None
    stale: _Stale = None
    budget: _Budget = None
    attribution: _Attribution = None
    trust_remote_code: TrustRemoteCode = False
    output: _Output = None
    attach: _Attach = None
    run: _Run = None
    steps: _Steps = 20
    accept: _Accept = None
    exact: _Exact = False
    output_format: _OutputFormat = ReportFormat.text
    framework: _Framework = None
    as_json: JsonOption = False
    fail_on: FailOnOption = FailOn.warning
    exit_zero: ExitZero = False

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling settings that are given."""
        names = ("samples", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed")
        return self._given(names)

    @property
    def inputs(self) -> dict[str, Any]:
        """The other settings of a plan that are given."""
        return self._given(("prompts", "limit", "stale"))

    @property
    def refinements(self) -> dict[str, bool]:
        """Changes of a plan's attribution and controls: a gate needs neither for its line."""
        if self.is_gate and not self.attribution:
            return {"attribution": False, "controls": False}
        return {"attribution": False} if self.attribution is False else {}

    @property
    def is_gate(self) -> bool:
        """Whether limits decide the exit code."""
        return bool(self.accept) or self.exact

    def _given(self, names: tuple[str, ...]) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}
