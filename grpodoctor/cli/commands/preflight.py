"""`grpodoctor preflight`: check model, data, reward and engines before a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpodoctor.cli import preflight_options as options
from grpodoctor.cli.command_options import command_with
from grpodoctor.cli.options import ReportFormat, fails, split_codes
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.cli.preflight_options import PreflightOptions
from grpodoctor.cli.signals import ended_by_signals

if TYPE_CHECKING:
    from grpodoctor.preflight.inputs.request import PreflightRequest
    from grpodoctor.preflight.results.preflight_results import PreflightResults
    from grpodoctor.probe.engines.engine_run import EngineProgress
    from grpodoctor.support.progress import Progress


@command_with(PreflightOptions)
def preflight(given: PreflightOptions) -> None:
    """Check model, data, reward and engines before a run starts.

    Without an engine, a reward function or reference answers, the checks that require them are
    skipped. --run-config alone checks the settings of a run. `grpodoctor rule CODE` prints the page
    of a check.

    Exit codes: 0 no finding at or above --fail-on, 1 at least one, 2 bad input or failed engine.
    """
    chosen_format = _report_format(given.output_format, given.as_json, given.output)
    request = _request(given)
    results = _run(request, select=split_codes(given.select), ignore=split_codes(given.ignore))
    _write_report(results, chosen_format, given.output)
    failed = fails(results.reaches, given.fail_on, given.exit_zero)
    raise typer.Exit(2 if results.failed else int(failed))


def _request(given: PreflightOptions) -> PreflightRequest:
    """The options as a request.

    Raises:
        ConfigError: if an engine, a template or another option is invalid.
    """
    from grpodoctor.preflight.inputs.prompt_rows import PromptColumns
    from grpodoctor.preflight.inputs.request import PreflightRequest
    from grpodoctor.preflight.inputs.run_settings import RunSettings
    from grpodoctor.probe.inputs.engine_spec import check_remote_code

    sizes = {
        "group_size": given.group_size, "batch_prompts": given.batch_prompts,
        "max_tokens": given.max_tokens,
    }  # fmt: skip
    known = {name: size for name, size in sizes.items() if size is not None}
    settings = RunSettings(
        **known, given=frozenset(known),
        temperatures=options.parse_temperatures(given.temperature),
        samples=given.samples, limit=given.limit,
        gold_format=options.parse_gold_format(given.gold_format), memory_gib=given.memory_gib,
        seed=given.seed,
    )  # fmt: skip
    sampler, learner, reference = map(
        options.parse_engine, (given.sampler, given.learner, given.reference)
    )
    check_remote_code((sampler, learner, reference), is_allowed=given.trust_remote_code)
    return PreflightRequest(
        model=given.model, prompts=given.prompts, held_out=given.held_out, reward=given.reward,
        columns=PromptColumns(given.prompt_column, given.answer_column),
        reward_seconds=given.reward_seconds, sampler=sampler, learner=learner,
        reference=reference, templates=options.parse_templates(given.template),
        control=given.control, run_config=given.run_config, framework=given.framework,
        folder=given.work, budget=given.budget, filtered=given.write_filtered, settings=settings,
    )  # fmt: skip


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
