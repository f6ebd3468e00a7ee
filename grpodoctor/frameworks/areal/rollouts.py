"""AReaL's `rollout/<version>/<task>.jsonl`, written with `rollout.dump_to_file`.

The version is the latest of the weights that sampled a response: the step that it was sampled for
while a run is synchronous, an earlier one where it is not. `head_version` is a prompt's: always -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats.base import HELDOUT, Piece, Responses
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece) -> Responses:
    prompts = of.texts(rows, "prompt")
    with np.errstate(invalid="ignore"):
        lengths = of.floats(of.pick(rows, "seqlen")) - of.floats(of.pick(rows, "prompt_len"))
    return Responses(
        steps_B=of.steps(rows, "tail_version", piece.step)
        if piece.step is None
        else np.full(len(rows), piece.step, np.int64),
        names=[
            f"{row.get('task_id', name)}/{row.get('sample_idx', '')}"[:200]
            for row, name in zip(rows, names, strict=True)
        ],
        groups=[str(row.get("task_id", prompt)) for row, prompt in zip(rows, prompts, strict=True)],
        prompts=prompts,
        texts=of.texts(rows, "completion"),
        rewards_B=of.optional(rows, "reward"),
        lengths_B=of.known(np.where(lengths >= 0, lengths, np.nan)),
    )


def _step_of(path: Path) -> int | None:
    return int(path.parent.name) if path.parent.name.isdigit() else None


FORMAT = json_format(
    "AReaL rollouts",
    "areal",
    ("task_id", "sample_idx", "seqlen", "prompt_len"),
    _columns,
    _step_of,
)._replace(passed_over=lambda path: HELDOUT if "eval-rollout" in path.parts else "")
