"""One rank's part of a step, and the readings of the whole step from the parts of all ranks.

Most readings merge exactly. Those that compare responses with each other (groups, spreads,
effective sample size) are computed from a row of figures per response, because a group may be
spread over several ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from io import BytesIO
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from grpodoctor.frameworks.rollout_formats.base import Responses
from grpodoctor.measure.batch import Floats, RolloutBatch
from grpodoctor.measure.groups import (
    EXPECTED_DUPLICATES,
    PROMPT_HASH,
    REPEATED_PROMPTS,
    UNCENTRED_RATE,
    prompt_hashes,
    response_logprobs,
)
from grpodoctor.measure.ragged import Ragged
from grpodoctor.measure.response_table import ResponseTable, join_tables, table_readings
from grpodoctor.measure.step import StepBatch, step_readings
from grpodoctor.runs.rollout_dumps.summarize import table_of
from grpodoctor.runs.rollout_dumps.text_subsample import TextSubsample
from grpodoctor.vocabulary.values import (
    Mean,
    Reading,
    merge_all,
    reading_from_json,
    reading_to_json,
)

_OF_ALL_RESPONSES = re.compile(
    r"groups/.*|reward/.*std|length/group_gap|advantage/bound_excess|mismatch/(ess|pearson)"
)
"""Readings that cannot be merged from those of the ranks."""
_LOSS_TOKENS = "optimizer/loss_tokens"
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class RankPart:
    """What one rank contributes to the record of a step."""

    measured: dict[str, Reading] = field(default_factory=dict)
    """Readings of this rank's responses and updates."""
    own: dict[str, Reading] = field(default_factory=dict)
    """Readings from the trainer, which take precedence."""
    table: ResponseTable | None = None
    """A row of figures for each of this rank's responses; None without responses."""

    def to_bytes(self) -> bytes:
        """The part as JSON and numpy columns."""
        head = orjson.dumps({"measured": _to_json(self.measured), "own": _to_json(self.own)})
        columns = BytesIO()
        if self.table is not None:
            np.savez_compressed(columns, **_numbered(self.table.columns))
            names = orjson.dumps(list(self.table.columns))
        else:
            names = b"null"
        parts = (head, names, columns.getvalue())
        return b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> RankPart:
        """Inverse of `to_bytes`; nothing in the data is executed.

        Raises:
            ValueError: if the data is damaged.
        """
        parts = []
        while data:
            end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
            parts.append(data[_LENGTH_BYTES:end])
            data = data[end:]
        head, names, columns = orjson.loads(parts[0]), orjson.loads(parts[1]), parts[2]
        table = None
        if names is not None:
            with np.load(BytesIO(columns), allow_pickle=False) as arrays:
                table = ResponseTable({name: arrays[str(i)] for i, name in enumerate(names)})
        return cls(_from_json(head["measured"]), _from_json(head["own"]), table)


def _numbered(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Any]:
    """The columns by number: a component's name may not be a file name."""
    return {str(number): column for number, column in enumerate(columns.values())}


def _to_json(readings: Mapping[str, Reading]) -> dict[str, Any]:
    return {name: _reading_to_json(reading) for name, reading in readings.items()}


def _from_json(data: Mapping[str, Any]) -> dict[str, Reading]:
    return {name: _reading_from_json(each) for name, each in data.items()}


def _reading_to_json(reading: Reading) -> Any:
    """A mean keeps its exact total, so that the order of the ranks does not matter."""
    if not isinstance(reading, Mean):
        return reading_to_json(reading)
    total = Fraction(reading.total)
    exact = [str(total.numerator), str(total.denominator)]
    return {"exact": [*exact, reading.count, reading.nonfinite]}


def _reading_from_json(data: Any) -> Reading:
    if not (isinstance(data, dict) and "exact" in data):
        return reading_from_json(data)
    numerator, denominator, count, nonfinite = map(int, data["exact"])
    return Mean(Fraction(numerator, denominator), count, nonfinite)


def part_of(measured: StepBatch | Mapping[str, Reading], rank: int) -> RankPart:
    """Measure one rank's part of a step."""
    if not isinstance(measured, StepBatch):
        return RankPart(own=dict(measured))
    own = dict(measured.readings)
    readings = {
        name: reading for name, reading in step_readings(measured).items() if name not in own
    }
    return RankPart(readings, own, _table(measured.rollouts, rank))


