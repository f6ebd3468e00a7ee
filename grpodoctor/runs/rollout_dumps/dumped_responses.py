"""Reading single responses of a dump again, to show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from grpodoctor.errors import GrpodoctorError
from grpodoctor.frameworks.rollout_formats.base import Column, DamageLog, Responses
from grpodoctor.frameworks.rollout_formats.columns import clean
from grpodoctor.frameworks.rollout_formats.registry import dump_format_named
from grpodoctor.measure.ragged import gap_figures
from grpodoctor.measure.response_table import ResponseTable
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import Max

MAX_SHARDS = 16
"""Shards of a step that are read again: a quarter of a gigabyte."""
MAX_TEXT = 100_000
"""Characters of a prompt or of a response that are returned."""

ResponseRecord = dict[str, Any]


class _Location(NamedTuple):
    """A shard with responses of a step, and the ids of its most extreme responses."""

    shard: Shard
    maxima: frozenset[str]


class DumpedResponses:
    """Remembers where the responses of each step are, and reads them again on request."""

    def __init__(self) -> None:
        self._locations: defaultdict[int, list[_Location]] = defaultdict(list)
        self._shards: dict[Shard, None] = {}

    def note(self, shard: Shard, table: ResponseTable) -> None:
        """Remember the steps whose responses a shard holds."""
        if len(table):
            self._shards[shard] = None
        for step in np.unique(table.columns["step"]).tolist() if len(table) else ():
            maxima = table.maxima.get(step, {}).values()
            ids = frozenset(str(value.where) for value in maxima if isinstance(value, Max))
            pieces = tuple(piece for piece in shard.pieces if piece.step in (None, step))
            self._locations[step].append(_Location(shard._replace(pieces=pieces), ids))

    def forget(self, step: int) -> None:
        """Forget the responses of a step: the policy was not trained on them."""
        self._locations.pop(step, None)

    @property
    def steps(self) -> Collection[int]:
        """Steps with responses."""
        return self._locations.keys()

    def shards(self) -> list[Shard]:
        """The shards with responses, in the order in which they were read."""
        return list(self._shards)

    def rows(self, step: int, wanted: Collection[str] = ()) -> Iterator[ResponseRecord]:
        """Yield the responses of a step that have a text, in bounded memory and time.

        Args:
            step: step of the run.
            wanted: ids of the most important responses; if not all shards are read, theirs are.

        Yields:
            `sequence_id`, `prompt`, `text`, `reward`, `correct`, `truncated`, `length` and
            `logprob_diff_max`; unknown values are None. Nothing if a file is gone.
        """
        ids = frozenset(wanted)
        locations = sorted(self._locations.get(step, []), key=lambda each: not each.maxima & ids)
        for location in locations[:MAX_SHARDS]:
            try:
                yield from _records_of(location.shard, step)
            except (GrpodoctorError, OSError, ValueError, ArithmeticError, LookupError):
                continue  # the file was removed or replaced since it was read


def _records_of(shard: Shard, step: int) -> Iterator[ResponseRecord]:
    read = dump_format_named(shard.format).read
    for piece in shard.pieces:
        for responses in read(piece, DamageLog()):
            yield from _records_in(responses, step)


def _records_in(responses: Responses, step: int) -> Iterator[ResponseRecord]:
    texts, prompts = responses.texts, responses.prompts
    if texts is None:
        return
    columns = _columns(responses)
    for row in np.flatnonzero(responses.steps_B == step).tolist():
        if not texts[row]:
            continue
        yield {
            "sequence_id": responses.names[row],
            "prompt": clean(prompts[row][:MAX_TEXT]) if prompts else "",
            "text": clean(texts[row][:MAX_TEXT]),
            **{name: _known(values_B, row) for name, values_B in columns.items()},
        }


def _columns(responses: Responses) -> dict[str, Column | None]:
    lengths_B = responses.lengths_B
    if responses.tokens is not None:
        lengths_B = responses.tokens.lengths_B.astype(np.float64)
    diffs_B = None
    if responses.learner is not None and responses.sampler is not None:
        gaps = gap_figures(responses.learner, responses.sampler)
        diffs_B = np.where(gaps["gap/tokens"] > 0, gaps["gap/logprob_diff_max"], np.nan)
    return {
        "reward": responses.rewards_B,
        "correct": responses.correct_B,
        "truncated": responses.truncated_B,
        "length": lengths_B,
        "logprob_diff_max": diffs_B,
    }


def _known(values_B: Column | None, row: int) -> float | None:
    return None if values_B is None or np.isnan(values_B[row]) else float(values_B[row])
