"""Steps that headings such as `Step 12:` give to the rows below them."""

from __future__ import annotations

from collections.abc import Iterable

_REACH = 3
"""Lines below a heading in which a dict belongs to the heading."""


class HeadingStep:
    """The step of the latest heading, and whether it is the step of the rows below.

    A message that is printed again and again may contain a number that looks like a heading's. Such
    a number never counts on, so it would merge all rows into one. Several rows of one step have
    different keys.
    """

    def __init__(self) -> None:
        self.step: int | None = None
        self._lines_since = _REACH
        self._counts_on = False
        """Whether there were headings with different steps."""
        self._printed = 0
        """Headings so far."""
        self._numbered: dict[frozenset[str], int] = {}
        """The keys of the rows that got the step, and the heading above each."""
        self._latest_batch: int | None = None
        self._counts_batches = True
        """Whether the numbers of batches count on, like steps."""

    def add_heading(self, step: int) -> None:
        """Take the step of a further heading."""
        if step != self.step:
            self._counts_on |= self.step is not None
            self._numbered.clear()
        self.step, self._lines_since = step, 0
        self._printed += 1

    def takes_batch(self, batch: int) -> bool:
        """Whether the number of a batch counts the steps.

        It does not if each step begins with batch 0: the number of the batch then falls below a
        heading with another number. It also falls when a job restarts, without such a heading.
        """
        if self._latest_batch is not None and batch < self._latest_batch:
            self._counts_batches &= self.step == self._latest_batch
        self._latest_batch = batch
        return self._counts_batches

    def add_line(self) -> None:
        """Count a line below the heading."""
        self._lines_since += 1

    @property
    def is_near(self) -> bool:
        """Whether the heading is close enough above the line for a dict to belong to it."""
        return self._lines_since <= _REACH

    def extend(self) -> None:
        """Let the heading reach further: its dicts may follow one another."""
        self._lines_since = 0

    def step_of(self, keys: Iterable[str]) -> int | None:
        """The step of a row with these keys; None if the heading cannot be its step.

        It cannot if the same heading above an earlier row with the same keys never counted on.
        """
        if self.step is None or self._counts_on:
            return self.step
        above = self._numbered.setdefault(frozenset(keys), self._printed)
        return self.step if above == self._printed else None
