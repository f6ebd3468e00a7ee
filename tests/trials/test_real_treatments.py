"""A treatment without effect in a real run: switched, undone, and the advice to stop."""

import math
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpodoctor.monitor.session import Session
from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.knobs import knobs_of
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import StepReport, Trainer
from grpodoctor.treatment.doctor import Doctor
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.switchback import FEWEST_CHANGES
from grpodoctor.vocabulary.knobs import Setting

SETTINGS = (
    "threads=1",
    "steps=60",
    "rollout.prompts_per_batch=4",
    "rollout.group_size=4",
    "evaluation.every=0",
    "record.depth=off",
)


class WithoutEffect(Remedy):
    """A knob that nothing reads; its target is constant, so that no draw can keep it."""

    id = "without-effect"
    title = "Without effect"
    applicability = "safe"
    in_flight = True
    slots = ("engine-correction",)
    target = Criterion("optimizer/learning_rate", "down")
    paper = ""

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        return {"correction_cap": 5.0} if knobs["correction_cap"] != 5.0 else {}


def critical() -> Finding:
    evidence = (Evidence("reward/mean", 8, 0.1, 0.5),)
    return Finding(
        "ILL001", "ill", "critical", 8, 8, True, "It is ill.", evidence, ("without-effect",), ()
    )


@pytest.mark.slow
def test_a_real_run_is_switched_undone_and_advised_to_stop(tmp_path: Path) -> None:
    trainer = Trainer(load_config(assignments=SETTINGS), tmp_path / "run")
    before = knobs_of(trainer.config)
    session, mailbox = Session(tmp_path / "run"), Mailbox(tmp_path / "run")
    doctor = Doctor([WithoutEffect()], "safe", DoctorSettings(block_steps=1, cool_down_steps=1))

    def treat(report: StepReport) -> None:
        # The recorder writes in the background: a slow disk must not cost the doctor its steps.
        deadline = time.monotonic() + 60
        while session.examination.engine.chart.step < report.step and time.monotonic() < deadline:
            tick, chart = session.tick(), session.examination.engine.chart
            if any(event.kind == "treatment-stopped" for event in tick.events):
                trainer.stop()
            for request in doctor.observe(chart, [critical()], tick.events):
                mailbox.send(request)

    trainer.run(treat)
    run = read_run(tmp_path / "run")
    kinds = [event.kind.removeprefix("treatment-") for event in run.events]
    kinds = [kind for kind in kinds if kind not in ("started", "finished")]
    assert kinds.count("switched") >= FEWEST_CHANGES
    assert [kind for kind in kinds if kind != "switched"] == [
        "proposed",
        "applied",
        "scheduled",
        "applied",
        "undone",
        "stopped",
    ]
    assert knobs_of(trainer.config) == before
    caps = {record.knobs["correction_cap"] for record in run.steps if record.knobs}
    assert caps == {5.0, before["correction_cap"]}
    undone, stopped = (event for event in run.events if event.kind[10:] in ("undone", "stopped"))
    assert undone.body["verdict"].startswith("optimizer/learning_rate does not fall")
    assert "ILL001 ill is still critical" in stopped.body["verdict"]
    rewards = {each.step: each.values["reward/mean"] for each in run.steps}
    best = rewards[stopped.body["best_step"]].value  # type: ignore[union-attr]
    early = [each.value for step, each in rewards.items() if step <= stopped.step]  # type: ignore[union-attr]
    assert math.isclose(best, max(early)) or best >= sorted(early)[-3]
