"""Freed memory stays with the training process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from grpodoctor.trainer.allocator import keep_freed_memory

size = int(sys.argv[2]) << 18  # float32 numbers of so many MiB

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(size) for _ in range(4)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(6):  # the heap grows in the first rounds
    faults()
print(sum(faults() for _ in range(4)))
"""


def page_faults(mode: str, mebibytes: int) -> int:
    command = [sys.executable, "-c", PROGRAM, mode, str(mebibytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of glibc")
@pytest.mark.parametrize("mebibytes", [16, 48])  # glibc always maps blocks above 32 MiB otherwise
def test_repeated_allocations_cause_few_page_faults(mebibytes: int) -> None:
    assert page_faults("keep", mebibytes) < page_faults("default", mebibytes) / 10
