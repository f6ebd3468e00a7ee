"""Run directories written by the real recorder from plausible, made-up numbers.

Run it to look at a live screen: `python -m tests.report.simulated DIR --steps 200 --pause 0.3`.
"""

import argparse
import atexit
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Quantiles, Rate, Reading

HOSTILE = (
    "[bold red]loud[/bold red] \x1b[31mred\x1b]0;title\x07 <script>alert(1)</script> "
    "</script><img src=x onerror=alert(2)> \u202egnol \x9b2J \x00 |table| `code` @team www.a.b"
)

KNOBS = {
    "loss": "ppo_clip",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "token-mean",
    "advantage": "group",
    "correction": "none",
    "correction_cap": 2.0,
    "old_logprobs": "recompute",
    "dynamic_sampling": False,
    "overlong": "none",
    "kl_coefficient": 0.0,
    "learning_rate": 1e-4,
    "temperature": 1.0,
    "group_size": 8,
    "updates_per_batch": 4,
    "sampler_sync_every": 1,
}


def manifest(run_id: str = "first", **changes: object) -> Manifest:
    facts = {
        "run_id": run_id,
        "framework": "grpodoctor",
        "model": "builtin-tiny",
        "knobs": KNOBS,
        "seed": 7,
        "started": time.time(),
    }
    return Manifest(**{**facts, **changes})


def readings(step: int, *, sick_from: int | None, seed: int = 0) -> dict[str, Reading]:
    """One step of a run that learns, and from `sick_from` on loses its entropy and its reward."""
    rng = np.random.default_rng([seed, step])
    sick = 0.0 if sick_from is None else min(1.0, max(0.0, (step - sick_from) / 15))
    accuracy = (0.45 + 0.3 * (1 - np.exp(-step / 30))) * (1 - 0.85 * sick)
    responses, groups, tokens = 128, 16, 1800
    correct = int(rng.binomial(responses, accuracy))
    entropy = 0.52 * np.exp(-step / 120) * (1 - 0.93 * sick) + 0.01
    all_wrong = min(groups, int(rng.binomial(groups, 0.02 + 0.8 * sick)))
    all_right = int(rng.binomial(groups - all_wrong, 0.1 * (1 - sick)))
    gap = 0.01 + 0.5 * sick
    lengths = rng.normal(12 + 4 * sick, 2, responses).clip(2, 28).round()
    worst = f"step-{step}/seq-{int(rng.integers(responses))}"
    return {
        "reward/mean": Mean.of(np.r_[np.ones(correct), np.zeros(responses - correct)]),
        "reward/std": Mean.of([float(np.sqrt(max(accuracy * (1 - accuracy), 1e-6)))]),
        "accuracy/train": Rate(correct, responses),
        "length/mean": Mean.of(lengths),
        "length/p95": Quantiles.of(lengths),
        "length/correct": Mean.of(lengths[:60]),
        "length/incorrect": Mean.of(lengths[60:] + 6 * sick),
        "length/group_gap": Mean.of(rng.normal(0.5 + 6 * sick, 0.5, groups)),
        "length/truncated_rate": Rate(int(rng.binomial(responses, 0.01 + 0.3 * sick)), responses),
        "entropy/mean": Mean.of(rng.normal(entropy, 0.01, 200).clip(0)),
        "entropy/correct": Mean.of(rng.normal(entropy * 0.8, 0.01, 100).clip(0)),
        "entropy/incorrect": Mean.of(rng.normal(entropy * 1.3, 0.01, 100).clip(0)),
        "groups/zero_variance_rate": Rate(all_right + all_wrong, groups),
        "groups/all_correct_rate": Rate(all_right, groups),
        "groups/all_incorrect_rate": Rate(all_wrong, groups),
        "groups/cancelled_rate": Rate(0, groups),
        "groups/effective_rate": Rate(groups - all_right - all_wrong, groups),
        "clip/low_rate": Rate(int(rng.binomial(tokens, 0.004 + 0.05 * sick)), tokens),
        "clip/high_rate": Rate(int(rng.binomial(tokens, 0.002)), tokens),
        "clip/dual_rate": NotApplicable("the loss has no second clip"),
        "ratio/max": Max(float(1.4 + rng.random() + 5 * sick), worst),
        "kl/old_policy/k3": Mean.of(rng.exponential(0.002 + 0.02 * sick, 100)),
        "mismatch/prob_diff_mean": Mean.of(rng.normal(gap / 5, 0.001, 100).clip(0)),
        "mismatch/prob_diff_max": Mean.of(rng.normal(gap, 0.01, 100).clip(0, 1)),
        "mismatch/prob_diff_max/worst_sequence": Max(float(min(0.99, 1.6 * gap)), worst),
        "mismatch/nll_gap": Mean.of(rng.normal(0.4 * sick, 0.01, 100)),
        "optimizer/loss": Mean.of([float(rng.normal(0, 0.01))]),
        "optimizer/loss_tokens": Mean.of([tokens] * 4),
        "optimizer/grad_norm": Mean.of(rng.normal(2.4, 0.2, 4)),
        "optimizer/learning_rate": Mean.of([1e-4]),
        "optimizer/nonfinite": Rate(0, 4),
        "time/step": Mean.of([0.31]),
        **({"accuracy/heldout": Rate(int(200 * accuracy), 200)} if step % 10 == 0 else {}),
    }


