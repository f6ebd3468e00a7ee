"""`grpodoctor probe`: do two engines agree, and if not, why."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpodoctor.cli.ending import ended_by_signals
from grpodoctor.cli.options import ExitZero, FailOn, FailOnOption, JsonOption, ReportFormat, fails
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.errors import ConfigError, EngineError, RunError

if TYPE_CHECKING:
    from rich.progress import Progress

    from grpodoctor.probe.engines.engine_run import EngineProgress
    from grpodoctor.probe.inputs.plan import ProbePlan
    from grpodoctor.probe.results.results import ProbeResult
    from grpodoctor.report.view import View

HTML = "probe.html"
_MOST_LABEL = 48


_Grid = Annotated[
    Path | None,
    typer.Argument(help="A TOML file with a grid of engines, in place of the options."),
]
_Sampler = Annotated[
    list[str] | None,
    typer.Option("--sampler", help="An engine, as above; several make a grid."),
]
_Learner = Annotated[list[str] | None, typer.Option("--learner", help="The same, of what learns.")]
_Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", help=".txt, .jsonl, .json or .parquet; default: built-in ones."),
]
_Limit = Annotated[int | None, typer.Option("--limit", help="Prompts at most; 512.")]
_Samples = Annotated[int | None, typer.Option("--samples", help="Responses a prompt; 8.")]
_MaxTokens = Annotated[
    list[int] | None,
    typer.Option("--max-tokens", help="Longest response; 512. Several make a grid."),
]
_Temperature = Annotated[float | None, typer.Option("--temperature", help="Of the sampler; 1.")]
_TopP = Annotated[float | None, typer.Option("--top-p", help="Of the sampler; 1.")]
_TopK = Annotated[int | None, typer.Option("--top-k", help="Of the sampler; 0: all.")]
_MinP = Annotated[float | None, typer.Option("--min-p", help="Of the sampler; 0.")]
_Seed = Annotated[int | None, typer.Option("--seed", help="Of all that is drawn; 0.")]
_Stale = Annotated[
    Path | None,
    typer.Option("--stale", help="An older checkpoint of the model: it must be flagged."),
]
_Budget = Annotated[
    float | None, typer.Option("--budget", min=0.001, help="Seconds; the rest is not run.")
]
_Attribution = Annotated[
    bool, typer.Option("--attribution/--no-attribution", help="Find out why they differ.")
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        help="Folder to keep everything in; one that is there is gone on with. "
        "Default: probe/<time>.",
    ),
]
_Attach = Annotated[
    Path | None,
    typer.Option("--attach", help="A run whose check and watch are to use what was measured."),
]
_OutputFormat = Annotated[
    ReportFormat, typer.Option("--output-format", "-o", help="Format of the printed report.")
]
_Framework = Annotated[
    str | None, typer.Option("--framework", help="Say what to set as it does: trl, verl, ...")
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
    output: _Output = None,
    attach: _Attach = None,
    output_format: _OutputFormat = ReportFormat.text,
    framework: _Framework = None,
    as_json: JsonOption = False,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
) -> None:
    """Compare sampling engine and learner on the same tokens; find the cause of a gap.

    An engine is ENGINE:MODEL?option=value&option=value:

    grpodoctor probe --sampler 'vllm:MODEL?python=.venv-vllm/bin/python'
    --learner 'transformers:MODEL?dtype=float32'

    Engines: vllm, openai_server, transformers, fsdp, llama_cpp, recorded,
    program. Each runs in the Python that has it (python=PATH), one after the
    other. Ctrl-C leaves the pairs that are finished; the same command with
    --output goes on.

    Exit codes: 0 nothing at or above --fail-on, 1 something was found, 2 an
    engine or the input failed; what could be measured is shown all the same.
    """
    from grpodoctor.report.probe.view import view_of

    if framework is not None:
        from grpodoctor.frameworks.registry import configurable_framework_named

        framework = configurable_framework_named(framework).name
    if attach is not None:
        from grpodoctor.monitor.attached_probes import check_run

        check_run(attach)
    sampling = {
        "samples": samples, "max_tokens": max_tokens, "temperature": temperature,
        "top_p": top_p, "top_k": top_k, "min_p": min_p, "seed": seed,
    }  # fmt: skip
    others = {"prompts": prompts, "limit": limit, "stale": stale}
    plan = _plan(grid, sampler, learner, _given(sampling), _given(others))
    changes = {"budget": budget, "attribution": None if attribution else False}
    plan = plan.model_copy(update=_given(changes))
    folder = output or Path("probe") / time.strftime("%Y%m%d-%H%M%S")
    result = _run(plan, folder)
    view = view_of(result, framework)
    _write_html(view, folder)  # first, because printing fails if the reader closes the pipe
    write_report(view, report_format(output_format, as_json, None), None)
    _tell_end(result, folder)
    if attach is not None and any(cell.comparison for cell in result.cells):
        _attach(result, attach)
    _exit(result, fail_on, exit_zero)


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
            f"a grid and {options} do not go together", where=str(grid), remedy="write it there"
        )
    return read_plan(grid)


def _run(plan: ProbePlan, folder: Path) -> ProbeResult:
    from grpodoctor.probe.run import probe as run

    with ended_by_signals(), _progress() as listener:
        try:
            return run(plan, folder, listener)
        except KeyboardInterrupt:
            listener.stop()
            done = f"{listener.done} of {listener.total} pairs are measured"
            _say(f"ended; {done}; go on with the same command and --output {folder}")
            raise
        except OSError as error:
            what = f"the folder cannot be used: {error.strerror or error}"
            remedy = f"go on with the same command and --output {folder} when it can"
            raise RunError(what, where=str(error.filename or folder), remedy=remedy) from error


class _Quiet:
    """Tells nobody, and remembers how far the probe is."""

    done = total = 0

    def stage(self, what: str, done: int, total: int) -> None:  # noqa: ARG002 - nobody looks
        self.done, self.total = done, total

    def work(self, work: EngineProgress) -> None:
        """An engine is at work."""

    def stop(self) -> None:
        """Nothing is shown."""


class _Bar(_Quiet):
    """Shows on a terminal what runs now."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None, engine="")

    def stage(self, what: str, done: int, total: int) -> None:
        super().stage(what, done, total)
        self._progress.update(
            self._task, completed=done, total=total, description=_cut(what), engine=""
        )

    def work(self, work: EngineProgress) -> None:
        shards = f"{work.shards}/{work.expected} shards, " if work.expected else ""
        self._progress.update(self._task, engine=f"{shards}{work.seconds:.0f} s")

    def stop(self) -> None:
        self._progress.stop()