def merge_parts(parts: Sequence[RankPart]) -> dict[str, Reading]:
    """The readings of a step from the parts of its ranks."""
    measured: dict[str, Reading] = reduce(merge_all, (part.measured for part in parts), {})
    _add_up_loss_tokens(measured, sum(_LOSS_TOKENS in part.measured for part in parts))
    own: dict[str, Reading] = reduce(merge_all, (part.own for part in parts), {})
    tables = [part.table for part in parts if part.table is not None]
    if tables:
        of_all = table_readings(join_tables(tables))
        for name in measured.keys() & of_all.keys():
            if _OF_ALL_RESPONSES.fullmatch(name):
                measured[name] = of_all[name]
        if len(tables) > 1:  # a rank's own part of the groups shows none of these
            for name in {EXPECTED_DUPLICATES, UNCENTRED_RATE, REPEATED_PROMPTS} - of_all.keys():
                measured.pop(name, None)
    return {**measured, **own}


def _add_up_loss_tokens(measured: dict[str, Reading], ranks: int) -> None:
    """An update has the loss tokens of all ranks: a mean over updates, not over ranks."""
    tokens = measured.get(_LOSS_TOKENS)
    if isinstance(tokens, Mean) and ranks and tokens.count % ranks == 0:
        measured[_LOSS_TOKENS] = Mean(tokens.total, tokens.count // ranks, tokens.nonfinite)


def _table(batch: RolloutBatch, rank: int) -> ResponseTable | None:
    """A row of figures per response, without its text and its tokens."""
    if not batch.sequence_ids:
        return None
    subsample = TextSubsample()
    table = table_of(_responses(batch, rank), subsample)
    return ResponseTable(table.columns | subsample.columns() | _of_whole_groups(batch))


def _of_whole_groups(batch: RolloutBatch) -> dict[str, NDArray[Any]]:
    """Columns for readings that need every response of a group, which the ranks share."""
    columns: dict[str, NDArray[Any]] = {}
    if (logprobs_B := response_logprobs(batch)) is not None:
        columns["logprob"] = logprobs_B
    if (prompts_B := prompt_hashes(batch)) is not None:
        # Unknown, if prompts are not the whole task: one such rank hides the prompts of all.
        columns[PROMPT_HASH] = prompts_B if batch.prompts_are_whole else np.zeros_like(prompts_B)
    if batch.advantages_BT is None and batch.advantages_B is not None:
        columns["in_loss"] = (batch.loss_tokens_BT.sum(axis=1) > 0).astype(np.float64)
    return columns


def _responses(batch: RolloutBatch, rank: int) -> Responses:
    count = len(batch.sequence_ids)
    return Responses(
        steps_B=np.full(count, batch.step, np.int64),
        names=batch.sequence_ids,
        groups=[str(group) for group in batch.group_ids_B.tolist()],
        ranks_B=np.full(count, rank, np.int64),
        prompts=batch.prompts,
        texts=batch.texts,
        tokens=_ragged(batch, batch.tokens_BT),
        rewards_B=_column(batch.rewards_B),
        components={name: _column(each) for name, each in batch.components.items()},
        correct_B=None if batch.correct_B is None else _column(batch.correct_B),
        truncated_B=None if batch.truncated_B is None else _column(batch.truncated_B),
        advantages_B=None if batch.advantages_B is None else _column(batch.advantages_B),
        staleness_B=None if batch.staleness_B is None else _column(batch.staleness_B),
        learner=_ragged_if(batch, batch.learner_logprobs_BT),
        sampler=_ragged_if(batch, batch.sampler_logprobs_BT),
        entropies=_ragged_if(batch, batch.entropy_BT),
    )


def _column(values_B: NDArray[Any]) -> NDArray[np.float64]:
    """As doubles; NaN would mean "unknown" in a table."""
    column = np.asarray(values_B, np.float64)
    return np.where(np.isfinite(column), column, np.inf)


def _ragged(batch: RolloutBatch, values_BT: NDArray[Any]) -> Ragged:
    return Ragged.of_lengths(values_BT[batch.mask_BT], batch.lengths_B.astype(np.int64))


def _ragged_if(batch: RolloutBatch, values_BT: Floats | None) -> Ragged | None:
    return None if values_BT is None else _ragged(batch, values_BT)
