"""What every writer of a framework's log needs: the run to log, and file formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from torch.utils.tensorboard import SummaryWriter

Values = Mapping[str, float]
Row = dict[str, float]
COMPONENT = "component/"
"""Quantities `component/NAME/mean` and `component/NAME/std` describe a part of the reward."""


class LoggedRun(Protocol):
    """A training run, as far as a framework logs it."""

    @property
    def steps(self) -> int:
        """Number of steps; the first one is 1."""

    @property
    def limit(self) -> int:
        """Most tokens of a response."""

    @property
    def prompts(self) -> int:
        """Groups of a batch."""

    @property
    def group(self) -> int:
        """Responses of a group."""

    def is_evaluated(self, step: int) -> bool:
        """Whether the held-out set is evaluated after a step."""

    def at(self, step: int) -> Mapping[str, float]:
        """All quantities of a step by name; a quantity that the run does not measure is absent."""


def rows(run: LoggedRun, keys: Callable[[Values], Row]) -> Iterator[tuple[int, Row]]:
    """The row of each step."""
    return ((step, keys(run.at(step))) for step in range(1, run.steps + 1))


def given(values: Values, names: Mapping[str, str]) -> Row:
    """The quantities that a run measures, by log key.

    Args:
        values: the quantities of a step.
        names: for each log key, the name of its quantity.
    """
    return {key: values[name] for key, name in names.items() if name in values}


def heldout(run: LoggedRun, step: int) -> float | None:
    """The held-out score after a step; None if it is not evaluated."""
    values = run.at(step)
    return values["heldout"] if run.is_evaluated(step) and "heldout" in values else None


def components(values: Values) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each part of the reward; the whole one without parts."""
    names = [name.split("/")[1] for name in values if name.startswith(COMPONENT)]
    if not names:
        return {"correct": (values["reward"], values["reward_std"])}
    return {
        name: (values[f"{COMPONENT}{name}/mean"], values[f"{COMPONENT}{name}/std"])
        for name in dict.fromkeys(names)
    }


def write_lines(path: Path, lines: Iterable[Mapping[str, object]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_events(directory: Path, rows: Iterable[tuple[int, Row]]) -> Path:
    """Write TensorBoard events."""
    with SummaryWriter(str(directory)) as writer:
        for step, row in rows:
            for key, value in row.items():
                writer.add_scalar(key, value, step)
    (path,) = directory.glob("events.out.*")
    return path
