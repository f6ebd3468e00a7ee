"""Snapshots around a step: what was known then, bounded, without secrets."""

import json

import numpy as np
import pytest

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.monitor.outgoing.public_config import HIDDEN, public_config
from grpodoctor.monitor.outgoing.step_snapshot import SnapshotRequest, step_snapshot
from grpodoctor.monitor.session import Session
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.support.safe_text import json_bytes
from tests.cli.in_process import run
from tests.report.simulated import HOSTILE, manifest, readings, record_run, rollouts

LARGEST = 128 * 1024


def test_it_shows_what_a_watch_showed_at_that_step(sick, tmp_path):
    early, late = (step_snapshot(sick, SnapshotRequest(around)) for around in (12, 45))
    assert early["verdict"]["kind"] != "sick"
    assert early["findings"] == []
    assert late["verdict"]["kind"] == "sick"
    part = record_run(tmp_path / "part", 51, sick_from=20, finished=False)
    session = Session(part)
    session.read_all()
    expected = session.examination.report().to_json()["findings"]
    shown = {each["code"]: each["summary"] for each in late["findings"]}
    assert shown == {each["code"]: each["summary"] for each in expected if each["active"]}
    assert len(shown) > 2


def test_values_are_those_of_the_window(sick):
    data = step_snapshot(sick, SnapshotRequest(30, window=3))
    assert data["window"]["steps"] == [27, 28, 29, 30, 31, 32, 33]
    reward = next(each for each in data["vitals"] if each["metric"] == "reward/mean")
    expected = [readings(step, sick_from=20)["reward/mean"].value for step in range(27, 34)]
    assert reward["values"] == expected
    assert data["readings"]["reward/mean"] == expected[3]
    assert step_snapshot(sick)["window"]["steps"] == list(range(54, 60))
    assert step_snapshot(sick, SnapshotRequest(0, window=2))["window"]["steps"] == [0, 1, 2]
    assert step_snapshot(sick, SnapshotRequest(0, window=0))["window"]["steps"] == [0]


def test_the_worst_responses_come_from_the_nearest_step_with_responses(sick):
    data = step_snapshot(sick, SnapshotRequest(38, window=5, responses=3))
    batch = rollouts(40)
    gaps_B = np.abs(batch.learner_logprobs_BT - batch.sampler_logprobs_BT).max(axis=1)
    responses = {each["why"]: each for each in data["responses"]}
    worst = next(each for why, each in responses.items() if why.startswith("largest log-prob"))
    assert worst["sequence_id"] == f"step-40/seq-{gaps_B.argmax()}"
    assert worst["text"] == f"7*3=21 #1$ ({gaps_B.argmax()})"
    assert 0 < len(data["responses"]) <= 3
    assert step_snapshot(sick, SnapshotRequest(30, window=5))["responses"] == []


def test_a_run_that_went_back_shows_the_later_pass(tmp_path):
    path = record_run(tmp_path / "run", 30, finished=False)
    recorder = Recorder.open(path, manifest(), resume=True)
    for step in range(10, 20):
        recorder.step(step, readings(step, sick_from=None, seed=5))
    recorder.close()
    data = step_snapshot(path, SnapshotRequest(12, window=1))
    reward = next(each for each in data["vitals"] if each["metric"] == "reward/mean")
    assert data["window"]["steps"] == [11, 12, 13]
    assert reward["values"][1] == readings(12, sick_from=None, seed=5)["reward/mean"].value
    with pytest.raises(ConfigError, match="choose a step from 0 to 19"):
        step_snapshot(path, SnapshotRequest(25))


def test_a_log_of_a_framework_whose_steps_have_gaps(tmp_path):
    log = tmp_path / "trainer_log.jsonl"
    rows = [
        {"step": step, "reward": 0.1 + step / 1000, "loss": 0.1, "grad_norm": 1.0,
         "completions/mean_length": 50.0, "entropy": 0.5, "reward_std": 0.3, "learning_rate": 1e-6}
        for step in range(10, 310, 10)
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = step_snapshot(log, SnapshotRequest(105, window=2))
    assert data["window"]["steps"] == [80, 90, 100, 110, 120]
    assert (data["window"]["step"], data["window"]["around"]) == (100, 105)


def test_a_hostile_run_stays_bounded_and_printable(tmp_path):
    config = {f"key{n}/{HOSTILE}": HOSTILE * 50 for n in range(1000)}
    path = record_run(
        tmp_path / "run", 45, sick_from=12, text=HOSTILE * 3000, config=config,
        model=HOSTILE * 100, versions={HOSTILE * 9 + str(n): HOSTILE for n in range(99)},
    )  # fmt: skip
    data = step_snapshot(path, SnapshotRequest(40, window=50, responses=16))
    text = json_bytes(data, indent=True)
    assert len(text) < LARGEST
    assert not set(text.decode()) & set("\x00\x1b\u202e\x9b")
    assert data["responses"][0]["text_characters"] > 100_000
    assert "characters left out" in data["responses"][0]["text"]
    assert data["findings"]


@pytest.mark.parametrize(
    "key",
    ["hub_token", "HF_TOKEN", "api_key", "wandb.api_key", "a.secret_key", "smtp.password", "token",
     "slack_webhook_url", "aws_secret_access_key"],
)  # fmt: skip
def test_settings_that_look_like_secrets_are_hidden_by_key(key):
    assert public_config({key: "abc"}) == {key: HIDDEN}


def test_settings_that_look_like_secrets_are_hidden_by_value():
    values = {
        "a": "hf_abcdefghijkl", "b": "sk-abcdefghijkl", "c": "https://me:word@example.org/x",
    }  # fmt: skip
    assert set(public_config(values).values()) == {HIDDEN}
    plain = {
        "pad_token": "<pad>", "max_tokens": 512, "tokenizer": "x/y", "loss_type": "token-mean",
        "num_input_tokens_seen": 9, "url": "https://example.org/a:b@c", "key": "answer",
    }  # fmt: skip
    assert public_config(plain) == plain


def test_command(sick, tmp_path):
    done = run("snapshot", sick, "--around", "45", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads(
        json_bytes(step_snapshot(sick, SnapshotRequest(45)))
    )
    text = run("snapshot", sick, "--around", "45").stdout
    assert "REW002" in text
    assert "steps 40 to 50, around step 45" in text
    for path, why in ((tmp_path / "no", "no such file"), ("s3://bucket/run", "cannot take a")):
        failed = run("snapshot", path, "--json")
        assert (failed.returncode, failed.stderr.count("\n")) == (2, 1)
        assert why in failed.stderr


def test_a_run_without_steps_is_refused(tmp_path):
    Recorder.open(tmp_path / "run", manifest()).close()
    with pytest.raises(RunError):
        step_snapshot(tmp_path / "run")
