"""Settings of the C library's allocator: freed memory stays with the process.

By default, glibc returns the end of its heap to the kernel when some of it is free, and maps each
large block by itself. A training step frees all its activations, so that each of their pages is
cleared again by a page fault in the next step: about 3,000 faults in a step of the built-in model.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Numbers of the parameters in glibc's malloc.h."""
_MAPPED_BLOCKS = 0
"""Blocks outside the heap. The limit above which glibc maps a block cannot exceed 32 MiB, and a
batch of a thousand completions has larger activations; without mapped blocks they are reused."""
_KEPT = 1 << 30
"""Free bytes at the end of the heap that the process keeps."""
_GROWTH = 16 << 20
"""Bytes by which the heap grows at least."""


def keep_freed_memory() -> bool:
    """Keep freed blocks for reuse; returns whether the C library supports it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, such as musl
        return False
    settings = {_MMAP_MAX: _MAPPED_BLOCKS, _TRIM_THRESHOLD: _KEPT, _TOP_PAD: _GROWTH}
    return all(mallopt(*setting) == 1 for setting in settings.items())