def rollouts(step: int, text: str = "7*3=21 #1$", size: int = 8) -> RolloutBatch:
    rng = np.random.default_rng(step)
    learner_BT = np.log(rng.uniform(0.3, 0.9, (size, 6)))
    return RolloutBatch(
        step=step,
        sequence_ids=[f"step-{step}/seq-{row}" for row in range(size)],
        group_ids_B=np.zeros(size, int),
        prompt_ids=["prompt-0"] * size,
        prompts=["7*3="] * size,
        texts=[f"{text} ({row})" for row in range(size)],
        references=["1"] * size,
        tokens_BT=rng.integers(0, 20, (size, 6)),
        mask_BT=np.ones((size, 6), bool),
        rewards_B=rng.integers(0, 2, size).astype(float),
        truncated_B=np.zeros(size, bool),
        correct_B=rng.integers(0, 2, size).astype(bool),
        learner_logprobs_BT=learner_BT,
        sampler_logprobs_BT=learner_BT - rng.uniform(0, 0.5, (size, 6)),
    )


def record_run(
    path: Path,
    steps: int = 60,
    *,
    sick_from: int | None = None,
    run_id: str = "first",
    pause: float = 0.0,
    text: str = "7*3=21 #1$",
    finished: bool = True,
    **facts: object,
) -> Path:
    """Record a run; a `pause` between two steps makes it a live one.

    A finished run without a pause is recorded once in a process and copied from then on: the start
    of a recorder's writer process takes longer than the steps.
    """
    settings = (steps, sick_from, run_id, text, repr(sorted(facts.items())))
    if pause or not finished or path.exists():
        return _record(path, steps, sick_from, run_id, pause, text, finished, facts)
    if settings not in _recorded:
        kept = Path(tempfile.mkdtemp(prefix="simulated-run-")) / "run"
        atexit.register(shutil.rmtree, kept.parent, ignore_errors=True)
        _record(kept, steps, sick_from, run_id, pause, text, finished, facts)
        _recorded[settings] = kept
    shutil.copytree(_recorded[settings], path, copy_function=shutil.copy)
    return path


_recorded: dict[tuple[object, ...], Path] = {}
"""Recorded runs of this process by their settings."""


def _record(
    path: Path,
    steps: int,
    sick_from: int | None,
    run_id: str,
    pause: float,
    text: str,
    finished: bool,
    facts: dict[str, object],
) -> Path:
    recorder = Recorder.open(path, manifest(run_id, **facts))
    for step in range(steps):
        last = step == steps - 1
        recorder.step(
            step,
            readings(step, sick_from=sick_from),
            rollouts=rollouts(step, text) if last or step % 20 == 0 else None,
        )
        time.sleep(pause)
    recorder.close(finished=finished)
    assert recorder.failure is None, recorder.failure
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--sick-from", type=int, default=40)
    given = parser.parse_args()
    record_run(given.path, given.steps, sick_from=given.sick_from, pause=given.pause)
