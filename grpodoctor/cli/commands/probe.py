"""`grpodoctor probe`: compare two engines and find the cause of their differences."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpodoctor.cli.options import (
    ExitZero,
    FailOn,
    FailOnOption,
    JsonOption,
    ReportFormat,
    TrustRemoteCode,
    fails,
)
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.cli.probe_run import judge_run, refuse_engines
from grpodoctor.cli.signals import ended_by_signals
from grpodoctor.errors import ConfigError, EngineError, RunError

if TYPE_CHECKING:
    from grpodoctor.probe.engines.engine_run import EngineProgress
    from grpodoctor.probe.inputs.plan import ProbePlan
    from grpodoctor.probe.results.results import ProbeResult
    from grpodoctor.support.progress import Progress

HTML = "probe.html"


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
        help="File of prompts: .txt, .jsonl, .json or .parquet. \\[default: built-in]",
    ),
]
_Limit = Annotated[
    int | None, typer.Option("--limit", help="Maximum number of prompts. \\[default: 512]")
]
_Samples = Annotated[
    int | None, typer.Option("--samples", help="Responses per prompt. \\[default: 8]")
]
_MaxTokens = Annotated[
    list[int] | None,
    typer.Option(
        "--max-tokens",
        help="Maximum response length, in tokens; repeatable for a grid. \\[default: 512]",
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
    bool,
    typer.Option("--attribution/--no-attribution", help="Search for the causes of a gap."),
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
_OutputFormat = Annotated[
    ReportFormat, typer.Option("--output-format", "-o", help="Format of the printed report.")
]
_Framework = Annotated[
    str | None,
    typer.Option(
        "--framework", help="Framework whose config keys the remedies use (trl, verl, ...)."
    ),
]


def probe(
    grid: _Grid = None,
    sampler: _Sampler = None,
    learner: _Learner = None,
    prompts: _Prompts = None,
    limit: _Limit = None,
    samples: _Samples = None,
    max_tokens: _MaxTokens = None,
    temperature: _Temperature = None,
    top_p: _TopP = None,
    top_k: _TopK = None,
    min_p: _MinP = None,
    seed: _Seed = None,
    stale: _Stale = None,
    budget: _Budget = None,
    attribution: _Attribution = True,
    trust_remote_code: TrustRemoteCode = False,
    output: _Output = None,
    attach: _Attach = None,
    run: _Run = None,
    steps: _Steps = 20,
    output_format: _OutputFormat = ReportFormat.text,
    framework: _Framework = None,
    as_json: JsonOption = False,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
) -> None:
    """Compare sampler and learner on the same tokens, and find the cause of a gap.

    An engine is ENGINE:MODEL?option=value&option=value:

    grpodoctor probe --sampler 'vllm:MODEL?python=.venv-vllm/bin/python'
    --learner 'transformers:MODEL?dtype=float32'

    `--run RUN` reads both sides' log-probabilities from the rollouts of a run instead, and
    reports the mismatch of its last steps, the trend, the likely cause and the experiment that
    would prove it.

    Engines: vllm, openai_server, transformers, fsdp, llama_cpp, recorded,
    program. They run one after another, each in its own Python interpreter
    (python=PATH). After Ctrl-C, the same command with --output resumes the
    probe.

    Exit codes: 0 no gap at or above --fail-on, 1 at least one, 2 unusable
    input or failed engine (the measured pairs are still reported).
    """
    from grpodoctor.probe.inputs.engine_spec import check_remote_code

    if run is not None:
        refuse_engines({"a grid": grid, "--sampler": sampler, "--learner": learner})
        chosen_format = report_format(output_format, as_json, None)
        judge_run(run, steps, chosen_format, fail_on, exit_zero=exit_zero)
    framework = _checked_framework(framework)
    if attach is not None:
        from grpodoctor.monitor.attached_probes import check_run

        check_run(attach)
    sampling = {
        "samples": samples, "max_tokens": max_tokens, "temperature": temperature,
        "top_p": top_p, "top_k": top_k, "min_p": min_p, "seed": seed,
    }  # fmt: skip
    others = {"prompts": prompts, "limit": limit, "stale": stale}
    plan = _plan(grid, sampler, learner, _given(sampling), _given(others))
    check_remote_code((*plan.samplers, *plan.learners), is_allowed=trust_remote_code)
    changes = {"budget": budget, "attribution": None if attribution else False}
    plan = plan.model_copy(update=_given(changes))
    folder = output or Path("probe") / time.strftime("%Y%m%d-%H%M%S")
    result = _run(plan, folder)
    _report(result, framework, folder, report_format(output_format, as_json, None))
    if attach is not None and any(cell.comparison for cell in result.cells):
        _attach(result, attach)
    _exit(result, fail_on, exit_zero)


def _checked_framework(name: str | None) -> str | None:
    """The canonical name of a framework whose config keys are known.

    Raises:
        ConfigError: if there is no such framework.
    """
    from grpodoctor.frameworks.registry import configurable_framework_named

    return configurable_framework_named(name).name if name is not None else None


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _plan(
    grid: Path | None,
    samplers: list[str] | None,
    learners: list[str] | None,
    sampling: dict[str, Any],
    others: dict[str, Any],
) -> ProbePlan:
    from grpodoctor.probe.inputs.plan import plan_from_options, read_plan

    if grid is None:
        return plan_from_options(samplers or (), learners or (), sampling=sampling, **others)
    given = [*(["sampler"] if samplers else []), *(["learner"] if learners else [])]
    given += [*sampling, *others]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(
            f"a grid file and {options} cannot be combined",
            where=str(grid),
            remedy="set them in the grid file",
        )
    return read_plan(grid)


def _run(plan: ProbePlan, folder: Path) -> ProbeResult:
    from grpodoctor.probe.run import probe as run_probe
    from grpodoctor.support.progress import progress_bar

    status = _Status()
    with ended_by_signals():
        try:
            with progress_bar("probe", delay=0) as bar:
                status.bar = bar
                return run_probe(plan, folder, status)
        except KeyboardInterrupt:
            measured = f"{status.done} of {status.total} pairs were measured"
            _say(f"interrupted; {measured}; resume with the same command and --output {folder}")
            raise
        except OSError as error:
            raise RunError(
                f"the output folder cannot be used: {error.strerror or error}",
                where=str(error.filename or folder),
                remedy=f"fix it, then resume with the same command and --output {folder}",
            ) from error


class _Status:
    """Shows the progress of a probe, and remembers it for the message after an interrupt."""

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self.done = self.total = 0
        self._stage = ""

    def stage(self, what: str, done: int, total: int) -> None:
        self.done, self.total, self._stage = done, total, what
        self._update(what)

    def engine(self, progress: EngineProgress) -> None:
        shards = f"{progress.shards}/{progress.expected} shards, " if progress.expected else ""
        self._update(f"{shards}{progress.seconds:.0f} s: {self._stage}")

    def _update(self, detail: str) -> None:
        if self.bar is not None:
            self.bar.update(self.done, total=self.total, detail=detail)


def _report(
    result: ProbeResult, framework: str | None, folder: Path, printed_format: ReportFormat
) -> None:
    from grpodoctor.report import html
    from grpodoctor.report.probe.view import view_of
    from grpodoctor.support.files import atomic_files

    view = view_of(result, framework)
    # The file comes first, because printing fails if the reader closes the pipe.
    atomic_files.write_text(folder / HTML, html.render(view))
    write_report(view, printed_format, None)
    _say(f"report: {folder / HTML}; all figures: {folder / 'probe.json'}")
    if any(cell.status == "not_run" for cell in result.cells):
        _say(f"some pairs were not run; resume with the same command and --output {folder}")


def _attach(result: ProbeResult, run: Path) -> None:
    from grpodoctor.probe.attach import attach_result

    path, cell = attach_result(result, run)
    _say(f"attached {cell.sampler} and {cell.learner} to the run: {path}")


def _say(text: str) -> None:
    from grpodoctor.support.safe_text import plain

    print(plain(text), file=sys.stderr)


def _exit(result: ProbeResult, fail_on: FailOn, exit_zero: bool) -> None:
    from grpodoctor.probe.severity import SEVERITIES, severity_of

    states = [cell.status for cell in result.cells]
    errors = [cell.reason for cell in result.cells if cell.status == "failed"]
    for error in dict.fromkeys(errors):
        _say(f"error: {error}")
    if errors:
        raise typer.Exit(EngineError.exit_code)
    if "done" not in states:
        raise EngineError("no pair was measured within the time limit", remedy="raise --budget")
    worst = max(SEVERITIES.index(severity_of(cell)) for cell in result.cells)
    if fails(lambda severity: worst >= SEVERITIES.index(severity), fail_on, exit_zero):
        raise typer.Exit(1)
