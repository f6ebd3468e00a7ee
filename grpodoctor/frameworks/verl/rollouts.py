"""verl's `trainer.rollout_data_dir` and `trainer.validation_data_dir`: `<step>.jsonl`.

Both directories are named by the user and hold files alike. What is called after a validation is
taken for one; such responses say nothing of what the policy is trained on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats.base import HELDOUT, Piece, Responses, last_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format

_OWN = frozenset(("input", "output", "gts", "score", "step", "uid", "request_id"))
_CORRECT = ("acc", "is_correct", "correct")
"""What reward functions call it."""
_VALIDATION = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation)(?:$|[^a-z])")
"""In the name of a directory of `validation_data_dir`."""


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], piece: Piece) -> Responses:
    prompts, uids = of.texts(rows, "input"), of.pick(rows, "uid")
    beside = of.numbers_beside(rows, _OWN)
    said = [of.flags(beside[name]) for name in _CORRECT if name in beside]
    return Responses(
        steps_B=of.steps(rows, "step", piece.step),
        # verl's own ids, where every response has one.
        names=[str(each)[:200] for each in uids] if all(uids) else names,
        groups=list(map(_group, uids, prompts)) if any(uids) else prompts,
        prompts=prompts,
        texts=of.texts(rows, "output"),
        rewards_B=of.optional(rows, "score"),
        components={name: values for name, values in beside.items() if name not in _CORRECT},
        correct_B=said[0] if said else None,
    )


def _group(uid: object, prompt: str) -> str:
    """The sample of `<sample>_<rollout>_<output>`; before verl had that, the prompt."""
    return uid.rsplit("_", 2)[0] if isinstance(uid, str) and uid.count("_") >= 2 else prompt


def _step_of(path: Path) -> int | None:
    return last_number(path) if path.stem.isdigit() else None


def _passed_over(path: Path) -> str:
    return HELDOUT if _VALIDATION.search(path.parent.name.lower()) else ""


FORMAT = json_format(
    "verl rollouts", "verl", ("input", "output", "score"), _columns, _step_of
)._replace(passed_over=_passed_over)
