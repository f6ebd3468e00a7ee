"""Freed memory stays with the training process."""

import ctypes
import json
import subprocess
import sys

import pytest

from tests.samples import sampled

PROGRAM = """
import ctypes, json, sys
import torch
from grpodoctor.trainer.allocator import keep_freed_memory

class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks".split()
        + ["fordblks", "keepcost"]
    ]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2

size = int(sys.argv[2]) << 18  # float32 numbers of so many MiB
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
mapped_before = mallinfo2().hblkhd
blocks = [torch.ones(size) for _ in range(4)]
mapped = mallinfo2().hblkhd - mapped_before
free_before = mallinfo2().fordblks
del blocks
print(json.dumps({"mapped": mapped, "kept": mallinfo2().fordblks - free_before}))
"""


def four_blocks(mode: str, mebibytes: int) -> dict[str, int]:
    """Bytes that four blocks have mapped outside the heap, and bytes kept after their release."""
    command = [sys.executable, "-c", PROGRAM, mode, str(mebibytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, int] = json.loads(done.stdout)
    return found


# The C library is asked, since kernels differ in the page faults that they count.
GLIBC = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc 2.33 or later"
)


@GLIBC
@pytest.mark.parametrize("mebibytes", sampled([16, 48], {48}))
def test_freed_blocks_stay_in_the_heap(mebibytes: int) -> None:
    size = 4 * (mebibytes << 20)
    keep = four_blocks("keep", mebibytes)
    assert keep["mapped"] == 0
    assert keep["kept"] >= size


@pytest.mark.slow
@GLIBC
def test_glibc_alone_maps_large_blocks() -> None:
    size = 4 * (48 << 20)  # above 32 MiB whatever was freed before
    default = four_blocks("default", 48)
    assert default["mapped"] >= size
    assert default["kept"] < size
