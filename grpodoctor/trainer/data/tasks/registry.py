"""The built-in tasks by name. A new one is a file and a row."""

from __future__ import annotations

from grpodoctor.trainer.data.tasks.arithmetic import Arithmetic
from grpodoctor.trainer.data.tasks.counting import Counting
from grpodoctor.trainer.data.tasks.scratch import ScratchTask
from grpodoctor.trainer.data.tasks.sorting import Sorting

TASKS: dict[str, type[ScratchTask]] = {task.name: task for task in (Arithmetic, Sorting, Counting)}
