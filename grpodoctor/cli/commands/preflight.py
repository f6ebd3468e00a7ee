"""`grpodoctor preflight`: check model, data, reward and engines before a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpodoctor.cli import preflight_options as options
from grpodoctor.cli.options import (
    ExitZero,
    FailOn,
    FailOnOption,
    JsonOption,
    ReportFormat,
    ReportFormatOption,
    TrustRemoteCode,
    fails,
    split_codes,
)
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.cli.signals import ended_by_signals

if TYPE_CHECKING:
    from grpodoctor.preflight.inputs.request import PreflightRequest
    from grpodoctor.preflight.results.preflight_results import PreflightResults
    from grpodoctor.probe.engines.engine_run import EngineProgress
    from grpodoctor.support.progress import Progress


def preflight(
    model: options.Model,
    prompts: options.Prompts = None,
    held_out: options.HeldOut = None,
    prompt_column: options.PromptColumn = "",
    answer_column: options.AnswerColumn = "",
    reward: options.Reward = None,
    reward_seconds: options.RewardSeconds = 60.0,
    sampler: options.Sampler = None,
    learner: options.Learner = None,
    reference: options.Reference = None,
    trust_remote_code: TrustRemoteCode = False,
    control: options.Control = None,
    run_config: options.RunConfig = None,
    framework: options.Framework = None,
    template: options.Template = None,
    gold_format: options.GoldFormat = None,
    group_size: options.GroupSize = 8,
    batch_prompts: options.BatchPrompts = 64,
    max_tokens: options.MaxTokens = 512,
    temperature: options.Temperature = None,
    samples: options.Samples = 8,
    limit: options.Limit = 64,
    memory_gib: options.MemoryGib = None,
    write_filtered: options.WriteFiltered = None,
    budget: options.Budget = None,
    work: options.Work = Path("preflight"),
    seed: options.Seed = 0,
    select: options.Select = None,
    ignore: options.Ignore = None,
    output_format: ReportFormatOption = None,
    output: options.Output = None,
    as_json: JsonOption = False,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
) -> None:
    """Check model, data, reward and engines before a run starts.

    Without an engine, a reward function or reference answers, the checks that require them are
    skipped. `grpodoctor rule CODE` prints the page of a check.

    Exit codes: 0 no finding at or above --fail-on, 1 at least one, 2 bad input or failed engine.
    """
    from grpodoctor.preflight.inputs.prompt_rows import PromptColumns
    from grpodoctor.preflight.inputs.request import PreflightRequest
    from grpodoctor.preflight.inputs.run_settings import RunSettings
    from grpodoctor.probe.inputs.engine_spec import check_remote_code

    chosen_format = _report_format(output_format, as_json, output)
    settings = RunSettings(
        group_size=group_size, batch_prompts=batch_prompts, max_tokens=max_tokens,
        temperatures=options.parse_temperatures(temperature), samples=samples, limit=limit,
        gold_format=options.parse_gold_format(gold_format), memory_gib=memory_gib, seed=seed,
    )  # fmt: skip
    request = PreflightRequest(
        model=model, prompts=prompts, held_out=held_out, reward=reward,
        columns=PromptColumns(prompt_column, answer_column),
        reward_seconds=reward_seconds,
        sampler=options.parse_engine(sampler), learner=options.parse_engine(learner),
        reference=options.parse_engine(reference), templates=options.parse_templates(template),
        control=control, run_config=run_config, framework=framework, folder=work, budget=budget,
        filtered=write_filtered, settings=settings,
    )  # fmt: skip
    check_remote_code(
        (request.sampler, request.learner, request.reference), is_allowed=trust_remote_code
    )
    results = _run(request, select=split_codes(select), ignore=split_codes(ignore))
    _write_report(results, chosen_format, output)
    raise typer.Exit(2 if results.failed else int(fails(results.reaches, fail_on, exit_zero)))


def _report_format(
    output_format: ReportFormat | None, as_json: bool, output: Path | None
) -> ReportFormat:
    options.check_output(output)
    return report_format(output_format, as_json, output)


def _write_report(
    results: PreflightResults, chosen_format: ReportFormat, output: Path | None
) -> None:
    from grpodoctor.report.preflight.view import view_of

    write_report(view_of(results), chosen_format, output)


def _run(
    request: PreflightRequest, *, select: tuple[str, ...], ignore: tuple[str, ...]
) -> PreflightResults:
    from grpodoctor.preflight.catalogue import select_checks_and_rules
    from grpodoctor.preflight.run import run_preflight
    from grpodoctor.rules.lint import config_rules
    from grpodoctor.support.progress import progress_bar

    checks, rules = select_checks_and_rules(select, ignore, config_rules=config_rules())
    with ended_by_signals(), progress_bar("preflight", total=len(checks), delay=0) as bar:
        status = _Status(bar)
        return run_preflight(
            request, checks, rules, on_check=status.check, on_progress=status.engine
        )


class _Status:
    """Shows the current check and its engine."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._started = 0
        self._check = "engines"

    def check(self, check: str) -> None:
        self._bar.update(self._started, detail=check)
        self._started += 1
        self._check = check

    def engine(self, progress: EngineProgress) -> None:
        shards = f"{progress.shards}/{progress.expected} shards" if progress.expected else "loading"
        detail = f"{shards}: {self._check}, {progress.engine}"
        self._bar.update(max(self._started - 1, 0), detail=detail)
