"""The pages of the dashboard, in the order of the navigation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page."""

    path: str
    """Its place in the address, and the name of its module in `pages/`."""
    title: str
    icon: str
    needs_run: bool = True
    """Whether it shows one run, which the reader has to choose first."""
    opens_probes: bool = False
    """Whether it shows probe reports as well, for which no run is needed."""

    @property
    def module(self) -> str:
        """The dotted name of its module, relative to this package."""
        return f".pages.{self.path}"

    def function(self) -> Callable[[Any], None]:
        """The function that draws the page."""
        draw: Callable[[Any], None] = import_module(self.module, __package__).page
        return draw


PAGES = (
    PageEntry("runs", "Runs", ":material/table_rows:", needs_run=False),
    PageEntry("overview", "Overview", ":material/monitor_heart:"),
    PageEntry("finding", "Finding", ":material/troubleshoot:"),
    PageEntry("rollouts", "Rollouts", ":material/forum:"),
    PageEntry("mismatch", "Mismatch", ":material/difference:", opens_probes=True),
    PageEntry("experts", "Experts", ":material/hub:"),
    PageEntry("compare", "Compare", ":material/compare_arrows:", needs_run=False),
    PageEntry("treatment", "Treatment", ":material/medication:"),
    PageEntry("catalog", "Rules and recipes", ":material/menu_book:", needs_run=False),
)


def page_entry(path: str) -> PageEntry:
    """The page at a place in the address."""
    return next(entry for entry in PAGES if entry.path == path)
