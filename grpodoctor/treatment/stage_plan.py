"""Stages of a treatment: the length of their blocks, their requests and their journal lines."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator

from grpodoctor.remedies.base import Remedy
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event
from grpodoctor.runs.series import WINDOW
from grpodoctor.treatment.assessment import LOOKS
from grpodoctor.treatment.requests import Request
from grpodoctor.treatment.switchback import BLOCKS, Stage, orders
from grpodoctor.treatment.treatments import Treatment

_RECENT = 10
"""Readings that show how often a metric is logged."""

_PAUSE = 8
"""Steps between two stages for which the window has room."""

_MOST_STEP = 2**53


def block_steps_of(chart: Chart, remedy: Remedy, fewest: int) -> int | None:
    """Steps of a block: at least one reading of a target in each; None if the blocks get too long.

    Args:
        chart: the run so far.
        remedy: the remedy whose targets are read.
        fewest: steps of a block if a target is logged at every step.
    """
    spacings = [
        spacing
        for target in remedy.targets
        if (spacing := _spacing(chart.series(target.metric).steps(_RECENT))) is not None
    ]
    if not spacings:
        return None
    steps = max(fewest, math.ceil(min(spacings)))
    return steps if steps * BLOCKS <= WINDOW else None


def _spacing(steps: list[int]) -> float | None:
    """Typical number of steps from one reading to the next; None with less than three readings."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    return statistics.median(gaps) if len(gaps) > 1 else None


def looks_of(block_steps: int) -> int:
    """The stages that fit into the window of a metric."""
    return max(1, min(LOOKS, WINDOW // (block_steps * BLOCKS + _PAUSE)))


def stage_requests(
    treatment: Treatment, stage: Stage, step: int, *, is_on: bool
) -> Iterator[Request]:
    """The requests that switch the treatment on and off, each to be applied at its own step.

    After the last block the treatment is off. If the observer disappears, the run therefore
    continues with its own settings.

    Args:
        treatment: the treatment, which is on before its first stage and off before later ones.
        stage: one of its stages.
        step: the run's latest step.
        is_on: whether the treatment is on at this step.
    """
    number = treatment.stages.index(stage)
    was_on, changes = number == 0, []
    for start, on in (*stage.block_starts(), (stage.end, False)):
        if on != was_on:
            changes.append((start, on))
        was_on = on
    late = [change for change in changes if change[0] <= step][-1:]
    missed = [change for change in late if change[1] != is_on]
    for start, on in missed + [change for change in changes if change[0] > step]:
        yield Request(
            id=f"{treatment.id}/stage-{number + 1}@{start}",
            kind="apply" if on else "undo",
            treatment_id=treatment.id,
            remedy=treatment.remedy,
            changes=dict(treatment.changes if on else treatment.before),
            from_step=start,
        )


def scheduled(treatment: Treatment, stage: Stage, step: int) -> Event:
    """The journal line of a stage that was drawn."""
    body = {
        "treatment_id": treatment.id,
        "remedy": treatment.remedy,
        "stage": len(treatment.stages) + 1,
        "first_step": stage.first_step,
        "block_steps": stage.block_steps,
        "order": stage.order,
        "verdict": f"stage {len(treatment.stages) + 1} at steps {stage.first_step} to "
        f"{stage.end - 1}: blocks of {stage.block_steps} steps, on or off as drawn: {stage.order}",
    }
    return Event("treatment-scheduled", step, body)


def stage_from_event(event: Event) -> tuple[int, Stage] | None:
    """Number and content of a stage in the journal, which is untrusted; None for anything else."""
    body = event.body
    numbers = [body.get(key) for key in ("stage", "first_step", "block_steps")]
    is_whole = all(
        isinstance(each, int) and not isinstance(each, bool) and 0 < each < _MOST_STEP
        for each in numbers
    )
    order = body.get("order")
    if not is_whole or order not in orders():
        return None
    stage, first_step, block_steps = (int(each or 0) for each in numbers)
    if block_steps * BLOCKS > WINDOW:
        return None
    return stage, Stage(first_step, block_steps, str(order))
