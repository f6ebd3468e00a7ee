"""`grpodoctor trials`: train all trials and print what they show; or one of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import PageFormat
from grpodoctor.cli.signals import ended_by_signals

if TYPE_CHECKING:
    from grpodoctor.trials.evidence.collected_evidence import Evidence
    from grpodoctor.trials.trial import Experiment, Trial

_SEEDS, _QUICK_SEEDS, _HEALTHY_SEEDS = 5, 2, 10
_MOST_SEEDS = 1000
_DIRECTORY = Path("trials")

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help=f"Directory of the runs; finished runs in it are reused. [default: {_DIRECTORY}]",
    ),
]
FirstSeed = Annotated[
    int | None,
    typer.Option(
        "--first-seed",
        min=1,
        max=_MOST_SEEDS,
        help="First seed, to add runs to those that are published. [default: 1]",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", min=1, max=_MOST_SEEDS, help=f"Seeds per arm. [default: {_SEEDS}]"),
]
Steps = Annotated[
    int | None,
    typer.Option("--steps", min=1, max=10**6, help="Steps per run. [default: those of the trial]"),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, max=1024, help="Runs at a time. [default: all processors]"),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray", help="Ray cluster to train on: local, auto or an address."),
]
Format = Annotated[PageFormat, typer.Option("--output-format", help="Format of the result.")]


def trials(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Trials to run; without a name, all of them."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the trials; train nothing.")
    ] = False,
    healthy: Annotated[
        bool,
        typer.Option(
            "--healthy", help=f"Train healthy runs instead. [default: {_HEALTHY_SEEDS} seeds]"
        ),
    ] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Print the published result; train nothing.")
    ] = False,
    seeds: Seeds = None,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"Use {_QUICK_SEEDS} seeds per arm.")
    ] = False,
    first_seed: FirstSeed = None,
    steps: Steps = None,
    directory: Directory = None,
    jobs: Jobs = None,
    ray: RayAddress = None,
    output_format: Format = PageFormat.text,
) -> None:
    """Train diseased, treated and healthy runs, and measure each rule and remedy.

    Each trial trains its arms from the same seeds on the bundled trainer. The result gives for each
    rule the runs in which it fired and the steps until then, and for each remedy the gain in
    held-out accuracy with its interval.

    `--healthy` trains every built-in task with the settings of several variants instead, and
    counts what the rules report.

    An interrupted series continues where it was. The exit code is 1 if a run has no result.
    """
    from grpodoctor.trials.registry import all_trials, trial_of

    _refuse_contradictions(context)
    chosen = [trial_of(name) for name in dict.fromkeys(names or all_trials())]
    if listing:
        _list(chosen)
    elif published:
        _PRINT[output_format](_published())
    else:
        default = _QUICK_SEEDS if quick else _HEALTHY_SEEDS if healthy else _SEEDS
        evidence = _evidence(
            _healthy() if healthy else chosen,
            seeds=_seeds(first_seed or 1, seeds or default),
            steps=steps,
            root=directory or _DIRECTORY,
            jobs=jobs,
            ray=ray,
        )
        _PRINT[output_format](evidence)
        raise typer.Exit(int(bool(evidence.failed)))


_EXCLUDED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "--list": (
        "trains nothing and prints the names and questions of the trials",
        ("--published", "--healthy", "--output-format"),
    ),
    "--published": ("trains nothing and prints the whole result", ("--healthy", "a name")),
    "--healthy": ("trains healthy runs instead of trials", ("a name",)),
    "--quick": (f"means --seeds {_QUICK_SEEDS}", ("--seeds",)),
    "--ray": ("leaves the number of runs at a time to the cluster", ("--jobs",)),
}
"""What an option does, and the options that have no effect next to it."""
_WITHOUT_TRAINING = ("--list", "--published")
_TRAINING = ("--seeds", "--quick", "--first-seed", "--steps", "--dir", "--jobs", "--ray")


def _refuse_contradictions(context: typer.Context) -> None:
    """Refuse a pair of options if one of them would have no effect.

    Raises:
        ConfigError: if there are such options.
    """
    from grpodoctor.errors import ConfigError

    given = {
        parameter.opts[0] if parameter.param_type_name == "option" else "a name"
        for parameter in context.command.params
        if (source := context.get_parameter_source(parameter.name or ""))
        and source.name == "COMMANDLINE"
    }
    for option, (purpose, excluded) in _EXCLUDED.items():
        untrained = _TRAINING if option in _WITHOUT_TRAINING else ()
        for other in (*excluded, *untrained):
            if {option, other} <= given:
                raise ConfigError(
                    f"{option} cannot be combined with {other}: it {purpose}",
                    remedy=f"remove {option} or {other.replace('a name', 'the name')}",
                )


def _seeds(first: int, count: int) -> range:
    """The seeds to train.

    Raises:
        ConfigError: if the last one is too large.
    """
    from grpodoctor.errors import ConfigError

    last = first + count - 1
    if last > _MOST_SEEDS:
        raise ConfigError(
            f"the last seed would be {last}, and the largest is {_MOST_SEEDS}",
            where=f"--first-seed {first} with {count} seeds",
            remedy="choose fewer seeds or a smaller first seed",
        )
    return range(first, last + 1)


def _published() -> Evidence:
    from grpodoctor.trials.evidence.published_runs import published_evidence

    return published_evidence()


def _healthy() -> list[Experiment]:
    from grpodoctor.trials.healthy_runs import HEALTHY

    return [HEALTHY]


def _list(chosen: Sequence[Trial]) -> None:
    from grpodoctor.trials.evidence.published_runs import seconds_per_seed

    seconds = seconds_per_seed()
    width = max(len(trial.name) for trial in chosen)
    print(f"{'trial':<{width}}  seconds  question")
    for trial in chosen:
        took = f"{seconds[trial.name]:.0f}" if trial.name in seconds else "-"
        print(f"{trial.name:<{width}}  {took:>7}  {trial.question}")
    minutes = sum(seconds.get(trial.name, 0.0) for trial in chosen) / 60
    runs = sum(len(trial.arms) for trial in chosen)
    print(
        "\nSeconds are those of one processor for one seed, in the published runs, without warm "
        f"starts.\n--quick trains {runs * _QUICK_SEEDS} runs of these: "
        f"{minutes * _QUICK_SEEDS:.1f} minutes of one processor."
    )


def _evidence(
    chosen: Sequence[Experiment],
    *,
    seeds: range,
    steps: int | None,
    root: Path,
    jobs: int | None,
    ray: str | None,
) -> Evidence:
    from grpodoctor.errors import MissingExtraError, RunError
    from grpodoctor.support.progress import progress_bar
    from grpodoctor.trials.evidence.collected_evidence import collected

    try:
        from grpodoctor.trials.running import spec_of
        from grpodoctor.trials.workers import run_all

        # Neighbours differ in their seed, so that they need different warm starts and none waits.
        specs = [
            spec_of(trial, arm, seed, steps)
            for trial in chosen
            for arm in trial.arms
            for seed in seeds
        ]
    except ModuleNotFoundError as error:
        if error.name in {"torch", "transformers"}:
            raise MissingExtraError("training trials", "torch") from None
        raise
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        with ended_by_signals(), progress_bar("training trials") as progress:
            results = run_all(specs, root, progress, jobs=jobs, ray=ray)
    except KeyboardInterrupt:
        print(
            f"interrupted; finished runs are kept in {root}; continue with the same command",
            file=sys.stderr,
        )
        raise
    except OSError as error:
        raise RunError(
            f"the runs cannot be stored: {error.strerror or error}",
            where=str(error.filename or root),
            remedy="choose another --dir",
        ) from error
    return collected(chosen, results)


_WIDE = 150
"""Columns of a terminal in which the table of remedies has room for all figures."""


def _print_text(evidence: Evidence) -> None:
    from rich.console import Console
    from rich.table import Table

    from grpodoctor.trials.evidence import evidence_page as page

    console = Console(highlight=False, markup=False)
    is_wide = console.width >= _WIDE
    columns, row = (
        (page.REMEDY_COLUMNS, page.remedy_row) if is_wide else (page.SHORT_COLUMNS, page.short_row)
    )

    def show(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        table = Table(box=None, pad_edge=False)
        for number, column in enumerate(columns):
            table.add_column(column, overflow="fold", no_wrap=number > 0 and not is_wide)
        for row in rows:
            table.add_row(*row)
        if table.row_count:
            console.print(table)

    for each in evidence.trials:
        console.print(f"{each.trial.name}: {each.trial.question}", style="bold")
        show(page.RULE_COLUMNS, map(page.rule_row, each.rules))
        show(columns, map(row, each.remedies))
        console.print()
    if evidence.healthy is not None:
        show(page.HEALTHY_COLUMNS, map(page.healthy_row, evidence.healthy.arms))
        console.print()
    for line in evidence.failed:
        console.print(f"No result: {line}", soft_wrap=True)
    for line in page.summary(evidence):
        console.print(line)
    if evidence.trials and not is_wide:
        console.print(
            "--output-format markdown adds the control, the gain at equal cost, p and the target."
        )


def _print_json(evidence: Evidence) -> None:
    from grpodoctor.cli.pages import json_text
    from grpodoctor.trials.evidence.evidence_page import as_json

    print(json_text(as_json(evidence)))


def _print_markdown(evidence: Evidence) -> None:
    from grpodoctor.trials.evidence.evidence_page import markdown

    print(markdown(evidence), end="")


_PRINT = {
    PageFormat.text: _print_text,
    PageFormat.json: _print_json,
    PageFormat.markdown: _print_markdown,
}
