"""Arithmetic modulo ten, from left to right: `7*3+8-2=` has the worked solution `*31+89-27#7`."""

from __future__ import annotations

import random

from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.scratch import DIGITS, ScratchTask, Slip, Work

_OPERATORS = "+-*"


class Arithmetic(ScratchTask):
    """A chain of `difficulty` operations, plus or minus one; every step keeps the last digit."""

    name = "arithmetic"

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self.max_length_hint = 3 * (self.size + 1) + 8

    def draw(self, rng: random.Random) -> str:
        """A chain such as `7*3+8-2=`."""
        count = rng.randint(max(1, self.size - 1), self.size + 1)
        tail = "".join(rng.choice(_OPERATORS) + rng.choice(DIGITS) for _ in range(count))
        return f"{rng.choice(DIGITS)}{tail}="

    def work(self, prompt: str, slip: Slip) -> Work:
        """Each step shows the operation and the running result."""
        value, steps = prompt[0], []
        for operator, operand in zip(prompt[1:-1:2], prompt[2:-1:2], strict=True):
            value = slip(str(_apply(int(value), operator, int(operand)) % 10))
            steps.append((operator + operand, value))
        return Work(steps, value)


def _apply(left: int, operator: str, right: int) -> int:
    if operator == "+":
        return left + right
    return left - right if operator == "-" else left * right
