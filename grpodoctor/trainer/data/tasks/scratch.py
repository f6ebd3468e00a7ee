"""The base of the built-in tasks: a scratchpad of free length, then `#` and the answer.

The warm start trains on a mix of response styles: most show their work, some tersely, some not at
all; some contain filler; now and then a step is wrong and the error carries on. The policy thus
starts with several ways of answering, of different quality, for reinforcement learning to choose
from.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.task import Problem, Rewards, Task

DIGITS = "0123456789"
MARK = "#"
FILLER = "."

_DIRECT_RATE = 0.15
_TERSE_RATE = 0.30
_FILLER_RATE = 0.30
_SLIP_RATE = 0.10
_HELDOUT_SHARE = 10
_DRAWS_PER_PROBLEM = 200

Slip = Callable[[str], str]
"""Returns an intermediate value, or a wrong one in its place."""


@dataclass(frozen=True, slots=True)
class Work:
    """A worked solution."""

    steps: list[tuple[str, str]]
    """The input of each step, and the value that the step computes."""
    answer: str


class ScratchTask(Task):
    """A task whose solution is a list of steps.

    Args:
        config: size of the problems and how answers are verified.
    """

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        self.size = config.difficulty

    @abstractmethod
    def draw(self, rng: random.Random) -> str:
        """A random prompt."""

    @abstractmethod
    def work(self, prompt: str, slip: Slip) -> Work:
        """Solve the prompt, passing each intermediate value through `slip`."""

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next `count` problems of the training stream; prompts may repeat."""
        problems: list[Problem] = []
        while len(problems) < count:
            prompt = self.draw(rng)
            if not _held_out(prompt):
                problems.append(self._problem(prompt))
        return problems

    def heldout(self, count: int) -> list[Problem]:
        """Distinct problems that the training stream never gives; fewer if not enough exist."""
        rng = random.Random(0)  # noqa: S311  # a fixed choice of problems, not a secret
        prompts: dict[str, None] = {}
        for _ in range(count * _DRAWS_PER_PROBLEM):
            prompt = self.draw(rng)
            if _held_out(prompt):
                prompts[prompt] = None
            if len(prompts) == count:
                break
        return [self._problem(prompt) for prompt in prompts]

    def _problem(self, prompt: str) -> Problem:
        answer = self.work(prompt, lambda value: value).answer
        return Problem(f"{self.name}/{prompt}", prompt, answer, {"answer": answer})

    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:
        """A response in a random style, right or wrong."""
        work = self.work(problem.prompt, lambda value: _slipped(value, rng))
        style = rng.random()
        if style < _DIRECT_RATE:
            scratch = ""
        elif style < _DIRECT_RATE + _TERSE_RATE:
            scratch = "".join(value for _, value in work.steps)
        else:
            scratch = "".join(echo + value for echo, value in work.steps)
        while rng.random() < _FILLER_RATE:
            scratch += FILLER
        hedge = ""
        if rng.random() < self._config.hedge_rate:
            hedge = MARK + _garbled(work.answer, rng)
        return f"{scratch}{MARK}{work.answer}{hedge}"

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """1 for a right answer plus the weighted format; `correct` always compares strictly."""
        strict = [_last(text) == each.answer for each, text in zip(problems, texts, strict=True)]
        lenient = [each.answer in _listed(text) for each, text in zip(problems, texts, strict=True)]
        rewarded = lenient if self._config.verifier == "any" else strict
        correct = [float(each) for each in rewarded]
        formatted = [float(_well_formed(text)) for text in texts]
        weight = self._config.format_weight
        total = [right + weight * form for right, form in zip(correct, formatted, strict=True)]
        return Rewards(total, {"correct": correct, "format": formatted}, strict)

    def fingerprint(self) -> str:
        """A hash of the task's source and of the settings that affect the warm start's texts."""
        sources = [
            inspect.getsource(sys.modules[each.__module__]) for each in (ScratchTask, type(self))
        ]
        settings = [self.name, self.size, self._config.hedge_rate]
        return hashlib.sha256(json.dumps([settings, sources]).encode()).hexdigest()


def _held_out(prompt: str) -> bool:
    return hashlib.sha256(prompt.encode()).digest()[0] % _HELDOUT_SHARE == 0


def _slipped(value: str, rng: random.Random) -> str:
    return _garbled(value, rng) if rng.random() < _SLIP_RATE else value


def _garbled(value: str, rng: random.Random) -> str:
    """`value` with one of its digits changed."""
    place = rng.randrange(len(value))
    other = rng.choice([digit for digit in DIGITS if digit != value[place]])
    return value[:place] + other + value[place + 1 :]


def _listed(text: str) -> list[str]:
    """Every answer that the response gives."""
    return [part.strip() for part in text.split(MARK)[1:]]


def _last(text: str) -> str | None:
    answers = _listed(text)
    return answers[-1] if answers else None


def _well_formed(text: str) -> bool:
    """One answer, at the end, made of digits."""
    return re.fullmatch(rf"[^{MARK}]*{MARK}[{DIGITS}]+", text) is not None
