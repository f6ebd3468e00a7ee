"""Results on separate lines, between lines that count the iterations of a script.

Such a script prints `Iteration 3, microbatch 7/128` many times, and once per iteration a line such
as `Percentage of correct examples: 0.68`. It may show a few responses with a dict of their rewards,
which are no results of an iteration: the line counts, and without a line, the mean of the dicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.frameworks.row_keys import is_evaluation
from grpodoctor.runs.log_formats.base import EVALUATION, LogRow
from grpodoctor.runs.log_formats.decoding.printed_numbers import NUMBER, to_number

_LONGEST = 300
_MIN_ITERATIONS = 3
"""Iterations with a result that establish the series."""

_COUNTER = re.compile(
    r"\W{0,20}(?:[A-Za-z]{1,20} ){0,3}"
    r"(?:iteration|iter|update|(?:grpo|ppo|rl|train|training|global) step)\b[ :#=\[(]{1,4}"
    r"(\d{1,9})(?![\d.])",
    re.IGNORECASE,
)
"""`GRPO Iteration: 3 …`. A bare `Step 3` also begins a paragraph of a response."""

_RESULT = re.compile(
    rf"\W{{0,20}}([A-Za-z][A-Za-z _-]{{2,60}}?)\s{{0,4}}[:=]\s{{0,4}}({NUMBER})\s?(%)?\s{{0,4}}"
)
_SHARE_CORRECT = re.compile(
    r"(?:percentage|percent|fraction|share|proportion|rate)_of_(?:correct|solved)_[a-z]+"
)
_OUTCOMES = frozenset({"reward/mean", "accuracy/train"})

_SAMPLE = re.compile(
    r"\W{0,5}(?:question|prompt|problem|user|generation|response|completion|assistant|output)\b"
    r"[^:]{0,20}:",
    re.IGNORECASE,
)
"""The first line of a displayed response or of its prompt."""

_OF_EXAMPLE = re.compile(r"reward|score|correct|accura|format|answer", re.IGNORECASE)
_OF_BATCH = re.compile(r"std|mean|avg|average|loss|kl|rate|length", re.IGNORECASE)


class IterationResults:
    """Collects the results between lines that count iterations."""

    def __init__(self) -> None:
        self._iteration: int | None = None
        self._in_evaluation = False
        """Whether the latest line with the counter announces an evaluation."""
        self._after_sample = False
        """Whether a response was displayed after the latest row."""
        self._precedes: bool | None = None
        """Whether the result of an iteration precedes the lines that count it."""
        self._results: dict[str, list[float]] = {}
        self._examples: dict[str, list[float]] = {}
        self._has_new = False
        """Whether the latest iteration has results that were not returned."""
        self._held: list[LogRow] = []
        """Rows of complete iterations."""
        self._is_established = self._is_discarded = False

    def add_line(self, text: str) -> None:
        """Take a line that is no row in another notation."""
        if self._is_discarded:
            return
        if len(text) > _LONGEST:
            self._after_sample |= _SAMPLE.match(text) is not None
            return
        counter = _COUNTER.match(text)
        if counter is not None:
            self._count(int(counter[1]), text)
            return
        result = _RESULT.fullmatch(text) if ":" in text or "=" in text else None
        if result is not None and (key := _outcome_of(result[1])):
            value = to_number(result[2]) / (100 if result[3] else 1)
            self._precedes = self._iteration is None if self._precedes is None else self._precedes
            if f"line/eval_{key}" in self._results:
                self._in_evaluation = False  # an evaluation prints a result once
            self._add(self._results, {f"line/{key}": value})
        elif not self._after_sample:
            self._after_sample = _SAMPLE.match(text) is not None

    def take_example(self, pairs: Mapping[str, float]) -> bool:
        """Take a dict without a step if it describes one displayed response.

        Args:
            pairs: the numbers of the dict.
        """
        shown, self._after_sample = self._after_sample, False
        if self._is_discarded or not shown or self._iteration is None or not _is_example(pairs):
            return False
        self._add(self._examples, pairs)
        return True

    def take(self, *, ended: bool) -> list[LogRow]:
        """Return the rows that are certain now.

        Args:
            ended: whether the text ends here, so that the latest iteration may be complete.
        """
        steps = {row.step for row in self._held if not row.counter}
        self._is_established |= len(steps) >= _MIN_ITERATIONS
        if self._is_discarded or not self._is_established:
            return []
        rows, self._held = self._held, []
        if not ended or not self._has_new:
            return rows
        self._has_new = False
        return [*rows, *self._rows()]

    def discard(self) -> None:
        """Forget the results: the log has rows in another notation."""
        self._is_discarded = True
        self._forget()

    def _forget(self) -> None:
        self._held, self._results, self._examples = [], {}, {}
        self._is_established, self._precedes = False, None

    def _add(self, target: dict[str, list[float]], pairs: Mapping[str, float]) -> None:
        self._has_new = True
        for key, value in pairs.items():
            name = key
            if self._in_evaluation:
                line = "line/" if key.startswith("line/") else ""
                name = f"{line}eval_{key.removeprefix('line/')}"
            target.setdefault(name, []).append(value)

    def _count(self, iteration: int, text: str) -> None:
        if self._iteration is not None and iteration < self._iteration:
            self._forget()
        elif iteration != self._iteration:
            self._held += self._rows() if self._has_new else []
            self._has_new = False
            self._results, self._examples = {}, {}
        self._iteration, self._in_evaluation = iteration, is_evaluation(text) or _evaluates(text)

    def _rows(self) -> list[LogRow]:
        """The rows of the iteration: its own result, and that of an evaluation after it."""
        before = -1 if self._iteration is None else self._iteration
        step = max(0, before + bool(self._precedes))
        means = {
            key: sum(values) / len(values)
            for key, values in (self._results or self._examples).items()
        }
        held_out = {key: value for key, value in means.items() if is_evaluation(key)}
        own = {key: value for key, value in means.items() if key not in held_out}
        rows = [LogRow(max(0, before), held_out, counter=EVALUATION)] if held_out else []
        return [*rows, LogRow(step, own)] if own else rows


def _evaluates(text: str) -> bool:
    return "evaluating" in text.lower()


def _outcome_of(label: str) -> str:
    """The common name of an outcome; empty if a label is none."""
    name = "_".join(label.lower().replace("-", " ").split())
    if _SHARE_CORRECT.fullmatch(name):
        return "accuracy"
    rows = generic_framework().meanings_of(name)
    return name if rows and rows[0][0].metric in _OUTCOMES else ""


def _is_example(pairs: Mapping[str, float]) -> bool:
    """Whether a dict has only the rewards of one response: right or wrong, and no mean."""
    return all(
        value in (0, 1) and _OF_EXAMPLE.search(key) and not _OF_BATCH.search(key)
        for key, value in pairs.items()
    )
