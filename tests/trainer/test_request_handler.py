"""A treatment changes only the settings that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.treatment.mailbox import Mailbox, Request

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=3", "evaluation.prompts=8"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "evaluation.every=0"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)
CHANGES = {"clip_high": 0.28, "kl_coefficient": 0.01, "dynamic_sampling": True}
CHANGED = ("loss.clip_high=0.28", "loss.kl_coefficient=0.01", "rollout.dynamic_sampling=true")


def weights(run_dir: Path, *assignments: str, treated: bool = False) -> list[torch.Tensor]:
    trainer = Trainer(load_config(assignments=[*SMALL, *assignments]), run_dir)
    for number, (knob, setting) in enumerate(CHANGES.items() if treated else ()):
        request = Request(f"r{number}", "apply", f"t{number}", "by-hand", {knob: setting})
        Mailbox(run_dir).send(request)
    trainer.run()
    return list(trainer.policy.model.state_dict().values())


@pytest.mark.parametrize("depth", ["off", "full"])
def test_a_treated_run_equals_a_run_configured_that_way(depth: str, tmp_path: Path) -> None:
    treated = weights(tmp_path / "treated", f"record.depth={depth}", treated=True)
    kinds = [event.kind for event in read_run(tmp_path / "treated").events]
    assert kinds.count("treatment-applied") == len(CHANGES)
    configured = weights(tmp_path / "configured", "record.enabled=false", *CHANGED)
    untreated = weights(tmp_path / "untreated", "record.enabled=false")
    assert all(map(torch.equal, treated, configured))
    assert not all(map(torch.equal, treated, untreated))
