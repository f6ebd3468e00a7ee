"""open-instruct's traces: `<run>_rollouts_<shard>.jsonl`, written with `save_traces`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats.base import Column, Piece, Responses
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.measure.ragged import fingerprints


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece) -> Responses:
    """The log-probabilities are the sampler's alone: nothing to compare them with."""
    groups = [str(row.get("prompt_idx", ""))[:200] for row in rows]
    asked = of.ragged(of.pick(rows, "prompt_tokens"), np.int64)
    return Responses(
        steps_B=of.steps(rows, "step", piece.step),
        names=[
            f"{row['step']}/{row['sample_idx']}" if "sample_idx" in row and "step" in row else name
            for row, name in zip(rows, names, strict=True)
        ],
        groups=groups,
        # The index counts the prompts of one step: it names none across steps.
        prompts=[f"prompt {each:016x}" for each in fingerprints(asked).tolist()],
        tokens=of.ragged(of.pick(rows, "response_tokens"), np.int64),
        rewards_B=of.optional(rows, "reward"),
        advantages_B=of.optional(rows, "advantage"),
        truncated_B=_truncated(rows),
    )


def _truncated(rows: Sequence[dict[str, Any]]) -> Column | None:
    said = of.pick(rows, "finish_reason")
    return of.known(
        np.array([float(each == "length") if isinstance(each, str) else np.nan for each in said])
    )


def _step_of(path: Path) -> int | None:
    del path
    return None


FORMAT = json_format(
    "open-instruct traces",
    "open-instruct",
    ("step", "sample_idx", "prompt_idx", "response_tokens"),
    _columns,
    _step_of,
)
