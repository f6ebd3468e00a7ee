"""What the process that `tests.forked` forks has imported: the modules that a training run needs.

Nothing here may start a thread: a fork contains only the thread that forks.
"""

import os
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ["HF_HUB_OFFLINE"] = "1"


import grpodoctor.cli.commands.train
import grpodoctor.cli.main
import grpodoctor.trainer.loop  # noqa: F401

assert len(list(Path("/proc/self/task").iterdir())) == 1, "an import has started a thread"
