"""For all tests."""

import os
import signal
import threading

import pytest
from hypothesis import settings

if threading.current_thread() is threading.main_thread():
    # A shell starts what it puts into the background with Ctrl-C ignored, and so would be every
    # process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each worker and each program that it starts computes on one thread: two workers fill two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadlines: the time of an example depends on what else the machine does.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("thorough", max_examples=300, deadline=None)  # used by make test-slow
settings.load_profile("quick")

LONGEST_FILES = (
    "trainer/test_cli_train.py",
    "probes/test_vllm.py",
    "cli/test_demo.py",
    "test_wheel.py",
    "trainer/engines/test_vllm.py",
    "probe/test_cli_probe.py",
    "probe/test_real_pair.py",
    "trainer/distributed/test_distributed.py",
    "runs/recording/test_kill.py",
    "trainer/rewards/test_math_check.py",
    "preflight/test_run.py",
    "trainer/test_out_of_memory.py",
)
"""Files of half a minute and more. A worker that took one of them last would leave the others
idle; `make test` therefore hands out files in this order (`--no-loadscope-reorder`)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first; the order inside a file stays."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: ranks.get(item.nodeid.split("::")[0][6:], len(ranks)))
