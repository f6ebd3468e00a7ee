"""The stage of a curriculum that a column of the log names, such as `difficulty`: `easy`, `hard`.

A rule sees it as the metric `prompts/stage`: another number is another stage.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.vocabulary.values import Mean, Reading

_NAMES = frozenset(
    {"difficulty", "difficulty_level", "task_difficulty", "current_difficulty", "env_difficulty",
     "curriculum", "curriculum_stage", "curriculum_level", "curriculum_phase", "stage",
     "stage_name", "train_stage", "training_stage", "phase", "phase_name", "training_phase",
     "task", "task_name", "task_id", "current_task", "env_name", "dataset", "dataset_name", "tier"}
)  # fmt: skip
"""Columns that name the stage."""

STAGE = "prompts/stage"

_MOST_STAGES = 64
"""Different texts above which a column does not name stages."""


class StageColumn:
    """Numbers the stages of one log in the order in which they appear."""

    def __init__(self) -> None:
        self._stages: dict[str, dict[str, int]] = {}
        """By column."""

    def readings(self, row: LogRow) -> Mapping[str, Reading]:
        """The stage of a row; nothing without a column that names it.

        A number counts if it is whole: the mean difficulty of a batch is no stage.
        """
        if _NAMES.isdisjoint(row.texts) and _NAMES.isdisjoint(row.values):
            return {}  # nearly every row
        for column in sorted(_NAMES & (row.texts.keys() | row.values.keys())):
            number = self._number(column, row)
            if number is not None:
                return {STAGE: Mean.of_number(number)}
        return {}

    def _number(self, column: str, row: LogRow) -> float | None:
        number = row.values.get(column)
        if number is not None:
            return number if number.is_integer() else None
        stages = self._stages.setdefault(column, {})
        text = row.texts[column].strip()
        if not text or (text not in stages and len(stages) >= _MOST_STAGES):
            return None
        return float(stages.setdefault(text, len(stages)))
