"""Records runs in processes that tests kill.

writer.py steps DIR COUNT PAUSE    records COUNT steps, PAUSE seconds apart
writer.py hold DIR                 opens DIR, says so, and waits for the end of its input
writer.py orphan DIR               opens DIR, forks a child that outlives it, and waits
writer.py crowd                    for each line `DIR ACKS` of its input: forks a writer that
                                   records as fast as it can, and prints its process id
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.runs.recording import recorder
from grpodoctor.runs.recording.directory import last_step
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.values import Mean

COUNT, WIDTH = 4, 5
_ONES = np.ones((COUNT, WIDTH))


def batch(step: int) -> RolloutBatch:
    return RolloutBatch(
        step=step,
        sequence_ids=[f"{step}-{row}" for row in range(COUNT)],
        group_ids_B=np.zeros(COUNT, np.int64),
        prompt_ids=["p"] * COUNT,
        prompts=["?"] * COUNT,
        texts=["!" * 50] * COUNT,
        references=[""] * COUNT,
        tokens_BT=_ONES.astype(np.int64),
        mask_BT=_ONES.astype(bool),
        rewards_B=np.ones(COUNT),
        truncated_B=np.zeros(COUNT, bool),
        entropy_BT=_ONES,
    )


def record_steps(directory: str, count: int, pause: float) -> None:
    with recorder.Recorder.open(directory, Manifest()) as run:
        for step in range(count):
            run.step(step, {"reward/mean": Mean.of([step, 1.0])})
            time.sleep(pause)


def record_until_killed(directory: str, acknowledgements: str) -> None:
    recorder.LINE_WAIT_SECONDS = 30.0  # for slow machines
    steps = Path(directory) / "steps.jsonl"
    acks = os.open(acknowledgements, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    run = recorder.Recorder.open(directory, Manifest(), depth="full", resume=True)
    first = last_step(steps) + 1
    for step in range(first, first + 100_000):
        run.step(step, {"reward/mean": Mean.of([step])}, rollouts=batch(step))
        os.write(acks, f"{step}\n".encode())


def crowd() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            record_until_killed(*line.split())
        print(pid, flush=True)


def hold(directory: str) -> None:
    with recorder.Recorder.open(directory, Manifest()):
        print("open", flush=True)
        sys.stdin.read()


def orphan(directory: str) -> None:
    with recorder.Recorder.open(directory, Manifest()):
        if not os.fork():  # the child says so itself: it has let go of the lock by then
            print(os.getpid(), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _, what, *arguments = sys.argv
    if what == "steps":
        record_steps(arguments[0], int(arguments[1]), float(arguments[2]))
    else:
        {"hold": hold, "orphan": orphan, "crowd": crowd}[what](*arguments)
