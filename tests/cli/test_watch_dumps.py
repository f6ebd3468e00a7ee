"""`watch` in a real process on rollout dumps that another process writes, with and without logs.

The writers write as the frameworks do: verl a file for each step at once, from a separate thread,
so that it may come after the step's line; prime-rl a response at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]

VERL = """
import json, sys, time
from pathlib import Path

root, logged = Path(sys.argv[1]), sys.argv[2] == "logged"
(root / "rollouts").mkdir(parents=True)
for step in range(1, 200):
    row = {"step": step, "data": {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0 + step % 3 / 10,
           "actor/entropy": 0.5, "critic/score/mean": 0.9, "response_length/mean": 40.0}}
    dump = "".join(json.dumps({"input": f"what is {n // 8} + {step}?", "output": f"it is {n}",
                               "gts": "", "score": float(n % 16 == 0), "step": step}) + "\\n"
                   for n in range(512))
    if logged:
        with open(root / "metrics.jsonl", "a") as file:
            file.write(json.dumps(row) + "\\n")
    with open(root / "rollouts" / f"{step}.jsonl", "w") as file:
        for start in range(0, len(dump), 9000):
            file.write(dump[start : start + 9000])
            file.flush()
            time.sleep(0.005)
    time.sleep(0.2)
"""

PRIME = """
import json, sys, time
from pathlib import Path

root = Path(sys.argv[1])
for step in range(1, 200):
    folder = root / "rollouts" / f"step_{step}" / "train" / "all"
    folder.mkdir(parents=True)
    for n in range(16):
        nodes = [{"message": {"role": "user", "content": f"q{n // 8}"}, "token_ids": [1],
                  "mask": [False]},
                 {"message": {"role": "assistant", "content": "a" * n}, "sampled": True,
                  "token_ids": [5] * (n + 1), "mask": [True] * (n + 1)}]
        trace = {"agent": {"trainable": True}, "nodes": nodes,
                 "rewards": {"r": {"score": 0.0, "weight": 1.0}}, "calls": []}
        row = {"id": f"{step}-{n}", "task": {"type": "T", "data": {}}, "group": {"id": str(n // 8)},
               "traces": [trace]}
        with open(folder / "traces.jsonl", "a") as file:
            file.write(json.dumps(row) + "\\n")
        time.sleep(0.01)
    time.sleep(0.4)
"""

OWN = """
import sys, time
from pathlib import Path
import numpy as np
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.values import Mean

if __name__ == "__main__":
    with Recorder.open(Path(sys.argv[1]), Manifest()) as run:
        for step in range(12):
            source = np.random.default_rng(step)
            batch = RolloutBatch(
                step=step, sequence_ids=[f"{step}/{n}" for n in range(32)],
                group_ids_B=np.arange(32) // 8, prompt_ids=["p"] * 32, prompts=["?"] * 32,
                texts=["so then"] * 32, references=[""] * 32,
                tokens_BT=source.integers(0, 50, (32, 6)), mask_BT=np.ones((32, 6), bool),
                rewards_B=source.random(32), truncated_B=np.zeros(32, bool))
            shaped = {"reward/mean": Mean.of(batch.rewards_B + 0.2)}
            run.step(step, StepBatch(rollouts=batch, readings=shaped), rollouts=batch)
            time.sleep(0.15)
"""


@contextmanager
def program(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended with the block, and after a bounded time in any case."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, *command], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    ends = threading.Timer(PATIENCE, process.kill)
    ends.start()
    try:
        yield process
    finally:
        ends.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def raised(watch: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The findings as they come."""
    assert watch.stdout is not None
    for line in watch.stdout:
        news = json.loads(line)
        if news["kind"] == "finding-raised":
            yield {**news["finding"], "at": news["step"]}


def watching(run: Path, *options: str) -> tuple[str, ...]:
    return ("-m", "grpodoctor", "watch", str(run), "--json", "--interval", "0.1", *options)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_log_that_contradicts_its_growing_dumps_is_found_live(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with program("-c", VERL, str(run), "logged"), program(*watching(run)) as watch:
        finding = next(each for each in raised(watch) if each["code"] == "INS001")
    assert "mean reward is logged as 0.9" in finding["summary"]
    assert "0.0625" in finding["summary"]
    assert finding["onset_step"] <= 2, "the dumps of the first steps are waited for"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_growing_dumps_alone_are_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    select = ("--select", "GRP")
    with program("-c", VERL, str(run), "alone"), program(*watching(run, *select)) as watch:
        finding = next(raised(watch))
    assert finding["code"].startswith("GRP")


@pytest.mark.timeout(120)
def test_dumps_growing_by_single_responses_are_read_whole(tmp_path: Path) -> None:
    """Every group is wrong as long as all of it is there; a half of one would say less."""
    run = tmp_path / "run"
    with program("-c", PRIME, str(run)), program(*watching(run, "--select", "GRP")) as watch:
        finding = next(raised(watch))
    assert finding["code"].startswith("GRP")


@pytest.mark.timeout(120)
def test_a_growing_native_run_is_checked_against_its_rollouts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--until-finished", "--select", "INS001")
    program_file = tmp_path / "own.py"
    program_file.write_text(OWN)
    with program(str(program_file), str(run)), program(*watching(run, *options)) as watch:
        finding = next(raised(watch))
        assert watch.wait(PATIENCE) == 1
    assert finding["onset_step"] == 0
    assert finding["at"] < 11, "while it was recorded"
    assert "The mean reward" in finding["summary"]
