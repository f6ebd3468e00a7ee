"""`grpodoctor probe`: compare two engines and find the cause of their differences."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpodoctor.cli.command_options import command_with
from grpodoctor.cli.options import ReportFormat, fails
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.cli.probe_options import ProbeOptions
from grpodoctor.cli.probe_run import end_gate, judge_run, refuse_engines
from grpodoctor.cli.signals import ended_by_signals
from grpodoctor.errors import ConfigError, EngineError, RunError
from grpodoctor.support.numbers import part_of

if TYPE_CHECKING:
    from grpodoctor.probe.engines.engine_run import EngineProgress
    from grpodoctor.probe.inputs.plan import ProbePlan
    from grpodoctor.probe.results.results import ProbeResult
    from grpodoctor.support.progress import Progress

HTML = "probe.html"
_LINE_SECONDS = 30.0
"""Time between two lines of progress where stderr is no terminal."""


@command_with(ProbeOptions)
def probe(options: ProbeOptions) -> None:
    """Compare sampler and learner on the same tokens, and find the cause of a gap.

    An engine is ENGINE:MODEL?option=value&option=value:

    grpodoctor probe --sampler 'vllm:MODEL?python=.venv-vllm/bin/python'
    --learner 'transformers:MODEL?dtype=float32'

    `--run RUN` reads both sides' log-probabilities from the rollouts of a run instead, and
    reports the mismatch of its last steps, the trend, the likely cause and the experiment that
    would prove it. `--accept` and `--exact` turn the probe into a gate for CI: one line, and exit
    code 0 or 1.

    Engines: vllm, openai_server, transformers, fsdp, llama_cpp, recorded,
    program. They run one after another, each in its own Python interpreter
    (python=PATH). After Ctrl-C, the same command with --output resumes the
    probe.

    Exit codes: 0 no gap at or above --fail-on, 1 at least one, 2 unusable
    input or failed engine (the measured pairs are still reported).
    """
    from grpodoctor.probe.gates import judge_pairs, parse_limits

    limits = parse_limits(options.accept or ())
    if options.run is not None:
        given = {"a grid": options.grid, "--sampler": options.sampler, "--learner": options.learner}
        refuse_engines({**given, "--sampling-from": options.sampling_from})
        judge_run(options.run, options, limits)
    framework = _checked_framework(options.framework)
    _check_run_directory(options.attach)
    plan = _plan(options)
    folder = options.output or Path("probe") / time.strftime("%Y%m%d-%H%M%S")
    result = _run(plan, folder)
    _report(result, framework, folder, options)
    if options.attach is not None and any(cell.comparison for cell in result.cells):
        _attach(result, options.attach)
    _exit_if_failed(result)
    if options.is_gate:
        end_gate(judge_pairs(result, limits, exact=options.exact), options)
    _exit(result, options)


def _checked_framework(name: str | None) -> str | None:
    """The canonical name of a framework whose config keys are known.

    Raises:
        ConfigError: if there is no such framework.
    """
    from grpodoctor.frameworks.registry import configurable_framework_named

    return configurable_framework_named(name).name if name is not None else None


def _check_run_directory(run: Path | None) -> None:
    """Refuse a run directory that nothing can be attached to.

    Raises:
        RunError: if it is not a run.
    """
    if run is not None:
        from grpodoctor.monitor.attached_probes import check_run

        check_run(run)


def _plan(options: ProbeOptions) -> ProbePlan:
    """The plan of a grid file or of the options."""
    from grpodoctor.probe.inputs.engine_spec import check_remote_code
    from grpodoctor.probe.inputs.sampling_source import default_notes

    plan = _grid_plan(options, options.grid) if options.grid else _plan_of_engines(options)
    engines = (*plan.samplers, *plan.learners)
    check_remote_code(engines, is_allowed=options.trust_remote_code)
    changes = {
        "budget": options.budget or plan.budget,
        **options.refinements,
        "notes": (*plan.notes, *default_notes(plan.samplers, options.sampling_from)),
    }
    return plan.model_copy(update=changes)


def _plan_of_engines(options: ProbeOptions) -> ProbePlan:
    from grpodoctor.probe.inputs.engine_spec import EngineSpec
    from grpodoctor.probe.inputs.plan import plan_from_options
    from grpodoctor.probe.inputs.sampling_source import sampling_from

    samplers, sampling = options.sampler or (), options.sampling
    notes, untried = tuple[str, ...](), tuple[str, ...]()
    if options.sampling_from is not None:
        specs = [EngineSpec.parse(text) for text in samplers]
        found = sampling_from(options.sampling_from, specs)
        sampling, notes = {**found.settings, **sampling}, found.notes
        untried = found.untried
    settings = {"sampling": sampling, "notes": notes, "untried": untried, **options.inputs}
    return plan_from_options(samplers, options.learner or (), **settings)


def _grid_plan(options: ProbeOptions, grid: Path) -> ProbePlan:
    from grpodoctor.probe.inputs.plan import read_plan

    given = [name for name in ("sampler", "learner", "sampling_from") if getattr(options, name)]
    given += [*options.sampling, *options.inputs]
    if given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(
            f"a grid file and {named} cannot be combined",
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
            measured = f"{part_of(status.done, status.total, 'pairs', 'were')} measured"
            _say(f"interrupted; {measured}; resume with the same command and --output {folder}")
            raise
        except OSError as error:
            raise RunError(
                f"the output folder cannot be used: {error.strerror or error}",
                where=str(error.filename or folder),
                remedy=f"fix it, then resume with the same command and --output {folder}",
            ) from error


class _Status:
    """Shows the progress of a probe, and remembers it for the message after an interrupt.

    Without a terminal there is no bar: a line every half minute takes its place.
    """

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self.done = self.total = 0
        self._stage = ""
        self._began = self._told = time.monotonic()

    def stage(self, what: str, done: int, total: int) -> None:
        self.done, self.total, self._stage = done, total, what
        self._update(what)

    def engine(self, progress: EngineProgress) -> None:
        shards = f"{progress.shards}/{progress.expected} shards, " if progress.expected else ""
        self._update(f"{shards}{progress.seconds:.0f} s: {self._stage}")

    def remark(self, text: str) -> None:
        _say(text)

    def _update(self, detail: str) -> None:
        if self.bar is not None:
            self.bar.update(self.done, total=self.total, detail=detail)
        now = time.monotonic()
        if now - self._told >= _LINE_SECONDS and not sys.stderr.isatty():
            self._told = now
            pairs = f"{self.done} of {self.total} pairs measured"
            _say(f"after {now - self._began:.0f} s: {self._stage}; {pairs}")


def _report(
    result: ProbeResult, framework: str | None, folder: Path, options: ProbeOptions
) -> None:
    """Write the report; a gate prints its line instead, unless another format is requested."""
    from grpodoctor.report import html
    from grpodoctor.report.probe.view import view_of
    from grpodoctor.support.files import atomic_files

    view = view_of(result, framework)
    # The file comes first, because printing fails if the reader closes the pipe.
    atomic_files.write_text(folder / HTML, html.render(view))
    printed_format = report_format(options.output_format, options.as_json, None)
    if not options.is_gate or printed_format is not ReportFormat.text:
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


def _exit_if_failed(result: ProbeResult) -> None:
    """Exit with 2 if an engine failed, or if nothing was measured."""
    errors = [cell.reason for cell in result.cells if cell.status == "failed"]
    for error in dict.fromkeys(errors):
        _say(f"error: {error}")
    if errors:
        raise typer.Exit(EngineError.exit_code)
    if all(cell.comparison is None for cell in result.cells):
        raise EngineError("no pair was measured within the time limit", remedy="raise --budget")


def _exit(result: ProbeResult, options: ProbeOptions) -> None:
    from grpodoctor.probe.severity import SEVERITIES, severity_of

    worst = max(SEVERITIES.index(severity_of(cell)) for cell in result.cells)
    if fails(
        lambda severity: worst >= SEVERITIES.index(severity), options.fail_on, options.exit_zero
    ):
        raise typer.Exit(1)
