"""ROLL's `rollout_dump_data.step_<N>.jsonl`, which RLVR writes with `rollout_dump_dir`.

A file is one line, with a list for each column. The responses are those of the training batch,
after the filter of prompts. The files of the agentic pipeline have columns that each environment
chooses, so they are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import FilePart, Responses, last_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format

_NAME = "rollout_dump_data.step_"


def _columns(
    rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart
) -> Responses | None:
    flat, ids = columns.flattened(rows, names, _responses)
    if not flat:
        return None
    prompts = columns.texts(flat, "prompt")
    return Responses(
        steps_B=columns.steps(flat, "global_step", part.step),
        names=ids,
        groups=[_prompt_id(row, prompt) for row, prompt in zip(flat, prompts, strict=True)],
        prompts=prompts,
        texts=columns.texts(flat, "responses"),
        rewards_B=columns.numbers(flat, "scores"),
    )


def _prompt_id(row: dict[str, Any], prompt: str) -> str:
    """The prompt's id in its data set; the text if it has none."""
    known = row.get("id")
    return f"{row.get('tag', '')}/{known}" if isinstance(known, str | int) else prompt


def _responses(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return columns.responses_in_lists(row, "responses")


def _step_of(path: Path) -> int | None:
    return last_number(path) if path.name.startswith(_NAME) else None


def _claims(path: Path, head: bytes) -> bool:
    """Judged by the name, since the first bytes of one long line may lack most columns."""
    is_named = path.name.startswith(_NAME) and path.suffix == ".jsonl"
    return is_named and head.lstrip().startswith(b"{")


FORMAT = json_format("ROLL rollouts", "roll", ("responses",), _columns, _step_of, rank=40)._replace(
    claims=_claims
)
