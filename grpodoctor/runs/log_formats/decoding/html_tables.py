"""The tables of a page, such as a notebook's output."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser


def tables_of(markup: str) -> Iterator[list[list[str]]]:
    """The tables of a page as lists of rows of cells."""
    if "<t" not in markup:
        return
    parser = _TableParser()
    parser.feed(markup)
    parser.close()
    yield from parser.tables


class _TableParser(HTMLParser):
    """Collects the texts of table cells."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[str]]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs  # the interface of HTMLParser
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.tables[-1][-1][-1] += data
