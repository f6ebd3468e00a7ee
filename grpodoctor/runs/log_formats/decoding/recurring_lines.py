"""Rows of a script that prints one line of labeled numbers per step, in any notation.

A template is the set of labels of a line. If lines with the same template recur with a step that
grows, and one of the labels is a known name, they are the metrics of a run. Prose does not recur.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.runs.log_formats.base import LogRow

_LONGEST = 1000
_MIN_LINES = 3
"""Lines with a growing step that establish a template."""
_MOST_TEMPLATES = 64
_MOST_PARTS = 0.25
"""Share of the lines that may repeat a step with other values. More of them are lines of the
responses or groups of a step, and none of them stands for the step."""
_NUMBER = r"[-+]?(?:(?:\d{1,3}(?:,\d{3}){1,4}|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_STEP_NAMES = ("global_step", "step", "iteration", "iter", "it", "update", "batch",
               "rollout", "episode", "steps", "round", "epoch")  # fmt: skip
"""Names of a step counter, the finest first. Next to `episode`, `steps` is its length."""
_ITEM_NAMES = frozenset(
    ("sample", "prompt", "completion", "group", "worker", "env", "rank", "task", "example",
     "problem", "question", "trajectory", "response", "idx", "index", "seed", "gpu", "layer",
     "attempt")
)  # fmt: skip
"""Names whose number tells apart the parts of a step: such a line is no summary of the step."""

_NOT_IN_LABEL = frozenset({"tok", "toks", "tokens", "s", "sec", "secs", "ms", "min", "x", "with"})
"""Units and words that may precede a label: `len=184 tok kl=0.2`."""

_PAIR = re.compile(
    r"(?<![\w.\-/@])([A-Za-z][\w/@]{0,60}(?:[ \-][A-Za-z][\w/@]{0,60}){0,2})"
    rf"(\s{{0,20}}[:=#@]\s{{0,20}}|\s{{1,20}})({_NUMBER})(?:/(\d{{1,12}}))?"
    r"(?:\s?(%)|(?:s|ms|sec|tok|x)\b)?(?![\w/]|\.\d)"
    rf"(?:,?\s?(?:±|\+/-|\+-|\(?std[ :=]{{0,2}}|\(±)\s?({_NUMBER})\)?)?"
)
_COUNT = re.compile(r"(?:^|[\s\[(])(\d{1,12})\s?/\s?\d{1,12}(?:[\])\s:|,]|$)")
"""`[12/300]`: the only counter of a line without a labeled one."""
_BAR = re.compile(
    r"(?:([^|]{0,60}):)?\s{0,9}\d{1,3}%\|[^|]{0,400}\|\s*(\d{1,12})/\d{1,12}\s*\["
    r"[^,\]]{1,40},[^,\]]{1,40},(.{1,600})\]"
)
"""A progress bar with a postfix: title, step and postfix."""
_OTHER_BAR = re.compile(
    r"eval|valid|\btest|generat|sampl|load|download|map\b|filter|tokeniz|split|shard|files?\b|score",
    re.IGNORECASE,
)
_MAY_COUNT = re.compile(
    r"step|iter|\bit\b|update|batch|rollout|episode|round|epoch|\d\s?/\s?\d", re.IGNORECASE
)
"""What every line with a step has; a fast test, since most lines of a log are prose."""
_OF_TRAINING = re.compile(r"reward|return|loss|kl|lr|learning|grad|entropy|adv|clip")
"""Labels that only a training prints. An evaluation also counts its problems: `[7/500] acc=0.4`."""
_HELD_OUT = re.compile(r"\b(?:eval\w{0,6}|val|validation|test|held[ -]?out)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LabeledLine:
    """A line with a step and at least one label of a known name."""

    step: int
    epoch: int | None
    values: dict[str, float]
    """By key, with the prefix `line/`."""
    is_bar: bool = False


@dataclass(slots=True)
class _Template:
    """The lines with the same labels."""

    held: list[tuple[int, LabeledLine]] = field(default_factory=list)
    """Steps and lines before the template is established."""
    is_established: bool = False
    lines: int = 0
    parts: int = 0
    """Lines with the step of the line before and other values."""

    def hold(self, step: int, line: LabeledLine) -> None:
        """Add a line, in place of the one before with the same step."""
        self.lines += 1
        if self.held and step < self.held[-1][0]:
            self.held.clear()
        if self.held and step == self.held[-1][0]:
            self.parts += not line.is_bar and line.values != self.held[-1][1].values
            self.held.pop()
        self.held.append((step, line))

    @property
    def stands_for_steps(self) -> bool:
        """Whether the lines recur with a growing step, one for each."""
        return len(self.held) >= _MIN_LINES and self.parts <= _MOST_PARTS * self.lines


class RecurringLines:
    """Recognizes the lines that recur and returns their rows."""

    def __init__(self) -> None:
        self._templates: dict[frozenset[str], _Template] = {}
        self._latest = -1
        """The step of the latest row."""
        self._last_step = self._offset = 0
        self._epoch = 0
        self._others = 0
        """Rows in other notations."""
        self._shared: list[LogRow] = []
        """Rows in another notation that these lines may complete, until a template is known."""
        self._shared_step = -1
        """The step of the latest of them that was returned."""
        self._pending: LogRow | None = None
        """The row of a progress bar, which may be drawn again at the same step."""

    def count_other_row(self) -> None:
        """Note that the log has a row in another notation."""
        self._others += 1

    def share(self, row: LogRow) -> list[LogRow]:
        """Take a row in another notation that may have its step in common with these lines."""
        self._shared.append(row)
        is_known = any(template.is_established for template in self._templates.values())
        return self.release() if is_known or len(self._shared) > _MIN_LINES else []

    def release(self) -> list[LogRow]:
        """Return the rows in the other notation that are still held."""
        rows, self._shared = self._shared, []
        self._shared_step = max((row.step or 0 for row in rows), default=self._shared_step)
        return rows

    def add(self, line: LabeledLine) -> list[LogRow]:
        """Return the rows that are certain with this line."""
        template = self._template_of(frozenset(line.values))
        if template is None:
            return []
        step = self._continued(line)
        if template.is_established:
            return self._rows_of(step, line)
        template.hold(step, line)
        held = template.held
        if not template.stands_for_steps or len(held) <= 2 * self._others:
            del held[: -2 * self._others - _MIN_LINES]
            return []
        template.is_established, template.held = True, []
        # A line of an earlier step would go back in the log.
        first = max(self._latest, self._shared_step)
        rows = [row for step, line in held if step >= first for row in self._rows_of(step, line)]
        return sorted([*self.release(), *rows], key=lambda row: row.step or 0)

    def finish(self) -> list[LogRow]:
        """Return the row of a progress bar at the end of the text."""
        row, self._pending = self._pending, None
        return [*self.release(), row] if row else self.release()

    def _template_of(self, labels: frozenset[str]) -> _Template | None:
        if labels not in self._templates and len(self._templates) >= _MOST_TEMPLATES:
            return None
        return self._templates.setdefault(labels, _Template())

    def _continued(self, line: LabeledLine) -> int:
        """The step of a line; steps that begin again in an epoch continue the previous ones."""
        if line.epoch is not None:
            if line.epoch > self._epoch and line.step < self._last_step:
                self._offset += self._last_step
            self._epoch, self._last_step = line.epoch, line.step
        return line.step + self._offset

    def _rows_of(self, step: int, line: LabeledLine) -> list[LogRow]:
        row = LogRow(step, line.values)
        done = self.finish() if self._pending and self._pending.step != step else []
        repeats = step == self._latest
        self._latest = step
        if not line.is_bar:
            return [*done, row]
        if self._pending is not None or not repeats:
            self._pending = row
        return done


def parse_recurring_line(text: str) -> LabeledLine | None:
    """Parse a line with a step and labeled numbers; None if no label is a known name."""
    if len(text) > _LONGEST or "│" in text or "┃" in text or "{" in text:
        return None
    if not _MAY_COUNT.search(text):
        return None
    if "%|" in text:
        bar = _BAR.search(text)
        return _parse_bar(bar) if bar else None
    pairs = [(_label_of(match[1]), match) for match in _PAIR.finditer(text)]
    if any(label.rpartition("_")[2] in _ITEM_NAMES for label, _ in pairs):
        return None
    counters: dict[str, int] = {}
    metrics: list[tuple[str, re.Match[str]]] = []
    for label, match in pairs:
        if counter := _counter_of(label, match):
            counters.setdefault(counter, int(match[3]))
        elif match[2].strip() or _is_known(label):
            metrics.append((label, match))
    values = {key: value for metric in metrics for key, value in _values_of(*metric).items()}
    before = text[: metrics[0][1].start()] if metrics else ""
    step = _step_of(counters, before, values)
    if step is None or not any(map(_is_known, values)):
        return None
    prefix = "line/eval_" if _HELD_OUT.search(before) else "line/"
    keyed = {f"{prefix}{key}": value for key, value in values.items()}
    return LabeledLine(step, counters.get("epoch"), keyed)


def _step_of(counters: Mapping[str, int], before: str, values: Mapping[str, float]) -> int | None:
    """The step of a line: its counter, or a bare number before metrics of the training."""
    named = next((counters[name] for name in _STEP_NAMES if name in counters), None)
    if named is not None:
        return named
    count = _COUNT.search(before)
    is_of_training = count is not None and any(map(_OF_TRAINING.search, values))
    return int(count[1]) if count is not None and is_of_training else None


def _counter_of(label: str, match: re.Match[str]) -> str:
    """The name of a step counter; empty if the pair is none."""
    name = label if label == "global_step" else label.rpartition("_")[2]
    return name if name in _STEP_NAMES and match[3].isdecimal() else ""


def _parse_bar(bar: re.Match[str]) -> LabeledLine | None:
    title = bar[1] or ""
    if _OTHER_BAR.search(title):
        return None
    values: dict[str, float] = {}
    for match in _PAIR.finditer(bar[3]):
        values |= _values_of(_label_of(match[1]), match)
    if not any(map(_is_known, values)):
        return None
    epoch = re.search(r"epoch\W{0,3}(\d{1,6})", title, re.IGNORECASE)
    keyed = {f"line/{key}": value for key, value in values.items()}
    return LabeledLine(int(bar[2]), int(epoch[1]) if epoch else None, keyed, is_bar=True)


def _values_of(label: str, match: re.Match[str]) -> dict[str, float]:
    value = float(match[3].replace(",", ""))
    if match[4] and 0 <= value <= int(match[4]) > 0:
        value /= int(match[4])
    if match[5]:
        value /= 100
    values = {label: value}
    if match[6]:
        values[f"{label}_std"] = float(match[6].replace(",", ""))
    return values


def _label_of(text: str) -> str:
    words = text.lower().replace("-", " ").split()
    while len(words) > 1 and words[0] in _NOT_IN_LABEL:
        del words[0]
    return "_".join(words)


@lru_cache(maxsize=4096)
def _is_known(label: str) -> bool:
    """Whether the table of plain names has a label."""
    return generic_framework().knows(label)
