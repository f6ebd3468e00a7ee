"""Running out of memory: one line, and the last completed step is saved."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from grpodoctor.errors import OutOfMemoryError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from grpodoctor.trainer.out_of_memory import explain_out_of_memory

SMALL = (
    *("threads=1", "model.warm_start_steps=5", "steps=4", "evaluation.every=0"),
    *("rollout.prompts_per_batch=16", "rollout.group_size=16", "rollout.max_length=24"),
    *("overlong.kind=soft-punishment", "overlong.buffer=24", "optimizer.updates_per_batch=1"),
)
# The user's reward function limits the memory: it suffices for the checkpoint, but
# not for a forward pass over 256 responses that keeps its activations.
REWARD = """
import os
import resource
calls = 0
def reward(prompts, completions, answers):
    global calls
    calls += 1
    if calls == 3:
        trainer = os.getppid()  # the function runs in a process of its own
        pages = int(open(f"/proc/{trainer}/statm").read().split()[0])
        limit = pages * resource.getpagesize() + (24 << 20)
        resource.prlimit(trainer, resource.RLIMIT_AS, (limit, limit))
    return [-len(each) / 10 for each in completions]
"""


def small(*assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, *assignments])


def train(cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # Freed memory returns to the system, so that each step allocates again.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    return subprocess.run(
        [sys.executable, "-m", "grpodoctor", "train", "--run-dir", "out", *options],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.slow
def test_an_allocation_that_fails_is_one_line_and_the_last_step_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "greedy.py").write_text(REWARD)
    settings = [part for each in SMALL for part in ("--set", each)]
    done = train(tmp_path, *settings, "--set", "task.reward=greedy:reward")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "not enough memory for the process (step 3)" in line
    for setting in ("optimizer.micro_batch", "rollout.max_length (24)", "rollout.group_size (16)"):
        assert setting in line
    assert [path.name for path in checkpoints(tmp_path / "out")] == ["step-000002"]
    assert [step.step for step in read_run(tmp_path / "out").steps] == [1, 2]
    assert_goes_on_as_if_nothing_had_been(tmp_path)


def assert_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(REWARD.replace("calls == 3", "False"))
    resumed = Trainer(saved_config(tmp_path / "out"), tmp_path / "out", resume=True)
    whole = Trainer(small("task.reward=greedy:reward"), tmp_path / "whole")
    for trainer in (resumed, whole):
        trainer.run()
    left, right = (each.policy.model.state_dict() for each in (resumed, whole))
    assert all(torch.equal(left[name], right[name]) for name in left)


@contextmanager
def hungry(trainer: Trainer, spared: int) -> Iterator[None]:
    """After some passes with gradient, a layer allocates more memory than any machine has."""
    passes = 0

    def ask(*_: object) -> None:
        nonlocal passes
        passes += torch.is_grad_enabled()
        if passes > spared:
            torch.empty(1 << 60, dtype=torch.uint8)

    layer = trainer.policy.model.get_submodule("model.layers.0.mlp.up_proj")
    handle = layer.register_forward_pre_hook(ask)
    yield
    handle.remove()


@pytest.mark.parametrize(
    ("updates_spared", "saved"), [(0, ["step-000001"]), (2, [])], ids=["before", "between"]
)
def test_no_checkpoint_is_written_in_the_middle_of_a_step(
    updates_spared: int, saved: list[str], tmp_path: Path
) -> None:
    """Weights with only some of a step's updates belong to no step."""
    trainer = Trainer(small("optimizer.updates_per_batch=4"), tmp_path / "run")
    trainer.train_step()
    with (
        hungry(trainer, updates_spared),
        pytest.raises(OutOfMemoryError, match=r"step 2.*lower optimizer\.micro_batch"),
    ):
        trainer.run()
    assert [path.name for path in checkpoints(tmp_path / "run")] == saved
    assert all(each.grad is None for each in trainer.learner.parameters)
    warning = list(read_run(tmp_path / "run").events)[-1]
    assert "not enough memory" in str(warning.body)


def test_after_a_failure_before_the_first_update_the_run_resumes_exactly(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}' for n in range(40)))
    config = small(f"task.data={data}", "model.warm_start_steps=0", "record.enabled=false")
    whole = Trainer(config, tmp_path / "whole")
    whole.run()
    part = Trainer(config, tmp_path / "part")
    part.train_step()
    with hungry(part, 0), pytest.raises(OutOfMemoryError):
        part.train_step()
    part.stop()
    part.run()
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    assert resumed.done == 1
    resumed.run()
    left, right = (each.policy.model.state_dict() for each in (whole, resumed))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_other_failures_are_not_reported_as_out_of_memory() -> None:
    with pytest.raises(RuntimeError, match="size"), explain_out_of_memory(TrainConfig(), 3):
        torch.zeros(2) + torch.zeros(3)


def test_every_kind_of_out_of_memory_is_recognized() -> None:
    with (
        pytest.raises(OutOfMemoryError, match=r"on the GPU \(step 3\)"),
        explain_out_of_memory(TrainConfig(), 3),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    with (
        pytest.raises(OutOfMemoryError, match="for the process"),
        explain_out_of_memory(TrainConfig(), 3),
    ):
        bytearray(1 << 62)


def test_the_memory_of_the_failed_step_is_released() -> None:
    """The raised error is chained to torch's error, which must not hold the tensors."""
    held: list[weakref.ref[torch.Tensor]] = []

    def step() -> None:
        activations = torch.zeros(3)
        held.append(weakref.ref(activations))
        torch.empty(1 << 60, dtype=torch.uint8)

    with pytest.raises(OutOfMemoryError) as caught, explain_out_of_memory(TrainConfig(), 3):
        step()
    assert caught.value.__context__ is not None
    assert held[0]() is None
