"""The built-in tasks by name. To add one, add a file and a row here."""

from __future__ import annotations

from grpodoctor.trainer.data.tasks.arithmetic import Arithmetic
from grpodoctor.trainer.data.tasks.counting import Counting
from grpodoctor.trainer.data.tasks.scratch import ScratchTask
from grpodoctor.trainer.data.tasks.sorting import Sorting

TASKS: dict[str, type[ScratchTask]] = {task.name: task for task in (Arithmetic, Sorting, Counting)}
