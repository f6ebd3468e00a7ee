"""`grpodoctor trial NAME`: train one trial and print what it shows."""

from __future__ import annotations

from typing import Annotated

import typer

from grpodoctor.cli.commands.trials import (
    Directory,
    FirstSeed,
    Format,
    Jobs,
    RayAddress,
    Seeds,
    Steps,
    trials,
)
from grpodoctor.cli.options import PageFormat


def trial(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the trial; trials --list prints all.")],
    seeds: Seeds = None,
    first_seed: FirstSeed = None,
    steps: Steps = None,
    directory: Directory = None,
    jobs: Jobs = None,
    ray: RayAddress = None,
    output_format: Format = PageFormat.text,
) -> None:
    """Train one trial: diseased, treated and healthy runs from the same seeds.

    `grpodoctor trials` trains all of them.
    """
    trials(
        context,
        [name],
        seeds=seeds,
        first_seed=first_seed,
        steps=steps,
        directory=directory,
        jobs=jobs,
        ray=ray,
        output_format=output_format,
    )
