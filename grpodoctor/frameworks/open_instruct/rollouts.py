"""open-instruct's traces: `<run>_rollouts_<shard>.jsonl`, written with `save_traces`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import Column, FilePart, Responses
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.measure.ragged import fingerprints
from grpodoctor.support.arrays import np


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart) -> Responses:
    """Read the columns. Log-probabilities are left out: the dump has only the sampler's."""
    groups = [str(row.get("prompt_idx", ""))[:200] for row in rows]
    prompts = columns.lists(rows, "prompt_tokens", np.int64)
    return Responses(
        steps_B=columns.steps(rows, "step", part.step),
        names=[
            f"{row['step']}/{row['sample_idx']}" if "sample_idx" in row and "step" in row else name
            for row, name in zip(rows, names, strict=True)
        ],
        groups=groups,
        # `prompt_idx` counts within a step and does not identify a prompt across steps.
        prompts=[f"prompt {fingerprint:016x}" for fingerprint in fingerprints(prompts).tolist()],
        tokens=columns.lists(rows, "response_tokens", np.int64),
        rewards_B=columns.numbers(rows, "reward"),
        advantages_B=columns.numbers(rows, "advantage"),
        truncated_B=_truncated(rows),
    )


def _truncated(rows: Sequence[dict[str, Any]]) -> Column | None:
    reasons = columns.values_of(rows, "finish_reason")
    return columns.if_known(
        np.array([float(why == "length") if isinstance(why, str) else np.nan for why in reasons])
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
