"""Sorting digits by insertion: `7318=` has the worked solution `,7,37,137#1378`."""

from __future__ import annotations

import random

from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.scratch import DIGITS, ScratchTask, Slip, Work


class Sorting(ScratchTask):
    """`difficulty` digits plus one or two; every pass inserts the next digit."""

    name = "sorting"

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        longest = self.size + 2
        self.max_length_hint = longest * (longest + 1) // 2 + longest + 8

    def draw(self, rng: random.Random) -> str:
        """A row of digits such as `7318=`."""
        count = rng.randint(self.size + 1, self.size + 2)
        return "".join(rng.choice(DIGITS) for _ in range(count)) + "="

    def work(self, prompt: str, slip: Slip) -> Work:
        """Each step shows the digits inserted so far, in order; the last pass is the answer."""
        row, steps = "", []
        for item in prompt[:-1]:
            row = slip("".join(sorted(row + item)))
            steps.append((",", row))
        return Work(steps[:-1], row)
