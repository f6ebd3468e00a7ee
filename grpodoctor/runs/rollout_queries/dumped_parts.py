"""The responses in the rollout dumps of a framework, read again shard by shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpodoctor.errors import GrpodoctorError, RunError
from grpodoctor.frameworks.rollout_formats.base import Column, DamageLog, Responses
from grpodoctor.frameworks.rollout_formats.columns import clean
from grpodoctor.frameworks.rollout_formats.registry import dump_format_named
from grpodoctor.measure.ragged import Ragged, gap_figures
from grpodoctor.runs.rollout_dumps.dumped_responses import MAX_TEXT, DumpedResponses
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_queries.figures import NUMBERS, Rollout, figures_schema
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_UNREADABLE = (GrpodoctorError, OSError, ValueError, ArithmeticError, LookupError)
"""Errors of a file that was removed or replaced since it was read."""


class DumpedParts:
    """The shards of a run's rollout dumps."""

    def __init__(self, responses: DumpedResponses) -> None:
        self._responses = responses

    def keys(self) -> list[Shard]:
        """The shards that were read so far."""
        return self._responses.shards()

    def figures(self, key: Shard) -> pa.Table:
        """The figures of all responses of a shard.

        Raises:
            RunError: if the shard cannot be read.
        """
        import pyarrow as pa

        schema = figures_schema()
        try:
            tables = [_figures(responses, schema) for responses in _read(key)]
        except _UNREADABLE as error:
            raise RunError(f"a rollout dump cannot be read: {error}", where=key.name) from error
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def rows_with_text(self, key: Shard, text: str) -> set[int]:
        """The rows whose prompt or response contains a text, in any case."""
        found: set[int] = set()
        wanted, first = text.casefold(), 0
        try:
            for responses in _read(key):
                for texts in (responses.prompts, responses.texts):
                    hits = (
                        row for row, each in enumerate(texts or ()) if wanted in each.casefold()
                    )
                    found.update(first + row for row in hits)
                first += len(responses)
        except _UNREADABLE:
            return found
        return found

    def rollouts(
        self, key: Shard, rows: Sequence[int], *, with_tokens: bool
    ) -> Mapping[int, Rollout]:
        """Some responses in full, by row."""
        found: dict[int, Rollout] = {}
        first = 0
        try:
            for responses in _read(key):
                here = [row - first for row in rows if first <= row < first + len(responses)]
                if here:
                    figures = _figures(responses, figures_schema()).take(here).to_pylist()
                    found |= {
                        first + row: figure | _texts(responses, row, with_tokens=with_tokens)
                        for row, figure in zip(here, figures, strict=True)
                    }
                first += len(responses)
        except _UNREADABLE:
            return found
        return found


def _read(shard: Shard) -> Iterator[Responses]:
    read = dump_format_named(shard.format).read
    for piece in shard.pieces:
        yield from read(piece, DamageLog())


def _figures(responses: Responses, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, Any] = {
        "step": responses.steps_B,
        "sequence_id": [clean(str(name)) for name in responses.names],
        "group_id": responses.groups,
        **_numbers(responses),
        "correct": responses.correct_B,
        "truncated": responses.truncated_B,
    }
    arrays = [
        _array(columns[name], schema.field(name).type, len(responses)) for name in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    import pyarrow as pa

    if values is None:
        return pa.nulls(count, kind)
    if pa.types.is_boolean(kind):
        values_B = np.asarray(values, np.float64)
        return pa.array(values_B > 0.5, kind, mask=np.isnan(values_B))
    if pa.types.is_floating(kind):
        return pa.array(np.asarray(values, np.float64), kind, from_pandas=True)
    return pa.array(values, kind)


def _numbers(responses: Responses) -> dict[str, Column | None]:
    lengths_B = responses.lengths_B
    if responses.tokens is not None:
        lengths_B = responses.tokens.lengths_B.astype(np.float64)
    known: dict[str, Column | None] = {
        "reward": responses.rewards_B,
        "length": lengths_B,
        "advantage": responses.advantages_B,
        "staleness": responses.staleness_B,
        "entropy_mean": _means(responses.entropies),
        **_gaps(responses),
    }
    return {name: known.get(name) for name in NUMBERS}


def _gaps(responses: Responses) -> dict[str, NDArray[np.float64]]:
    if responses.learner is None or responses.sampler is None:
        return {}
    gaps = gap_figures(responses.learner, responses.sampler)
    tokens_B = gaps["gap/tokens"]
    with np.errstate(invalid="ignore", divide="ignore"):
        figures = {
            "prob_diff_mean": gaps["gap/prob_diff"] / tokens_B,
            "prob_diff_max": gaps["gap/prob_diff_max"],
            "logprob_diff_mean": gaps["gap/logprob_diff"] / tokens_B,
            "logprob_diff_max": gaps["gap/logprob_diff_max"],
        }
    return {name: np.where(tokens_B > 0, values_B, np.nan) for name, values_B in figures.items()}


def _means(values: Ragged | None) -> NDArray[np.float64] | None:
    """The mean of each response; NaN for an empty one."""
    if values is None:
        return None
    rows = [values.row(row) for row in range(len(values))]
    return np.array([row.mean() if row.size else np.nan for row in rows], np.float64)


def _texts(responses: Responses, row: int, *, with_tokens: bool) -> Rollout:
    """Texts of a response, and its per-token columns if they are needed."""
    texts = {"prompt": responses.prompts, "text": responses.texts}
    tokens = {
        "token_ids": responses.tokens,
        "learner_logprobs": responses.learner,
        "sampler_logprobs": responses.sampler,
        "entropies": responses.entropies,
    }
    return {
        **{name: clean(all_[row][:MAX_TEXT]) if all_ else None for name, all_ in texts.items()},
        "reference": None,
        "components": {name: float(all_B[row]) for name, all_B in responses.components.items()},
        **{
            name: None if all_ is None or not with_tokens else all_.row(row).tolist()
            for name, all_ in tokens.items()
        },
    }
