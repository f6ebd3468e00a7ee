"""A terminal in place of stderr."""

from __future__ import annotations

import io
import sys
import threading

import pytest


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        if "reading" in text:
            self.written.set()
        return count


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace stderr; not a fixture, because pytest sets stderr after the fixtures."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    return screen
