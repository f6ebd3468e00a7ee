"""`grpodoctor probe --run`: the mismatch that a run recorded itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from grpodoctor.cli.options import ReportFormat, fails
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.cli.probe_options import ProbeOptions
from grpodoctor.errors import ConfigError

if TYPE_CHECKING:
    from grpodoctor.probe.gates import GateResult, Limit
    from grpodoctor.probe.run_mismatch.logged_mismatch import LoggedMismatch
    from grpodoctor.probe.run_mismatch.run_mismatch import RunMismatch
    from grpodoctor.report.view import View


def refuse_engines(options: Mapping[str, object]) -> None:
    """Refuse engines next to a run.

    Raises:
        ConfigError: if one is given.
    """
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(
            f"--run and {', '.join(given)} cannot be combined",
            where="--run",
            remedy="use recorded:RUN?side=sampler as an engine to compare a run with another one",
        )


def judge_run(run: Path, options: ProbeOptions, limits: Sequence[Limit]) -> NoReturn:
    """Print the mismatch of a run, and exit with 1 at or above a severity or beyond a limit.

    Raises:
        RunError: if the run has neither both sides' log-probabilities nor figures of them.
        ConfigError: if a limit's figure is not known for a run.
    """
    from grpodoctor.rules.base import SEVERITIES

    result = _measured(run, options)
    chosen_format = report_format(options.output_format, options.as_json, None)
    if not options.is_gate or chosen_format is not ReportFormat.text:
        write_report(_view(result), chosen_format, None)
    if options.is_gate:
        end_gate(_judged(result, limits, options), options)
    reached = SEVERITIES.index(result.severity)
    failed = fails(
        lambda severity: reached >= SEVERITIES.index(severity), options.fail_on, options.exit_zero
    )
    raise typer.Exit(int(failed))


def _measured(run: Path, options: ProbeOptions) -> RunMismatch | LoggedMismatch:
    """The mismatch by the run's recorded tokens, or else by the figures of its log.

    Raises:
        RunError: if it has neither. Equality to the bit needs the tokens.
    """
    from grpodoctor.errors import RunError
    from grpodoctor.probe.run_mismatch.logged_mismatch import logged_mismatch
    from grpodoctor.probe.run_mismatch.missing_side import with_logged_alternative
    from grpodoctor.probe.run_mismatch.run_mismatch import measure_run

    try:
        return measure_run(run, options.steps)
    except RunError as error:
        logged = None if options.exact else logged_mismatch(run, options.steps, error.remedy)
        if logged is None and options.exact:
            raise
        if logged is None:
            raise with_logged_alternative(error, run) from error
        return logged


def _view(result: RunMismatch | LoggedMismatch) -> View:
    from grpodoctor.probe.run_mismatch.run_mismatch import RunMismatch
    from grpodoctor.report.probe.logged_run_view import view_of_logged
    from grpodoctor.report.probe.run_view import view_of

    return view_of(result) if isinstance(result, RunMismatch) else view_of_logged(result)


def _judged(
    result: RunMismatch | LoggedMismatch, limits: Sequence[Limit], options: ProbeOptions
) -> GateResult:
    from grpodoctor.probe.gates import judge_logged, judge_steps
    from grpodoctor.probe.run_mismatch.run_mismatch import RunMismatch

    if isinstance(result, RunMismatch):
        return judge_steps(result, limits, exact=options.exact)
    return judge_logged(result, limits)


def end_gate(judged: GateResult, options: ProbeOptions) -> NoReturn:
    """Print the line of a gate, and exit with 0 or 1."""
    from grpodoctor.support.safe_text import plain

    chosen_format = report_format(options.output_format, options.as_json, None)
    is_report = chosen_format is not ReportFormat.text  # stdout has a report for a program
    print(plain(judged.line), file=sys.stderr if is_report else sys.stdout)
    raise typer.Exit(0 if judged.passed or options.exit_zero else 1)
