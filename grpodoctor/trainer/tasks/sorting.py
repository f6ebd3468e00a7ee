"""Sorting digits by insertion: `7318=` is worked as `,7,37,137,1378`, then `#1378`."""

from __future__ import annotations

import random

from grpodoctor.trainer.config import TaskConfig
from grpodoctor.trainer.tasks.scratch import DIGITS, ScratchTask, Slip, Work


class Sorting(ScratchTask):
    """`difficulty` digits, or one more; every pass inserts the next one."""

    name = "sorting"

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        longest = self.size + 1
        self.max_length_hint = longest * (longest + 1) // 2 + 2 * longest + 8

    def draw(self, rng: random.Random) -> str:
        """A row of digits such as `7318=`."""
        count = rng.randint(max(2, self.size), max(2, self.size) + 1)
        return "".join(rng.choice(DIGITS) for _ in range(count)) + "="

    def work(self, prompt: str, slip: Slip) -> Work:
        """Each step shows the digits inserted so far, in order."""
        row, steps = "", []
        for item in prompt[:-1]:
            row = slip("".join(sorted(row + item)))
            steps.append((",", row))
        return Work(steps, row)
