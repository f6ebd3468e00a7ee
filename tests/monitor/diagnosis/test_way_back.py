"""The checkpoint to return to: from before every alarm that the verdict names, and a saved one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.monitor.advice import advice_for, with_alternatives
from grpodoctor.monitor.diagnosis.first_action import WayBack, first_action_of
from grpodoctor.monitor.diagnosis.past_faults import first_named
from grpodoctor.monitor.diagnosis.verdict import verdict_of
from grpodoctor.monitor.examination import Examination
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.saved_checkpoints import SavedCheckpoints, saved_checkpoints
from grpodoctor.remedies.base import ONSET
from grpodoctor.rules.catalogue import all_rules, rule_of
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event, Manifest
from tests.monitor.diagnosis.test_verdict import EVIDENCE, problem
from tests.rules.scenario import noisy, steps

LAST = "Return to the last checkpoint saved before step 50"
LATE = "Return to the checkpoint of step"


def collapse(**facts):
    fall = problem("REW002", "reward-loss", severity="critical", onset=92, **facts)
    return replace(fall, cause=replace(fall.cause, remedies=rule_of("REW002").remedies))


def action(way_back):
    ids = with_alternatives(rule_of("REW002").remedies)
    advice = {each: advice_for(each, {}, "verl") for each in ids}
    return first_action_of(collapse(), advice, way_back)


def test_the_checkpoint_is_from_before_an_earlier_alarm_that_the_verdict_names():
    drift = problem("KLD002", "reference-drift", onset=50)
    named = first_named(collapse(), [drift], opening=10, slack=10)
    assert named == 50
    line = action(WayBack(named))
    assert line.startswith("Return to a checkpoint from before step 50, then ")
    verdict = verdict_of([collapse(), drift], replace(EVIDENCE, opening=10, slack=10), line)
    assert "before step 50" in verdict.line
    assert "Earlier: KLD002" in verdict.line
    early = problem("KLD002", "reference-drift", onset=2)
    assert first_named(collapse(), [early], opening=10, slack=10) == 92, "not named, so no bound"


@pytest.mark.parametrize(
    ("saved", "start"),
    [
        (SavedCheckpoints((20, 40, 60)), f"{LAST} (step 40), then "),
        (SavedCheckpoints((20, 40, 49)), f"{LAST} (step 40), then "),  # step 50 shows the last one
        (SavedCheckpoints(interval=15), f"{LAST} (step 45), then "),
        (SavedCheckpoints(interval=7), f"{LAST} (step 42), then "),
        (SavedCheckpoints((60, 80)), f"{LATE} 60 (none was saved before the alarm at step 50, so"),
        (SavedCheckpoints(interval=50), f"{LATE} 50 (none was saved before the alarm at step 50"),
        (SavedCheckpoints((95,)), "Restart from the initial model (no checkpoint was saved before"),
        (SavedCheckpoints(interval=100), "Restart from the initial model (no checkpoint was saved"),
        (SavedCheckpoints((60,), is_complete=False), "Return to a checkpoint from before step 50"),
    ],
)  # fmt: skip
def test_a_saved_checkpoint_is_named(saved, start):
    assert action(WayBack(50, saved)).startswith(start)


@pytest.mark.parametrize(
    ("saved", "text"),
    [
        (SavedCheckpoints((20, 40, 60)), " (step 40)"),
        (SavedCheckpoints((60,)), " (none was saved: test the one of step 60, and take it if"),
        (SavedCheckpoints((95,)), " (none was saved: restart from the initial model)"),
        (SavedCheckpoints(), "."),
    ],
)
def test_an_instruction_names_the_checkpoint_as_well(saved, text):
    instruction = f"Resume from the last checkpoint before {ONSET}."
    named = WayBack(50, saved).named_in(instruction, collapse().cause)
    assert named.startswith(f"Resume from the last checkpoint before step 50{text}")


def test_a_fault_from_the_first_step_on_has_no_way_back():
    assert "checkpoint" not in action(WayBack(1, first_step=1))


@pytest.mark.parametrize(
    ("framework", "config", "interval"),
    [
        ("verl", {"trainer.save_freq": 50}, 50),
        ("verl", {"trainer.save_freq": -1}, 0),
        ("trl", {"save_steps": 25}, 25),
        ("trl", {"save_steps": 0.1}, 0),
        ("trl", {"save_steps": 25, "save_strategy": "epoch"}, 0),
        ("acme", {"save_steps": 25}, 0),
    ],
)
def test_the_interval_is_read_from_the_config(framework, config, interval):
    chart = Chart(Manifest(framework=framework, config=config))
    assert saved_checkpoints(chart, 1).interval == interval


def collapsing():
    """A run of 100 steps whose reward collapses at step 60."""
    return steps(100, {"reward/mean": noisy([*[0.6] * 60, *[0.0] * 40], 0.02, 3)})


def test_a_trainer_state_states_the_interval(tmp_path):
    constant = {"reward_std": 0.3, "kl": 0.01, "completions/mean_length": 80.0, "grad_norm": 0.3,
                "loss": 0.01, "learning_rate": 1e-6}  # fmt: skip
    rows = [
        {"step": record.step, "reward": record.values["reward/mean"].value, **constant}
        for record in collapsing()
    ]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"save_steps": 20, "global_step": 99, "log_history": rows}))
    verdict = replay(state).report.diagnosis.verdict
    assert "last checkpoint saved before step 60 (step 40)" in verdict.sentence, verdict.line


def test_the_journal_notes_checkpoints():
    examination = Examination(Path("run"), Manifest(framework="verl"), all_rules())
    for record in collapsing():
        examination.observe(record)
        if record.step in (25, 75):
            examination.note(Event(kind="checkpoint", step=record.step))
    sentence = examination.report().diagnosis.verdict.sentence
    assert "last checkpoint saved before step 60 (step 25)" in sentence


def test_steps_that_took_time_to_save_have_a_checkpoint(tmp_path):
    """A log of verl without its config."""
    rows = []
    for record in collapsing():
        row = {
            "critic/score/mean": record.values["reward/mean"].value,
            "actor/grad_norm": 0.3,
            "actor/kl_loss": 0.01,
        }
        if record.step and record.step % 40 == 0:
            row["timing_s/save_checkpoint"] = 12.5
        rows.append(json.dumps({"step": record.step, "data": row}))
    (tmp_path / "log.jsonl").write_text("\n".join(rows))
    verdict = replay(tmp_path / "log.jsonl").report.diagnosis.verdict
    assert verdict.code == "REW002", verdict.line
    assert "last checkpoint saved before step 60 (step 40)" in verdict.sentence
