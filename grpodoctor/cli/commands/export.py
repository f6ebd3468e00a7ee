"""`grpodoctor export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run_dir: Annotated[Path, typer.Argument(help="Run directory of the bundled trainer.")],
    target: Annotated[Path, typer.Argument(help="New directory for the model.")],
) -> None:
    """Export a trained model as a directory that any engine can load.

    The directory contains the model of the run's newest checkpoint, with adapters merged in, and
    its tokenizer; the built-in model has none. It works with from_pretrained, with vllm serve, and
    as model.name of another run.
    """
    from grpodoctor.cli.commands.train import require_torch

    require_torch()
    from grpodoctor.support.safe_text import plain
    from grpodoctor.trainer.model.export import export as write

    source = write(run_dir, target)
    print(f"exported {plain(source.name)} to {plain(str(target))}")
    if not list(target.glob("*token*")):
        print(
            "the built-in model has no tokenizer: pass prompts to probe as token ids "
            "(--prompts FILE with prompt_token_ids)"
        )
