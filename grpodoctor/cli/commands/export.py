"""`grpodoctor export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run_dir: Annotated[Path, typer.Argument(help="A run of the bundled trainer.")],
    target: Annotated[Path, typer.Argument(help="A new directory for the model.")],
) -> None:
    """Export a trained model as a directory that any engine loads.

    It is the model of the run's newest checkpoint, adapters merged, with its tokenizer: it loads by
    from_pretrained, in vllm serve, and as model.name of another run.
    """
    from grpodoctor.cli.commands.train import require_torch

    require_torch()
    from grpodoctor.support.safe_text import plain
    from grpodoctor.trainer.model.export import export as write

    source = write(run_dir, target)
    print(f"{plain(str(target))}: the model of {plain(source.name)}")
