"""Freed memory stays with the training process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from grpodoctor.trainer.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(1 << 18) for _ in range(64)]  # 1 MiB each
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
faults()
print(sum(faults() for _ in range(4)))
"""


def page_faults(mode: str) -> int:
    command = [sys.executable, "-c", PROGRAM, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of glibc")
def test_repeated_allocations_cause_few_page_faults() -> None:
    assert page_faults("keep") < page_faults("default") / 10
