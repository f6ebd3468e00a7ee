"""`check` on completion files of real trainings with TRL, which evaluations overwrite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.vocabulary.values import scalar

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and its dependencies have their own

MakeTrainer = Callable[..., Any]
RECOMPUTED = "reward/mean/recomputed"
FROM_DUMP = "advantage/abs_max"
"""A metric that TRL does not log."""
TRAINED_ON = {f"{number}+{number + 1}=" for number in range(14, 42)}
"""Prompts that are not held out."""


@pytest.mark.parametrize(
    ("iterations", "evaluated", "unused"), [(1, [2, 4, 5], {2, 4, 5}), (2, [3, 6], {3, 4, 6})]
)
def test_responses_of_an_evaluation_are_not_training_responses(
    make_trainer: MakeTrainer, iterations: int, evaluated: list[int], unused: set[int]
) -> None:
    trainer = make_trainer(
        evaluates=True, max_steps=6 if iterations > 1 else 5, num_iterations=iterations,
        log_completions=True, num_completions_to_print=0, eval_strategy="steps",
        eval_steps=evaluated[0], per_device_eval_batch_size=16,
    )  # fmt: skip
    trainer.train()
    folder = Path(trainer.args.output_dir)
    trainer.state.save_to_json(str(folder / "trainer_state.json"))
    run = open_run(folder)
    assert isinstance(run, FrameworkRun)
    records = list(run.steps)
    for record in records:
        file = folder / "completions" / f"completions_{record.step:05d}.parquet"
        held_out = not TRAINED_ON & set(pq.read_table(file)["prompt"].to_pylist())
        assert held_out == (record.step in unused)
        assert (FROM_DUMP not in record.values) == held_out
        assert ("reward/heldout" in record.values) == (record.step in evaluated)
        assert bool(list(run.rollouts(record.step))) != held_out
        if RECOMPUTED in record.values:
            logged = scalar(record.values["reward/mean"])
            assert scalar(record.values[RECOMPUTED]) == pytest.approx(logged)
    assert any("evaluation has overwritten" in note for note in run.notes)