def _cut(text: str) -> str:
    from rich.markup import escape

    from grpodoctor.support.safe_text import plain

    return escape(plain(text, limit=_MOST_LABEL))


@contextmanager
def _progress() -> Iterator[_Quiet]:
    if not sys.stderr.isatty():
        yield _Quiet()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        *(SpinnerColumn(), TimeElapsedColumn(), MofNCompleteColumn(), BarColumn(bar_width=8)),
        *(TextColumn("{task.description}"), TextColumn("{task.fields[engine]}", style="dim")),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)


def _write_html(view: View, folder: Path) -> None:
    from grpodoctor.report import html
    from grpodoctor.support import atomic_files

    atomic_files.write_text(folder / HTML, html.render(view))


def _tell_end(result: ProbeResult, folder: Path) -> None:
    _say(f"report written to {folder / HTML}; all figures are in {folder / 'probe.json'}")
    if any(cell.status == "not_run" for cell in result.cells):
        _say(f"not everything was run; go on with the same command and --output {folder}")


def _attach(result: ProbeResult, run: Path) -> None:
    from grpodoctor.probe.attach import attach_result

    path, cell = attach_result(result, run)
    _say(f"attached {cell.sampler} against {cell.learner} to the run: {path}")


def _say(text: str) -> None:
    from grpodoctor.support.safe_text import plain

    print(plain(text), file=sys.stderr)


def _exit(result: ProbeResult, fail_on: FailOn, exit_zero: bool) -> None:
    from grpodoctor.probe.severity import SEVERITIES, severity_of

    states = [cell.status for cell in result.cells]
    failed = [cell.reason for cell in result.cells if cell.status == "failed"]
    for told in dict.fromkeys(failed):
        _say(f"error: {told}")
    if failed:
        raise typer.Exit(EngineError.exit_code)
    if "done" not in states:
        raise EngineError("no pair was measured in the time given", remedy="raise --budget")
    worst = max(SEVERITIES.index(severity_of(cell)) for cell in result.cells)
    if fails(lambda severity: worst >= SEVERITIES.index(severity), fail_on, exit_zero):
        raise typer.Exit(1)
