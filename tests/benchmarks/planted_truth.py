"""What a planted cause does to the policy: its accuracy on held-out prompts, by the right verifier.

The figure is written next to the run, where `check` does not read it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

PROMPTS = 512

HARMLESS = 0.6
"""Accuracy from which a planted cause did no measurable harm. The healthy runs of the same task
end at .63 to .72 after 80 steps and more, with a standard error of .02; all start at .41."""


def true_accuracy(model: Any, tokenizer: Any, task_config: Any, max_length: int) -> float:
    """Share of held-out prompts that the policy solves at temperature 1."""
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.engines.sampler import sample

    task: Any = build_task(task_config)
    problems = task.heldout(PROMPTS)
    model.eval()
    with torch.no_grad():
        responses = sample(
            model,
            [tokenizer.encode(problem.prompt) for problem in problems],
            max_length=max_length,
            temperature=1.0,
            tokenizer=tokenizer,
            generator=torch.Generator().manual_seed(0),
        )
    texts = [tokenizer.decode(ids) for ids in responses.response_ids()]
    correct = task.score(problems, texts).correct
    return sum(correct) / len(correct)


def write(run_dir: Path, accuracy: float) -> None:
    """Keep the accuracy of the final policy of a run."""
    path_of(run_dir).write_text(json.dumps({"accuracy": accuracy}), encoding="utf-8")


def read(run_dir: Path) -> float:
    """The accuracy of the final policy of a run."""
    return float(json.loads(path_of(run_dir).read_text("utf-8"))["accuracy"])


def path_of(run_dir: Path) -> Path:
    """Where the accuracy of a run is kept."""
    seed = run_dir.name.rpartition("-")[2]
    return run_dir.with_name(f"truth-{seed}.json")
