"""Console text: what a job printed, into a file or through `tee`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpodoctor.runs.carriers import console_lines as lines
from grpodoctor.runs.carriers.base import MOST_KEYS, Keys, Row
from grpodoctor.runs.carriers.catalogue import Format
from grpodoctor.runs.tail import Chunk, Tail

_MOST_WRAPPED = 200
"""Lines that one wrapped row may take."""

_LONGEST_DICT = 400
"""Lines that a printed dict may take."""


class Console:
    """A growing text, rows among much else.

    Rows without a step of their own get the count of the latest progress bar, as transformers
    prints both into one line.

    Args:
        path: the file.
        keys: where a printed dict says its step.
    """

    name = "console"

    def __init__(self, path: Path, keys: Keys) -> None:
        self.path, self._keys = path, keys
        self.config: Mapping[str, Any] = {}
        self._tail: Tail[str] = Tail(path, _text)
        self._forget()

    def _forget(self) -> None:
        self._open: list[str] = []
        """Lines of a row that may go on."""
        self._closes = ""
        """What ends it: `-` a line that goes on with nothing, `}` that brace."""
        self._block: dict[str, float] = {}
        self._block_step: int | None = None
        self._bar: int | None = None

    def rewind(self) -> None:
        """Start over at the first line."""
        self._forget()
        self._tail.rewind()

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or cut short."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[Row]:
        """The rows of the next block of text."""
        chunk = self._tail.read()
        rows = [row for line in chunk.records for row in self._line(line)]
        if not chunk.more:
            rows += self._finish()
        return Chunk(rows, chunk.damage, chunk.size, chunk.more)

    def _line(self, line: str) -> Iterator[Row]:
        for segment in lines.cleaned(line):
            yield from self._segment(segment)

    def _segment(self, text: str) -> Iterator[Row]:
        if self._open:
            if self._goes_on(text):
                return
            yield from self._close()
        if lines.begins_dashed(text):
            self._open, self._closes = [text], "-"
            return
        if "{" in text and text.count("{") > text.count("}") and len(text) < 2000:
            self._open, self._closes = [text], "}"
            return
        yield from self._said(text)

    def _goes_on(self, text: str) -> bool:
        """Whether a line belongs to the row that is open; if so, it is taken."""
        if self._closes == "-":
            more = not lines.begins_dashed(text) and _continues(self._open[-1], text)
            if more and len(self._open) < _MOST_WRAPPED:
                self._open.append(text)
                return True
            return False
        self._open.append(text)
        depth = sum(part.count("{") - part.count("}") for part in self._open)
        return depth > 0 and len(self._open) < _LONGEST_DICT

    def _close(self) -> Iterator[Row]:
        text = ("" if self._closes == "-" else "\n").join(self._open)
        self._open, self._closes = [], ""
        yield from self._said(text)

    def _said(self, text: str) -> Iterator[Row]:
        said = lines.dashed(text) or lines.piped(text) or lines.dictionary(text)
        bar = lines.progress(text)
        if bar is not None:
            self._bar = bar
        if said is None:
            yield from self._of_block(text)
        elif len(said.pairs) <= MOST_KEYS:
            yield from self._end_block()
            yield self._row(said.pairs, said.step)

    def _of_block(self, text: str) -> Iterator[Row]:
        said = lines.bullet(text) or lines.cells(text)
        if said is not None and len(self._block) < MOST_KEYS:
            self._block.update(said.pairs)
            return
        step = lines.heading(text)
        if step is not None:
            if step != self._block_step:
                yield from self._end_block()
            self._block_step = step

    def _end_block(self) -> Iterator[Row]:
        if self._block:
            yield self._row(self._block, self._block_step)
        self._block = {}

    def _finish(self) -> list[Row]:
        """What is whole at the end of the text, as far as it is written."""
        rows = list(self._close()) if self._closes == "-" else []
        return rows + list(self._end_block())

    def _row(self, pairs: Mapping[str, float], step: int | None) -> Row:
        own = next((pairs[key] for key in self._keys.step if key in pairs), None)
        if step is None and own is not None and own == int(own):
            step = int(own)
        values = {key: value for key, value in pairs.items() if key not in self._keys.step}
        return Row(self._bar if step is None else step, values)


def _continues(before: str, text: str) -> bool:
    """Whether a line can be the rest of a wrapped one: nothing but pairs and parts of them."""
    if len(before) < 40 or len(text) > 4000:
        return False
    parts = text.split(" - ")
    return all(part.strip(" -") == "" or " " not in part.strip(" -") for part in parts) and (
        ":" in text or len(text.strip()) <= 40
    )


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _claims(path: Path, head: bytes) -> bool:
    if b"\0" in head or path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", ".html", ".json"):
        return False
    return path.suffix in (".log", ".txt", ".out", ".err", "") or _looks_like_one(head)


def _looks_like_one(head: bytes) -> bool:
    said = (lines.dashed, lines.piped, lines.dictionary)
    texts = (part for line in head.splitlines()[:2000] for part in lines.cleaned(_text(line)))
    return any(each(text) is not None for text in texts for each in said)


FORMAT = Format("console", 90, _claims, Console)
