"""`grpodoctor trial NAME`: train one trial and print what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpodoctor.cli.commands.trials import Directory, Format, Jobs, RayAddress, Seeds, Steps, trials
from grpodoctor.cli.options import PageFormat


def trial(
    name: Annotated[str, typer.Argument(help="Name of the trial; trials --list prints all.")],
    seeds: Seeds = None,
    steps: Steps = None,
    directory: Directory = Path("trials"),
    jobs: Jobs = None,
    ray: RayAddress = None,
    output_format: Format = PageFormat.text,
) -> None:
    """Train one trial: diseased, treated and healthy runs from the same seeds.

    `grpodoctor trials` trains all of them.
    """
    trials(
        [name],
        seeds=seeds,
        steps=steps,
        directory=directory,
        jobs=jobs,
        ray=ray,
        output_format=output_format,
    )
