"""Standard streams that outlive the terminal or the pipe they write to."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO, cast


def outlive_terminal() -> None:
    """Keep a closed terminal or pipe from ending this program.

    What is written to stdout and stderr after that is discarded.
    """
    sys.stdout = cast("TextIO", _LastingStream(sys.stdout))
    sys.stderr = cast("TextIO", _LastingStream(sys.stderr))


class _LastingStream:
    """A text stream that discards its output once its other end is gone.

    Args:
        stream: the stream that it stands for; other attributes are that stream's.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, or discard it."""
        try:
            self._stream.write(text)
        except OSError:
            self._discard()
        return len(text)

    def flush(self) -> None:
        """Flush the text, or discard it."""
        try:
            self._stream.flush()
        except OSError:
            self._discard()

    def _discard(self) -> None:
        """Let the stream write to the null device, which takes its buffer too."""
        with suppress(OSError):  # without a free descriptor, the next write tries again
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
