"""The cost of recording a step in the training process: 128 responses of up to 28 tokens."""

import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
from grpodoctor.runs.rollouts import DEPTHS, Depth

RESPONSES, TOKENS, STEPS = 128, 28, 120
PAUSE = 0.1
"""Seconds of training between two steps, in which the writer process works."""


def make_batch(step: int) -> RolloutBatch:
    """A batch of the demo's size."""
    random = np.random.default_rng(step)
    lengths = random.integers(4, TOKENS + 1, RESPONSES)
    logprobs_BT = -random.random((RESPONSES, TOKENS)).astype(np.float32)
    noise_BT = 0.01 * random.standard_normal((RESPONSES, TOKENS)).astype(np.float32)
    return RolloutBatch(
        step=step,
        sequence_ids=[f"{step}-{row}" for row in range(RESPONSES)],
        group_ids_B=np.arange(RESPONSES) // 8,
        prompt_ids=[f"p{row // 8}" for row in range(RESPONSES)],
        prompts=["12 + 34 ="] * RESPONSES,
        texts=["2+4=6 1+3=4 46"] * RESPONSES,
        references=["46"] * RESPONSES,
        tokens_BT=random.integers(0, 40, (RESPONSES, TOKENS)),
        mask_BT=np.arange(TOKENS) < lengths[:, None],
        rewards_B=random.integers(0, 2, RESPONSES).astype(float),
        truncated_B=lengths == TOKENS,
        correct_B=random.random(RESPONSES) > 0.5,
        advantages_B=random.standard_normal(RESPONSES),
        learner_logprobs_BT=logprobs_BT,
        sampler_logprobs_BT=logprobs_BT + noise_BT,
        entropy_BT=np.abs(logprobs_BT),
    )


def spin(seconds: float) -> None:
    """Simulate training: hold the GIL like a Python loop around small kernels."""
    end = time.perf_counter() + seconds
    matrix = np.ones((64, 64))
    while time.perf_counter() < end:
        matrix = matrix @ matrix / 64


def writer_seconds() -> float:
    """CPU seconds of the writer processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cost_per_step(directory: Path, depth: Depth) -> tuple[np.ndarray, float, float]:
    """Seconds of each `step` call; CPU seconds per step of the thread and the writer process."""
    costs = []
    before = writer_seconds()
    with Recorder.open(directory, Manifest(), depth=depth) as recorder:
        busy = time.process_time() - time.thread_time()
        for step in range(STEPS):
            batch = make_batch(step)
            started = time.perf_counter()
            recorder.step(step, StepBatch(rollouts=batch))
            costs.append(time.perf_counter() - started)
            spin(PAUSE)
        recorder.flush()
        busy = time.process_time() - time.thread_time() - busy
    if recorder.failure is not None:
        raise SystemExit(recorder.failure)
    return np.array(costs), busy / STEPS, (writer_seconds() - before) / STEPS


def main() -> None:
    """Print one line per depth."""
    print(f"recorder.step on the training thread, {RESPONSES} x {TOKENS}, {STEPS} steps")
    print(f"{'depth':>8}  {'median':>10}  {'p99':>10}  {'thread':>10}  {'writer':>10}")
    for depth in DEPTHS:
        directory = Path(tempfile.mkdtemp())
        try:
            costs, busy, writer = cost_per_step(directory / "run", depth)
        finally:
            shutil.rmtree(directory)
        median, p99 = np.quantile(costs, [0.5, 0.99])
        print(
            f"{depth:>8}  {median * 1e6:7.0f} us  {p99 * 1e6:7.0f} us  {busy * 1e3:7.2f} ms"
            f"  {writer * 1e3:7.2f} ms"
        )


if __name__ == "__main__":
    main()
