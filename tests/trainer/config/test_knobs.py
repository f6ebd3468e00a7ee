"""Knobs of a live run: requests are applied within bounds, and all are answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.bundled.knobs import KEYS
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import Event
from grpodoctor.trainer.config.knobs import apply_change, knobs_of
from grpodoctor.trainer.config.train_config import known_keys, load_config
from grpodoctor.trainer.loop import StepReport, Trainer
from grpodoctor.treatment.mailbox import Mailbox, Request
from grpodoctor.vocabulary.knobs import KNOBS, Setting
from grpodoctor.vocabulary.values import scalar

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=4", "evaluation.every=0"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)


def test_every_knob_is_a_setting_of_the_configuration() -> None:
    assert set(KEYS) == set(KNOBS)
    assert set(KEYS.values()) <= set(known_keys())
    for knob, setting in knobs_of(load_config()).items():
        assert KNOBS[knob].check(setting) == setting


@pytest.mark.parametrize(
    ("knob", "setting"),
    [
        *(("clip_high", 0.28), ("clip_low", 0.1), ("aggregation", "constant")),
        *(("advantage", "centred"), ("correction", "tis_sequence"), ("correction_cap", 5.0)),
        *(("old_logprobs", "sampler"), ("dynamic_sampling", True), ("overlong", "mask")),
        *(("overlong_buffer", 6), ("kl_coefficient", 0.04), ("entropy_coefficient", 0.01)),
        *(("learning_rate", 5e-5), ("temperature", 0.8), ("updates_per_batch", 2)),
        ("sampler_sync_every", 3),
    ],
)
def test_a_change_sets_its_knob_and_nothing_else(knob: str, setting: Setting) -> None:
    before = load_config()
    after = knobs_of(apply_change(before, {knob: setting}))
    assert after == {**knobs_of(before), knob: setting}
    undone = apply_change(apply_change(before, {knob: setting}), {knob: knobs_of(before)[knob]})
    assert undone == before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"clip_hihg": 0.28}, "did you mean clip_high"),
        ({"clip_low": 3.0}, "clip_low cannot be"),
        ({"group_size": 16}, "cannot change during training"),
        ({"learning_rate": "fast"}, "learning_rate cannot be"),
        ({"learning_rate": float("nan")}, "learning_rate cannot be"),
        ({"updates_per_batch": 64}, "a prompt's responses stay together"),
        (
            {"correction": "tis_token", "old_logprobs": "sampler"},
            "corrects the gap between sampler and learner",
        ),
    ],
)
def test_a_change_that_does_not_fit_is_refused(
    changes: Mapping[str, Setting], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        apply_change(load_config(), changes)


def run_with(run_dir: Path, sent: Mapping[int, Request], *assignments: str) -> Trainer:
    """A run of four steps; each request is sent after the step that is its key."""
    trainer = Trainer(load_config(assignments=[*SMALL, *assignments]), run_dir)
    mailbox = Mailbox(run_dir)

    def post(report: StepReport) -> None:
        if report.step in sent:
            mailbox.send(sent[report.step])

    trainer.run(post)
    return trainer


def answers(run_dir: Path) -> list[Event]:
    return [event for event in read_run(run_dir).events if event.kind.startswith("treatment-")]


def change(kind: Any, **changes: Setting) -> Request:
    return Request("r1", kind, treatment_id="t1", remedy="some-remedy", changes=changes)


def test_a_live_run_applies_a_change_and_records_it(tmp_path: Path) -> None:
    sent = {2: change("apply", learning_rate=1e-6, clip_high=0.5)}
    trainer = run_with(tmp_path / "run", sent, "optimizer.learning_rate=1e-4")
    (applied,) = answers(tmp_path / "run")
    assert applied.kind == "treatment-applied"
    assert applied.step == 3
    assert applied.body["before"] == {"learning_rate": 1e-4, "clip_high": 0.2}
    assert applied.body["after"] == {"learning_rate": 1e-6, "clip_high": 0.5}
    assert applied.body["treatment_id"] == "t1"
    steps = list(read_run(tmp_path / "run").steps)
    rates = [scalar(step.values["optimizer/learning_rate"]) for step in steps]
    assert rates == [1e-4, 1e-4, 1e-6, 1e-6]
    assert [dict(step.knobs) for step in steps] == [{}, {}, applied.body["after"], {}]
    assert trainer.config.loss.clip_high == 0.5


def test_a_disallowed_request_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    sent = {1: change("apply", group_size=8), 2: change("apply", clip_high=99.0, clip_low=0.1)}
    trainer = run_with(tmp_path / "run", sent)
    untouched = run_with(tmp_path / "untouched", {})
    refused = answers(tmp_path / "run")
    assert [event.kind for event in refused] == ["treatment-refused"] * 2
    assert "cannot change during training" in refused[0].body["reason"]
    assert "clip_high" in refused[1].body["reason"]
    assert trainer.config == untouched.config
    left, right = (each.policy.model.state_dict() for each in (trainer, untouched))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_conflict_is_refused_and_training_continues(tmp_path: Path) -> None:
    sent = {1: change("apply", correction="tis_token")}
    trainer = run_with(tmp_path / "run", sent, "engine.old_logprobs=sampler")
    (refused,) = answers(tmp_path / "run")
    assert "set engine.old_logprobs=recompute" in refused.body["reason"]
    assert trainer.done == 4


def test_a_broken_request_is_answered(tmp_path: Path) -> None:
    trainer = Trainer(load_config(assignments=SMALL), tmp_path / "run")
    (tmp_path / "run" / "mailbox").mkdir(exist_ok=True)
    (tmp_path / "run" / "mailbox" / "1.json").write_text("{")
    trainer.run()
    (refused,) = answers(tmp_path / "run")
    assert refused.kind == "treatment-refused"


def test_a_note_is_recorded_as_an_event(tmp_path: Path) -> None:
    event = {"kind": "treatment-proposed", "step": 2, "why": "[bold]because[/bold]"}
    run_with(tmp_path / "run", {2: Request("n1", "note", event=event)})
    (noted,) = answers(tmp_path / "run")
    assert noted.kind == "treatment-proposed"
    assert noted.body == {"why": "[bold]because[/bold]"}


@pytest.mark.slow
def test_a_kl_penalty_added_during_a_run_refers_to_the_initial_model(tmp_path: Path) -> None:
    sent = {2: change("apply", kl_coefficient=0.1)}
    trainer = run_with(tmp_path / "run", sent, "optimizer.learning_rate=1e-3")
    steps = list(read_run(tmp_path / "run").steps)
    assert ["kl/reference/k3" in step.values for step in steps] == [False, False, True, True]
    assert (scalar(steps[2].values["kl/reference/k3"]) or 0) > 1e-4
    fresh = Trainer(load_config(assignments=SMALL), tmp_path / "fresh")
    assert trainer.reference.loaded is not None
    reference, initial = (
        each.model.state_dict() for each in (trainer.reference.loaded, fresh.policy)
    )
    assert all(torch.equal(reference[name], initial[name]) for name in initial)
    fresh.recording.close(finished=False)


@pytest.mark.slow
def test_tis_is_switched_on_during_a_run_with_engine_mismatch(tmp_path: Path) -> None:
    tis: dict[str, Setting] = {
        "old_logprobs": "recompute",
        "correction": "tis_token",
        "correction_cap": 2.0,
    }
    sick = ("engine.precision=int4", "engine.old_logprobs=sampler")
    run_with(tmp_path / "run", {2: change("apply", **tis)}, *sick)
    steps = list(read_run(tmp_path / "run").steps)
    off = [scalar(step.values["mismatch/first_ratio_off"]) or 0 for step in steps]
    assert min(off[:2]) > 0.5
    assert max(off[2:]) == 0
    assert ["correction/weight_mean" in step.values for step in steps] == [
        *(False, False),
        *(True, True),
    ]


def test_an_engine_that_is_synced_less_often_grows_stale(tmp_path: Path) -> None:
    run_with(tmp_path / "run", {1: change("apply", sampler_sync_every=4)})
    steps = read_run(tmp_path / "run").steps
    assert [scalar(step.values["staleness/mean"]) for step in steps] == [0, 0, 4, 8]
