"""Console text: what a job printed, into a file or through `tee`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats import console_lines as lines
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.growing_files import Chunk, Tail

_MOST_WRAPPED = 200
"""Lines that one wrapped row may take."""

_LONGEST_DICT = 2000
"""Lines that a printed dict may take: verl prints all of its settings as one."""

_LINE_STEPS = {"line/step", "line/global_step", "line/iter", "line/iteration", "line/epoch"}

_HEADING_REACH = 3
"""Lines below a heading within which a dict belongs to it."""


class Console:
    """A growing text, rows among much else.

    Args:
        path: the file.
        keys: where a printed dict says its step.
    """

    name = "console"

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys = path, keys
        self._tail: Tail[str] = Tail(path, _text, confirm_last_line=True)
        self._forget()

    def _forget(self) -> None:
        self.config: Mapping[str, Any] = {}
        self._open: list[str] = []
        """Lines of a row that may go on."""
        self._closes = ""
        """What ends it: `-` a line that goes on with nothing, `}` that brace."""
        self._depth = 0
        self._block: dict[str, float] = {}
        self._block_step: int | None = None
        self._since_heading = _HEADING_REACH
        self._bars = _Bars()

    def rewind(self) -> None:
        """Start over at the first line."""
        self._forget()
        self._tail.rewind()

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or cut short."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """The rows of the next block of text."""
        chunk = self._tail.read()
        rows = [row for line in chunk.records for row in self._line(line)]
        if not chunk.more:
            rows += self._finish()
        rows, notes = self._bars.numbered(rows)
        return Chunk(rows, chunk.damage, chunk.size, chunk.more, notes)

    def _line(self, line: str) -> Iterator[LogRow]:
        for segment in lines.cleaned(line):
            yield from self._segment(segment)

    def _segment(self, text: str) -> Iterator[LogRow]:
        if self._open:
            if self._goes_on(text):
                return
            yield from self._close()
        if lines.begins_dashed(text):
            self._open, self._closes = [text], "-"
        elif lines.begins_dict(text):
            self._open, self._closes = [text], "}"
            self._depth = text.count("{") - text.count("}")
        else:
            yield from self._said(text)

    def _goes_on(self, text: str) -> bool:
        """Whether a line belongs to what is open; if so, it is taken."""
        if self._closes == "-":
            more = _continues(self._open[-1], text) and not lines.begins_dashed(text)
            if more and len(self._open) < _MOST_WRAPPED:
                self._open.append(text)
                return True
            return False
        if self._depth <= 0 or len(self._open) >= _LONGEST_DICT or not lines.is_of_dict(text):
            return False
        self._open.append(text)
        self._depth += text.count("{") - text.count("}")
        return True

    def _close(self) -> Iterator[LogRow]:
        text = ("" if self._closes == "-" else "\n").join(self._open)
        self._open, self._closes = [], ""
        yield from self._said(text)

    def _said(self, text: str) -> Iterator[LogRow]:
        self._since_heading += 1
        said = lines.dashed(text) or lines.piped(text)
        if said is None:
            bar = lines.progress(text)
            if bar is not None:
                self._bars.moved(bar)
            said = self._dictionary(text)
        if said is None:
            yield from self._of_block(text)
        else:
            yield from self._whole(said)

    def _whole(self, said: lines.Said) -> Iterator[LogRow]:
        if len(said.pairs) <= MOST_KEYS:
            yield from self._end_block()
            yield self._row(said.pairs, said.step)

    def _dictionary(self, text: str) -> lines.Said | None:
        said = lines.dictionary(text)
        if said is None:
            if text.count("{") > 1 and len(text) > 200:
                self._learn_settings(text)
            return None
        if said.step is None and self._since_heading <= _HEADING_REACH:
            return lines.Said(said.pairs, self._block_step)
        return said

    def _learn_settings(self, text: str) -> None:
        """Take a dict of settings for those of the run; the first printed goes before others."""
        found = lines.nested(text[text.find("{") :])
        if lines.is_settings(found) and len(self.config) + len(found) <= MOST_KEYS:
            self.config = {**found, **self.config}

    def _of_block(self, text: str) -> Iterator[LogRow]:
        said = lines.labelled(text)
        if said is not None:
            values = {key: value for key, value in said.pairs.items() if key not in _LINE_STEPS}
            yield LogRow(said.step, values)
            return
        said = lines.bullet(text) or lines.cells(text)
        if said is not None:
            if not said.pairs.keys().isdisjoint(self._block):
                yield from self._end_block()
            if len(self._block) < MOST_KEYS:
                self._block.update(said.pairs)
            return
        step = lines.heading(text)
        if step is not None:
            if step != self._block_step:
                yield from self._end_block()
            self._block_step, self._since_heading = step, 0

    def _end_block(self) -> Iterator[LogRow]:
        if len(self._block) > 1:
            yield self._row(self._block, self._block_step)
        self._block = {}

    def _finish(self) -> list[LogRow]:
        """What is whole at the end of the text, as far as it is written."""
        rows = list(self._close()) if self._closes == "-" else []
        if self._closes == "}" and self._depth <= 0:
            rows += self._close()
        return rows + list(self._end_block())

    def _row(self, pairs: Mapping[str, float], step: int | None) -> LogRow:
        own = next((pairs[key] for key in self._keys.step if key in pairs), None)
        if step is None and own is not None and abs(own) < 2**53 and own == int(own):
            step = int(own)
        values = {key: value for key, value in pairs.items() if key not in self._keys.step}
        row = LogRow(step, values)
        return row if step is not None else self._bars.placed(row)


_EVERY_LOG = ("loss", "reward", "grad_norm", "learning_rate", "lr", "train/loss", "policy_loss")
"""One of these stands in each row of a training step, and in none of an evaluation."""


class _Bars:
    """Steps of rows that have none, by the progress bar that stands before them.

    transformers prints both through one stream, so that the bar counts the steps of its row. Where
    they went different ways the bars of many steps stand before the rows of all of them, and a row
    that repeats the bar of the row before gives it away. Then the bars that were drawn twice are
    those of the rows, since printing a row draws the bar anew; without such, rows are counted.
    """

    def __init__(self) -> None:
        self._bar: lines.Bar | None = None
        self._placed: list[tuple[LogRow, int | None]] = []
        """Rows of this block without a step of their own, and the bar before each."""
        self._trusted = True
        self._last_bar: int | None = None
        self._step, self._stride = 0, 1
        self._drawn_twice: deque[int] = deque(maxlen=100_000)

    def moved(self, bar: lines.Bar) -> None:
        """Take a progress bar; one of other things than steps has another total."""
        if bar == self._bar and bar.done not in (0, self._latest_drawn_twice()):
            self._drawn_twice.append(bar.done)
        if self._bar is None or bar.total == self._bar.total or bar.total > 4:
            self._bar = bar

    def _latest_drawn_twice(self) -> int | None:
        return self._drawn_twice[-1] if self._drawn_twice else None

    def placed(self, row: LogRow) -> LogRow:
        """Remember where a row stood, to be numbered when the block is read."""
        self._placed.append((row, self._bar.done if self._bar else None))
        return row

    def numbered(self, rows: list[LogRow]) -> tuple[list[LogRow], list[str]]:
        """The rows of a block with their steps, and what had to be decided for it."""
        placed, self._placed = self._placed, []
        notes = self._judge([bar for row, bar in placed if _is_of_step(row)])
        steps = {id(row): self._step_of(row, bar) for row, bar in placed}
        return [
            replace(row, step=steps[id(row)]) if id(row) in steps else row for row in rows
        ], notes

    def _judge(self, bars: list[int | None]) -> list[str]:
        """Whether the bars go on being the steps of their rows."""
        known = [bar for bar in (self._last_bar, *bars) if bar is not None]
        self._last_bar = known[-1] if known else None
        if not self._trusted or len(known) == len(set(known)):
            return []
        self._trusted = False
        by = "are those of the bars that were drawn twice"
        if len(self._drawn_twice) < len(bars) / 2:
            self._drawn_twice.clear()
            if self._bar and self._bar.done == self._bar.total and bars:
                self._stride = max(1, self._bar.total // len(bars))
            each = f", {self._stride} to a row" if self._stride > 1 else ""
            by = f"are counted by rows{each}"
        return [f"the progress bars do not stand beside the rows that they belong to: steps {by}"]

    def _step_of(self, row: LogRow, bar: int | None) -> int | None:
        if self._trusted:
            if bar is not None:
                self._step = bar
            return bar
        if _is_of_step(row):
            self._step = self._next()
        return self._step

    def _next(self) -> int:
        while self._drawn_twice:
            drawn = self._drawn_twice.popleft()
            if drawn > self._step:
                return drawn
        return self._step + self._stride


def _is_of_step(row: LogRow) -> bool:
    return any(key in row.values for key in _EVERY_LOG)


def _continues(before: str, text: str) -> bool:
    """Whether a line can be the rest of a wrapped one: nothing but pairs and parts of them."""
    if len(before) < 40 or len(text) > 4000:
        return False
    parts = text.split(" - ")
    return all(part.strip(" -") == "" or " " not in part.strip(" -") for part in parts) and (
        ":" in text or len(text.strip()) <= 40
    )


def _text(line: bytes) -> str:
    """A line as text, without the zeros that a log has in which somebody left a hole.

    Truncating a file that a job goes on writing leaves one; and a console of Windows writes each
    letter of a redirected output with a zero after it.
    """
    return line.replace(b"\0", b"").decode("utf-8", "replace")


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", ".html", ".json"):
        return False
    is_text = b"\0" not in head or not head.strip(b"\0")
    by_name = path.suffix in (".log", ".txt", ".out", ".err", "") and is_text
    return by_name or _looks_like_one(head)


def _looks_like_one(head: bytes) -> bool:
    said = (lines.dashed, lines.piped, lines.dictionary, lines.labelled)
    texts = (part for line in head.splitlines()[:2000] for part in lines.cleaned(_text(line)))
    return any(each(text) is not None for text in texts for each in said)


FORMAT = LogFormat("console", 90, _claims, Console)
