"""verl's `trainer.rollout_data_dir` and `trainer.validation_data_dir`: `<step>.jsonl`.

The user names both directories, and their files look the same. A directory whose name suggests
validation is skipped, since the policy is not trained on its responses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import HELDOUT, FilePart, Responses, last_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.support.arrays import np

_OWN = frozenset(
    ("input", "output", "gts", "score", "step", "uid", "request_id", "responses",
     "rollout_log_probs", "old_log_probs")
)  # fmt: skip
_CORRECT = ("acc", "is_correct", "correct")
"""Names that reward functions use for correctness, the preferred one first."""
_LOGPROBS = ("rollout_log_probs", "old_log_probs")
"""Names of the sampler's and the learner's log-probabilities in verl's batch, one list of the
generated tokens per response. verl does not write them by itself; users add them to the dump."""
_TOKENS = "responses"
"""Name of the generated token ids in verl's batch."""
_VALIDATION = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation)(?:$|[^a-z])")
"""Matches the name of a validation directory."""


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart) -> Responses:
    prompts, uids = columns.texts(rows, "input"), columns.values_of(rows, "uid")
    extra = columns.extra_numbers(rows, _OWN)
    correct = [columns.flags(extra[name]) for name in _CORRECT if name in extra]
    sampler, learner = (columns.lists(rows, key) for key in _LOGPROBS)
    both = sampler.fits(learner) and columns.has_values(sampler) and columns.has_values(learner)
    tokens = columns.lists(rows, _TOKENS, np.int64)
    return Responses(
        steps_B=columns.steps(rows, "step", part.step),
        # verl's ids, if every response has one.
        names=[str(uid)[:200] for uid in uids] if all(uids) else names,
        groups=list(map(_group, uids, prompts)) if any(uids) else prompts,
        prompts=prompts,
        texts=columns.texts(rows, "output"),
        rewards_B=columns.numbers(rows, "score"),
        components={name: values for name, values in extra.items() if name not in _CORRECT},
        correct_B=correct[0] if correct else None,
        tokens=tokens if both and tokens.fits(sampler) else None,
        learner=learner if both else None,
        sampler=sampler if both else None,
    )


def _group(uid: object, prompt: str) -> str:
    """The sample in `<sample>_<rollout>_<output>`; the prompt in logs of older versions."""
    return uid.rsplit("_", 2)[0] if isinstance(uid, str) and uid.count("_") >= 2 else prompt


def _step_of(path: Path) -> int | None:
    return last_number(path) if path.stem.isdigit() else None


def _skip_reason(path: Path) -> str:
    return HELDOUT if _VALIDATION.search(path.parent.name.lower()) else ""


FORMAT = json_format(
    "verl rollouts", "verl", ("input", "output", "score"), _columns, _step_of
)._replace(skip_reason=_skip_reason)
