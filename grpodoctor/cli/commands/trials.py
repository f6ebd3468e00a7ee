"""`grpodoctor trials`: train all trials and print what they show; or one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import PageFormat

if TYPE_CHECKING:
    from grpodoctor.trials.evidence import TrialEvidence
    from grpodoctor.trials.trial import Trial

_SEEDS, _QUICK_SEEDS = 5, 2
_MOST_SEEDS = 1000

Directory = Annotated[
    Path, typer.Option("--dir", help="Directory of the runs; finished runs in it are reused.")
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
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Trials to run; without a name, all of them."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the trials; train nothing.")
    ] = False,
    seeds: Seeds = None,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"Use {_QUICK_SEEDS} seeds per arm.")
    ] = False,
    steps: Steps = None,
    directory: Directory = Path("trials"),
    jobs: Jobs = None,
    ray: RayAddress = None,
    output_format: Format = PageFormat.text,
) -> None:
    """Train diseased, treated and healthy runs, and measure each rule and remedy.

    Each trial trains its arms from the same seeds on the bundled trainer. The result gives for each
    rule the runs in which it fired and the steps until then, and for each remedy the gain in
    held-out accuracy with its interval.

    An interrupted series continues where it was. The exit code is 1 if a run has no result.
    """
    from grpodoctor.trials.registry import all_trials, trial_of

    chosen = [trial_of(name) for name in names or all_trials()]
    if listing:
        _list(chosen)
        return
    found = _evidence(
        chosen,
        seeds=seeds or (_QUICK_SEEDS if quick else _SEEDS),
        steps=steps,
        root=directory,
        jobs=jobs,
        ray=ray,
    )
    _PRINT[output_format](found)
    if any(each.failed for each in found):
        raise typer.Exit(1)


def _list(chosen: Sequence[Trial]) -> None:
    width = max(len(trial.name) for trial in chosen)
    for trial in chosen:
        print(f"{trial.name:<{width}}  {trial.question}")


def _evidence(
    chosen: Sequence[Trial],
    *,
    seeds: int,
    steps: int | None,
    root: Path,
    jobs: int | None,
    ray: str | None,
) -> list[TrialEvidence]:
    from grpodoctor.errors import MissingExtraError, RunError
    from grpodoctor.support.progress import progress_bar
    from grpodoctor.trials.evidence import evidence_of

    try:
        from grpodoctor.trials.running import spec_of
        from grpodoctor.trials.workers import run_all

        specs = [
            spec_of(trial, arm, seed, steps)
            for trial in chosen
            for seed in range(1, seeds + 1)
            for arm in trial.arms
        ]
    except ModuleNotFoundError as error:
        if error.name in {"torch", "transformers"}:
            raise MissingExtraError("training trials", "torch") from None
        raise
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        with progress_bar("training trials") as progress:
            results = run_all(specs, root, progress, jobs=jobs, ray=ray)
    except OSError as error:
        raise RunError(
            f"the runs cannot be stored: {error.strerror or error}",
            where=str(error.filename or root),
            remedy="choose another --dir",
        ) from error
    return evidence_of(chosen, results)


def _print_text(found: Sequence[TrialEvidence]) -> None:
    from rich.console import Console
    from rich.table import Table

    from grpodoctor.trials import evidence_page as page

    console = Console(highlight=False, markup=False)
    for each in found:
        console.print(f"{each.trial.name}: {each.trial.question}", style="bold")
        for columns, rows in (
            (page.RULE_COLUMNS, map(page.rule_row, each.rules)),
            (page.REMEDY_COLUMNS, map(page.remedy_row, each.remedies)),
        ):
            table = Table(*columns, box=None, pad_edge=False)
            for row in rows:
                table.add_row(*row)
            if table.row_count:
                console.print(table)
        for line in each.failed:
            console.print(f"No result: {line}", soft_wrap=True)
        console.print()
    for line in page.summary(found):
        console.print(line, soft_wrap=True)


def _print_json(found: Sequence[TrialEvidence]) -> None:
    from grpodoctor.cli.pages import json_text
    from grpodoctor.trials.evidence_page import as_json

    print(json_text(as_json(found)))


def _print_markdown(found: Sequence[TrialEvidence]) -> None:
    from grpodoctor.trials.evidence_page import markdown

    print(markdown(found), end="")


_PRINT = {
    PageFormat.text: _print_text,
    PageFormat.json: _print_json,
    PageFormat.markdown: _print_markdown,
}
