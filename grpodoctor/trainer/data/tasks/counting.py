"""Counting a digit: `7:381773=` (how many sevens?) has the solution `30 80 10 71 72 32#2`."""

from __future__ import annotations

import random

from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.scratch import DIGITS, ScratchTask, Slip, Work


class Counting(ScratchTask):
    """Up to `2 * difficulty` digits, and at most two fewer, in which one digit is counted."""

    name = "counting"

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self.max_length_hint = 4 * self.size + 8

    def draw(self, rng: random.Random) -> str:
        """The digit to count, then the digits; about half of them are that digit."""
        target = rng.choice(DIGITS)
        count = rng.randint(max(1, 2 * self.size - 2), 2 * self.size)
        items = [target if rng.random() < 0.5 else rng.choice(DIGITS) for _ in range(count)]
        return f"{target}:{''.join(items)}="

    def work(self, prompt: str, slip: Slip) -> Work:
        """Each step shows the digit and the tally so far, modulo ten."""
        target, tally, steps = prompt[0], "0", []
        for item in prompt[2:-1]:
            tally = slip(str((int(tally) + (item == target)) % 10))
            steps.append((item, tally))
        return Work(steps, tally)
