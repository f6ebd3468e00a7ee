"""What single responses of a dump say, for those who want to read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from grpodoctor.errors import GrpodoctorError
from grpodoctor.frameworks.rollout_formats.base import Column, DamageLog, Responses
from grpodoctor.frameworks.rollout_formats.columns import clean
from grpodoctor.frameworks.rollout_formats.registry import dump_format_named
from grpodoctor.measure.ragged import gap_figures
from grpodoctor.measure.response_table import Digest
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.vocabulary.values import Max

MOST_SHARDS = 16
"""Of a step that are read again for its texts: a quarter of a gigabyte."""
LONGEST_TEXT = 100_000
"""Characters of a prompt or of a text that are given."""

ResponseRecord = dict[str, Any]


class _Place(NamedTuple):
    """A shard with responses of a step, and those of them that are the largest in something."""

    shard: Shard
    extremes: frozenset[str]


class DumpedResponses:
    """Where the responses of each step stand, and what they say; read again when asked for."""

    def __init__(self) -> None:
        self._places: defaultdict[int, list[_Place]] = defaultdict(list)

    def note(self, shard: Shard, digest: Digest) -> None:
        """Remember which steps a shard holds responses of."""
        for step in np.unique(digest.columns["step"]).tolist() if len(digest) else ():
            largest = digest.extremes.get(step, {}).values()
            names = frozenset(str(each.where) for each in largest if isinstance(each, Max))
            own = tuple(piece for piece in shard.pieces if piece.step in (None, step))
            self._places[step].append(_Place(shard._replace(pieces=own), names))

    @property
    def steps(self) -> Collection[int]:
        """Those that have any."""
        return self._places.keys()

    def rows(self, step: int, wanted: Collection[str] = ()) -> Iterator[ResponseRecord]:
        """The responses of a step that have a text, in bounded memory and time.

        Args:
            step: of the run.
            wanted: ids that matter most: where not all shards are read, theirs come first.

        Returns:
            `sequence_id`, `prompt`, `text`, `reward`, `correct`, `truncated`, `length` and
            `logprob_diff_max`; what is not known is None. Empty where a file is gone by now.
        """
        names = frozenset(wanted)
        places = sorted(self._places.get(step, []), key=lambda each: not each.extremes & names)
        for place in places[:MOST_SHARDS]:
            try:
                yield from _rows_of(place.shard, step)
            except (GrpodoctorError, OSError, ValueError, ArithmeticError, LookupError):
                continue  # it was read once, and is gone or another file by now


def _rows_of(shard: Shard, step: int) -> Iterator[ResponseRecord]:
    read = dump_format_named(shard.format).read
    for piece in shard.pieces:
        for responses in read(piece, DamageLog()):
            yield from _rows_in(responses, step)


def _rows_in(responses: Responses, step: int) -> Iterator[ResponseRecord]:
    texts, prompts = responses.texts, responses.prompts
    if texts is None:
        return
    columns = _figures(responses)
    for row in np.flatnonzero(responses.steps_B == step).tolist():
        if not texts[row]:
            continue
        yield {
            "sequence_id": responses.names[row],
            "prompt": clean(prompts[row][:LONGEST_TEXT]) if prompts else "",
            "text": clean(texts[row][:LONGEST_TEXT]),
            **{name: _known(values, row) for name, values in columns.items()},
        }


def _figures(responses: Responses) -> dict[str, Column | None]:
    lengths = responses.lengths_B
    if responses.tokens is not None:
        lengths = responses.tokens.lengths_B.astype(np.float64)
    gaps = None
    if responses.learner is not None and responses.sampler is not None:
        found = gap_figures(responses.learner, responses.sampler)
        gaps = np.where(found["gap/tokens"] > 0, found["gap/logprob_diff_max"], np.nan)
    return {
        "reward": responses.rewards_B,
        "correct": responses.correct_B,
        "truncated": responses.truncated_B,
        "length": lengths,
        "logprob_diff_max": gaps,
    }


def _known(values: Column | None, row: int) -> float | None:
    return None if values is None or np.isnan(values[row]) else float(values[row])
