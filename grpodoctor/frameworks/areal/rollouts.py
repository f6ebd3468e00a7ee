"""AReaL's `rollout/<version>/<task>.jsonl`, written with `rollout.dump_to_file`.

The version is the latest one of the weights that sampled a response. It is the response's step in a
synchronous run, and an earlier step otherwise. `head_version` belongs to the prompt and is always
-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import HELDOUT, FilePart, Responses
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.support.arrays import np


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart) -> Responses:
    prompts = columns.texts(rows, "prompt")
    total, prompt = (
        columns.floats(columns.values_of(rows, key)) for key in ("seqlen", "prompt_len")
    )
    with np.errstate(invalid="ignore"):
        lengths = total - prompt
    return Responses(
        steps_B=columns.steps(rows, "tail_version", part.step)
        if part.step is None
        else np.full(len(rows), part.step, np.int64),
        names=[
            f"{row.get('task_id', name)}/{row.get('sample_idx', '')}"[:200]
            for row, name in zip(rows, names, strict=True)
        ],
        groups=[str(row.get("task_id", prompt)) for row, prompt in zip(rows, prompts, strict=True)],
        prompts=prompts,
        texts=columns.texts(rows, "completion"),
        rewards_B=columns.numbers(rows, "reward"),
        lengths_B=columns.if_known(np.where(lengths >= 0, lengths, np.nan)),
    )


def _step_of(path: Path) -> int | None:
    return int(path.parent.name) if path.parent.name.isdigit() else None


FORMAT = json_format(
    "AReaL rollouts", "areal", ("task_id", "sample_idx", "seqlen", "prompt_len"), _columns, _step_of
)._replace(skip_reason=lambda path: HELDOUT if "eval-rollout" in path.parts else "")
