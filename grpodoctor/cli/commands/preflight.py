"""`grpodoctor preflight`: what can be known of a run before it costs anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpodoctor.cli import preflight_options as given
from grpodoctor.cli.options import (
    ExitZero,
    FailOn,
    FailOnOption,
    JsonOption,
    ReportFormatOption,
    fails,
    split_codes,
)
from grpodoctor.cli.output import report_format, write_report
from grpodoctor.cli.signals import ended_by_signals

if TYPE_CHECKING:
    from grpodoctor.probe.engines.engine_run import EngineProgress


def preflight(
    model: given.Model,
    prompts: given.Prompts = None,
    held_out: given.HeldOut = None,
    reward: given.Reward = None,
    reward_seconds: given.RewardSeconds = 60.0,
    sampler: given.Sampler = None,
    learner: given.Learner = None,
    reference: given.Reference = None,
    control: given.Control = None,
    template: given.Template = None,
    gold_format: given.GoldFormat = None,
    group_size: given.GroupSize = 8,
    batch_prompts: given.BatchPrompts = 64,
    max_tokens: given.MaxTokens = 512,
    temperature: given.Temperature = None,
    samples: given.Samples = 8,
    limit: given.Limit = 64,
    memory_gib: given.MemoryGib = None,
    write_filtered: given.WriteFiltered = None,
    budget: given.Budget = None,
    work: given.Work = Path("preflight"),
    seed: given.Seed = 0,
    select: given.Select = None,
    ignore: given.Ignore = None,
    output_format: ReportFormatOption = None,
    output: given.Output = None,
    as_json: JsonOption = False,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
) -> None:
    """Check model, data, reward and engines before a run starts.

    What needs an engine, a reward or answers is skipped without. The pages of the checks:
    grpodoctor rule DAT101.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 the input or an engine failed.
    """
    from grpodoctor.preflight import catalogue
    from grpodoctor.preflight.context import Plan
    from grpodoctor.preflight.run import Request
    from grpodoctor.preflight.run import preflight as make
    from grpodoctor.report.preflight.view import view_of

    given.check_output(output)
    chosen_format = report_format(output_format, as_json, output)
    plan = Plan(
        group_size=group_size, batch_prompts=batch_prompts, max_tokens=max_tokens,
        temperatures=given.temperatures_of(temperature), samples=samples, limit=limit,
        gold_format=given.gold_format_of(gold_format), memory_gib=memory_gib, seed=seed,
    )  # fmt: skip
    request = Request(
        model=model, prompts=prompts, held_out=held_out, reward=reward,
        reward_seconds=reward_seconds,
        sampler=given.engine_of(sampler), learner=given.engine_of(learner),
        reference=given.engine_of(reference), templates=given.templates_of(template),
        control=control, folder=work, budget=budget, filtered=write_filtered, plan=plan,
    )  # fmt: skip
    checks = catalogue.select(split_codes(select), split_codes(ignore))
    with ended_by_signals(), _progress() as (tell, watch):
        found = make(request, checks, tell=tell, watch=watch)
    write_report(view_of(found), chosen_format, output)
    raise typer.Exit(2 if found.failed else int(fails(found.reaches, fail_on, exit_zero)))


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str], None], Callable[[EngineProgress], None]]]:
    """What shows which check is made and what its engine does; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield (lambda _: None), (lambda _: None)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("loading")
        now = ["engines"]

        def tell(check: str) -> None:
            now[0] = check
            progress.update(task, description=check)

        def watch(work: EngineProgress) -> None:
            done = f"{work.shards}/{work.expected}" if work.expected else "loading"
            progress.update(task, description=f"{now[0]}: {work.engine} {done}")

        yield tell, watch
