"""Odd data sets and reward functions for every check: `python -m tests.fuzz.odd_tables`.

Each table has prompts, answers and further columns of random kinds, a part of them missing or of
another kind, and a reward function that may fail. A preflight must end with its results or with the
documented error in one line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.errors import GrpodoctorError
from grpodoctor.preflight.catalogue import select_checks_and_rules
from grpodoctor.preflight.inputs.request import PreflightRequest
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.run import run_preflight
from grpodoctor.rules.lint import config_rules

_ROWS = (1, 2, 7, 40)
_WORDS = (
    *("the", "red", "fox", "solves", "x + y = 7", "and", "{json}", "<b>tags</b>"),
    *("\\frac{1}{2}", "über", "東京", "123", "-4.5e3"),
)
_PROMPTS: dict[str, Callable[[np.random.Generator], Any]] = {
    "sum": lambda random: f"What is {random.integers(99)} + {random.integers(99)}?",
    "words": lambda random: " ".join(random.choice(_WORDS, 12)),
    "chat": lambda random: [
        {"role": "system", "content": "Answer in <answer></answer>."},
        {"role": "user", "content": " ".join(random.choice(_WORDS, 8))},
    ],
    "one message": lambda random: {"role": "user", "content": f"Say {random.integers(9)}."},
    "parts": lambda _: [{"role": "user", "content": [{"type": "text", "text": "Look."}]}],
    "choices": lambda random: f"Pick one of {random.integers(9)}:\n(A) one\n(B) two\n(C) three",
    "code": lambda _: "def f(x):\n    return x\n# What does print(f(3)) print?",
    "empty": lambda _: "",
    "same": lambda _: "Solve the puzzle and put the result in \\boxed{}.",
    "odd characters": lambda random: "\x00\u202e" + "�" * int(random.integers(5)),
    "numbers": lambda random: int(random.integers(9)),
    "nothing": lambda _: None,
}
_ANSWERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "integer": lambda random: int(random.integers(200)),
    "number": lambda random: float(random.normal(0, 100)),
    "digits": lambda random: str(random.integers(200)),
    "letter": lambda random: str(random.choice(list("ABC"))),
    "words": lambda random: " ".join(random.choice(_WORDS, 3)),
    "list": lambda random: [str(each) for each in random.integers(9, size=random.integers(4))],
    "object": lambda random: {"name": "call", "arguments": {"x": int(random.integers(9))}},
    "JSON": lambda random: json.dumps({"a": [1, None], "b": str(random.integers(9))}),
    "boxed": lambda random: f"So it is \\boxed{{{random.integers(9)}}}.",
    "solution": lambda random: f"First 3.\n#### {random.integers(99)}",
    "verdict": lambda random: bool(random.integers(2)),
    "blank": lambda _: " ",
    "infinite": lambda random: float(random.choice([np.inf, -np.inf, np.nan])),
    "huge": lambda random: 10 ** int(random.integers(300)),
    "unfinished": lambda random: "{[(" + "\\frac{" * int(random.integers(40)),
    "nothing": lambda _: None,
}
_REWARDS = {
    "exact": "return [float(c.strip() == str(a)) for c, a in zip(texts, answers)]",
    "contains": "return [float(str(a) in c) for c, a in zip(texts, answers)]",
    "length": "return [len(c) / 100 for c in texts]",
    "constant": "return [1.0] * len(texts)",
    "tag": "return [float('<answer>' in c) for c in texts]",
    "number": "return [float(re.findall(r'-?[0-9.]+', c)[-1]) for c in texts]",
    "too few": "return [1.0]",
    "nothing": "return None",
    "no numbers": "return ['good'] * len(texts)",
    "not finite": "return [float('nan')] * len(texts)",
    "some": "return [None if len(c) % 2 else 0.5 for c in texts]",
    "random": "return [random.random() for c in texts]",
    "raises": "raise ValueError('no key')",
    "batch": "return [float(len(c) > sum(map(len, texts)) / len(texts)) for c in texts]",
}
_SOURCE = """
import random, re

def reward(completions, **columns):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    answers = columns.get("answer") or columns.get("extra") or [""] * len(texts)
    {body}
"""


def random_inputs(seed: int, folder: Path) -> PreflightRequest:
    """Write the files of a seed's planned run into an empty folder."""
    random = np.random.default_rng(seed)
    count = int(random.choice(_ROWS))
    kinds = {
        "prompt": random.choice(list(_PROMPTS), 2),
        "answer": random.choice(list(_ANSWERS), 2),
        "extra": random.choice(list(_ANSWERS), 2),
    }
    makers = {"prompt": _PROMPTS, "answer": _ANSWERS, "extra": _ANSWERS}
    columns = {"prompt": 1.0, "answer": 0.85, "extra": 0.4}
    present = [name for name, chance in columns.items() if random.random() < chance]
    mixed = float(random.choice([0.0, 0.0, 0.1]))
    rows = [
        {
            name: makers[name][str(kinds[name][int(random.random() < mixed)])](random)
            for name in present
            if random.random() < 0.99
        }
        for _ in range(count)
    ]
    rows += rows[: int(random.choice([0, 0, count // 2]))]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = None
    if random.random() < 0.85:
        body = _REWARDS[str(random.choice(list(_REWARDS)))]
        (folder / "rewards.py").write_text(_SOURCE.replace("{body}", body))
        reward = f"{folder / 'rewards.py'}:reward"
    return PreflightRequest(
        folder=folder / "work",
        settings=RunSettings(),
        prompts=folder / "rows.jsonl",
        reward=reward,
        reward_seconds=5.0,
    )


def outcome_of(seed: int, folder: Path) -> str:
    """Run a preflight on the inputs of a seed; return the documented error, or nothing.

    Raises:
        AssertionError: if a check raised; the message says where.
    """
    checks = select_checks_and_rules((), config_rules=config_rules())
    try:
        results = run_preflight(random_inputs(seed, folder), *checks)
    except GrpodoctorError as error:
        return str(error)
    defects = [each.reason for each in results.failed if "a defect in" in each.reason]
    assert not defects, defects
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; the exit code is 1 if a check raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.odd_tables")
    parser.add_argument("--count", type=int, default=300, help="Number of tables. [default: 300]")
    parser.add_argument("--seed", type=int, default=0, help="First seed. [default: 0]")
    options = parser.parse_args(arguments)
    raised = refused = 0
    for seed in range(options.seed, options.seed + options.count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                refused += bool(outcome_of(seed, Path(folder)))
            except Exception as error:  # noqa: BLE001 - counted and printed
                raised += 1
                print(f"seed {seed}: {error!r}", flush=True)
    print(f"{options.count} tables, {refused} refused in one line, {raised} raised")
    return min(1, raised)


if __name__ == "__main__":
    sys.exit(main())
