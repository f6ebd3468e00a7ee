"""verl's `trainer.rollout_data_dir` and `trainer.validation_data_dir`: `<step>.jsonl`.

The user names both directories, and their files look the same. A directory whose name suggests
validation is skipped, since the policy is not trained on its responses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import HELDOUT, FilePart, Responses, last_number
from grpodoctor.frameworks.rollout_formats.jsonlines import json_format
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OWN = frozenset(
    ("input", "output", "gts", "score", "step", "uid", "request_id", "responses",
     "rollout_log_probs", "old_log_probs", "response_mask")
)  # fmt: skip
_CORRECT = ("acc", "is_correct", "correct")
"""Names that reward functions use for correctness, the preferred one first."""
_LOGPROBS = ("rollout_log_probs", "old_log_probs")
"""Names of the sampler's and the learner's log-probabilities in verl's batch, one list of the
generated tokens per response. verl does not write them by itself; users add them to the dump."""
_MASK = "response_mask"
"""Name of verl's mask of the generated tokens, without padding and results of tools."""
_MIN_PADDING = 2
_TOKENS = "responses"
"""Name of the generated token ids in verl's batch."""
_VALIDATION = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation)(?:$|[^a-z])")
"""Matches the name of a validation directory."""


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart) -> Responses:
    prompts, uids = columns.texts(rows, "input"), columns.values_of(rows, "uid")
    extra = columns.extra_numbers(rows, _OWN)
    correct = [columns.flags(extra[name]) for name in _CORRECT if name in extra]
    tokens, learner, sampler = _per_token(rows)
    return Responses(
        steps_B=columns.steps(rows, "step", part.step),
        # verl's ids, if every response has one.
        names=[str(uid)[:200] for uid in uids] if all(uids) else names,
        groups=list(map(_group, uids, prompts)) if any(uids) else prompts,
        prompts=prompts,
        texts=columns.texts(rows, "output"),
        references=columns.answers(rows, "gts"),
        rewards_B=columns.numbers(rows, "score"),
        components={name: values for name, values in extra.items() if name not in _CORRECT},
        correct_B=correct[0] if correct else None,
        tokens=tokens,
        learner=learner,
        sampler=sampler,
    )


def _per_token(
    rows: Sequence[dict[str, Any]],
) -> tuple[Ragged | None, Ragged | None, Ragged | None]:
    """Token ids, and both sides' log-probabilities, learner first; empty where one is missing."""
    sampler, learner = (columns.lists(rows, key) for key in _LOGPROBS)
    tokens, mask = (columns.lists(rows, key, np.int64) for key in (_TOKENS, _MASK))
    is_whole_B = (sampler.lengths_B == learner.lengths_B) & (sampler.lengths_B > 0)
    if not is_whole_B.any():
        return None, None, None
    have_ids = bool((tokens.lengths_B > 0).all()) and bool(
        (tokens.lengths_B == sampler.lengths_B)[is_whole_B].all()
    )
    sampler, learner = (_of_rows(each, is_whole_B) for each in (sampler, learner))
    padding = _padding(sampler, learner, tokens if have_ids else None)
    if mask.fits(sampler):
        padding |= mask.values_N == 0
    if padding.any():
        have_ids &= tokens.fits(sampler)
        sampler, learner = sampler.where(~padding), learner.where(~padding)
        tokens = tokens.where(~padding) if have_ids else tokens
    return tokens if have_ids else None, learner, sampler


def _of_rows(column: Ragged, chosen_B: NDArray[np.bool_]) -> Ragged:
    """A column that is empty in the rows that are not chosen."""
    return column.where(np.repeat(chosen_B, column.lengths_B))


def _padding(sampler: Ragged, learner: Ragged, tokens: Ragged | None) -> NDArray[np.bool_]:
    """The entries behind the end of a response, where verl's tensors hold zeros on both sides.

    One zero alone is a token of probability 1. Padding also repeats one token id.
    """
    is_padding = np.zeros(sampler.values_N.size, bool)
    zero_N = (sampler.values_N == 0) & (learner.values_N == 0)
    for row, (start, stop) in enumerate(pairwise(sampler.offsets_B.tolist())):
        if stop - start < _MIN_PADDING or not zero_N[stop - 1]:
            continue
        kept = zero_N[start:stop].copy()
        if tokens is not None and len(tokens.row(row)) == stop - start:
            kept &= tokens.row(row) == tokens.row(row)[-1]
        others = np.flatnonzero(~kept)
        first = start + (int(others[-1]) + 1 if others.size else 0)
        if stop - first >= _MIN_PADDING:
            is_padding[first:stop] = True
    return is_padding


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
