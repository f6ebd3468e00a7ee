"""Hooks of modules that end with a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch.utils.hooks import RemovableHandle


@contextmanager
def until_end(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Remove hooks when the block ends, also with an error."""
    kept = list(handles)
    try:
        yield
    finally:
        for handle in kept:
            handle.remove()
