"""`grpodoctor train --apply`: an observer treats the run, and the training reports it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.cli.treated_training import TrainApply, TreatmentLines, TreatmentOptions
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import EVENTS, Event
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import StepReport, Trainer

PATIENCE = 120.0
SETTINGS = (
    "threads=1",
    "steps=10000",
    "engine.precision=int4",
    "engine.old_logprobs=sampler",
    "rollout.prompts_per_batch=4",
    "rollout.group_size=4",
    "evaluation.every=0",
    "record.depth=off",
)


@pytest.fixture
def journal(tmp_path: Path) -> Callable[..., None]:
    """Appends a line to the journal of a run."""

    def append(kind: str, step: int, **body: object) -> None:
        with (tmp_path / EVENTS).open("ab") as file:
            file.write(Event(f"treatment-{kind}", step, body).to_line())

    return append


def test_a_run_is_treated_and_says_so(tmp_path: Path) -> None:
    trainer, said = Trainer(load_config(assignments=SETTINGS), tmp_path), list[str]()

    def show(report: StepReport) -> None:
        """Waits after twelve steps, until the observer has started and read them."""
        deadline = time.monotonic() + PATIENCE
        while report.step == 12 and not proposals(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
            trainer.recording.catch_up()
            trainer._handle_requests(13)  # what the next step would do first
        if said or report.step > 200:
            trainer.stop()

    with TreatmentOptions(TrainApply.SAFE).treating(tmp_path, said.append) as forks:
        trainer.run(forks.watching(trainer, show))
    (proposal,) = proposals(tmp_path)
    assert said[0] == (
        f"step {proposal.step}: recompute-old-logprobs is tried for MIS002: "
        f"{proposal.body['summary']}"
    )
    assert said[-1] == "the run ended before recompute-old-logprobs was kept or undone"


def proposals(run_dir: Path) -> list[Event]:
    return [each for each in read_run(run_dir).events if each.kind == "treatment-proposed"]


def test_each_end_of_a_treatment_is_one_line(tmp_path: Path, journal: Callable[..., None]) -> None:
    said = list[str]()
    journal("kept", 3, remedy="of-a-former-process", verdict="it fell")
    lines = TreatmentLines(tmp_path, said.append)
    journal("proposed", 7, remedy="tis", finding="MIS001", summary="It differs\nby 3 → 4.",
            reason="MIS002 explains MIS001")  # fmt: skip
    journal("switched", 9, remedy="tis")
    journal("undone", 30, remedy="tis", verdict="it does not fall")
    journal("refused", 31, file="x.json", reason="it is damaged")
    journal("stopped", 40, verdict="Stop the run: MIS001 is still critical.")
    lines.read()
    lines.end()
    assert said == [
        "step 7: tis is tried for MIS001: It differs by 3 → 4. (MIS002 explains MIS001)",
        "step 30: tis is undone: it does not fall",
        "step 31: a request is refused: it is damaged",
        "step 40: Stop the run: MIS001 is still critical.",
    ]
