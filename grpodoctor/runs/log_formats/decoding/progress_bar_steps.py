"""The steps of console rows that have none, from the progress bars around them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.console_lines import ProgressBar

_STEP_KEYS = ("loss", "reward", "grad_norm", "learning_rate", "lr", "train/loss", "policy_loss")
"""Each row of a training step has one of these keys, and no row of an evaluation does."""


_SUMMARY_KEY = "train_runtime"
"""A key of the row that transformers prints at the end of a training."""

_MAX_OTHER_TOTAL = 4
"""Largest total of a bar over shards or files; the rows of shorter runs are counted."""


class ProgressBarSteps:
    """Assigns steps to rows without one, from the progress bar printed before each row.

    transformers prints both to one stream, so the bar before a row has the row's step. If the two
    were written to different streams, the bars of many steps come before all of their rows; a row
    with the same bar as the previous row shows this. Printing a row redraws the bar, so the steps
    of the rows are then those of the bars that were drawn twice. Without such bars, rows are
    counted.
    """

    def __init__(self) -> None:
        self._bar: ProgressBar | None = None
        self._unnumbered: list[tuple[LogRow, int | None]] = []
        """Rows of this block without a step, and the bar before each."""
        self._trusted = True
        self._last_bar: int | None = None
        self._step, self._stride = 0, 1
        self._has_ended = False
        """Whether the latest training has printed its summary."""
        self._behind = 0
        """Steps by which the bar before a row is behind it."""
        self._drawn_twice: deque[int] = deque(maxlen=100_000)

    def add_bar(self, bar: ProgressBar) -> bool:
        """Add a progress bar; bars that do not count steps have other totals, or small ones.

        Returns:
            Whether it is the bar of the training, and has advanced.
        """
        before = self._bar
        if bar == self._bar and bar.done not in (0, self._latest_drawn_twice()):
            self._drawn_twice.append(bar.done)
        if bar.total > _MAX_OTHER_TOTAL:
            self._bar = bar
        return before is not None and bar.total == before.total and bar.done > before.done

    def _latest_drawn_twice(self) -> int | None:
        return self._drawn_twice[-1] if self._drawn_twice else None

    def add_row(self, row: LogRow) -> LogRow:
        """Add a row that gets its step at the end of the block."""
        self._unnumbered.append((row, self._bar.done if self._bar else None))
        return row

    def numbered(self, rows: list[LogRow]) -> tuple[list[LogRow], list[str]]:
        """Return the rows of a block with their steps, and notes on how the steps were found."""
        unnumbered, self._unnumbered = self._unnumbered, []
        notes = self._check_bars([bar for row, bar in unnumbered if is_training_row(row)])
        steps = {id(row): self._step_of(row, bar) for row, bar in unnumbered}
        return [
            replace(row, step=steps[id(row)]) if id(row) in steps else row for row in rows
        ], notes

    def _check_bars(self, bars: list[int | None]) -> list[str]:
        """Check that the bars still have the steps of their rows; return notes if not."""
        known = [bar for bar in (self._last_bar, *bars) if bar is not None]
        self._last_bar = known[-1] if known else None
        if not self._trusted or len(known) == len(set(known)):
            return []
        self._trusted = False
        source = "come from the bars that were drawn twice"
        if len(self._drawn_twice) < len(bars) / 2:
            self._drawn_twice.clear()
            if self._bar and self._bar.done == self._bar.total and bars:
                self._stride = max(1, self._bar.total // len(bars))
            stride = f", {self._stride} steps per row" if self._stride > 1 else ""
            source = f"are counted by rows{stride}"
        return [f"the progress bars are not next to their rows, so steps {source}"]

    def _step_of(self, row: LogRow, bar: int | None) -> int | None:
        if self._trusted:
            if bar is None:
                return None
            if bar == 0 and is_training_row(row):
                self._behind = 1  # no training row has step 0: each bar follows its row
            self._step = bar + self._behind
            return self._step
        if is_training_row(row):
            if self._has_ended:
                self._step, self._has_ended = 0, False  # another training follows
            self._step = self._next()
        self._has_ended |= _SUMMARY_KEY in row.values
        return self._step

    def _next(self) -> int:
        while self._drawn_twice:
            drawn = self._drawn_twice.popleft()
            if drawn > self._step:
                return drawn
        return self._step + self._stride


def is_training_row(row: LogRow) -> bool:
    """Whether a row holds the metrics of a training step."""
    return any(key in row.values for key in _STEP_KEYS)
