"""Forks of a real training: branches from one checkpoint, and the run that continues."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import saved_config
from grpodoctor.trials.forks.branches import ForkPlan, levels_of, train_branches
from grpodoctor.trials.forks.forked_training import ForkController, ForkSettings

SETTINGS = (
    "threads=1",
    "engine.precision=int4",
    "engine.old_logprobs=sampler",
    "rollout.prompts_per_batch=4",
    "evaluation.every=0",
    "record.depth=off",
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""Twelve processes load a model and a recorder: half a minute, or many on a busy machine."""

SMALL = ForkSettings(pairs=5, branch_steps=4)


def config_of(steps: int) -> TrainConfig:
    return load_config(assignments=[*SETTINGS, f"steps={steps}"])


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], int]:
    """A run with a planted fault that forks once; its lines, and the step of the fork."""
    run_dir, lines = tmp_path_factory.mktemp("forked") / "run", list[str]()
    controller = ForkController(run_dir, "safe", SMALL, lines.append)
    trainer = Trainer(config_of(40), run_dir)
    trainer.run(lambda report: controller.watch(trainer, report))
    assert controller.proposal is not None
    step = trainer.done
    controller.fork(trainer.config, step)
    resumed = Trainer(saved_config(run_dir, [f"steps={step + 4}"]), run_dir, resume=True)
    resumed.run()
    return run_dir, lines, step


def test_the_cost_is_shown_before_the_branches(forked: tuple[Path, list[str], int]) -> None:
    _, lines, step = forked
    assert lines[0] == f"recompute-old-logprobs is proposed for MIS002 at step {step}"
    assert lines[1].startswith("5 treated and 5 untreated branches of 4 steps: 40 steps, about ")
    assert lines[2].startswith("mismatch/first_ratio_off falls (")
    assert lines[2].endswith("the run continues with the settings of the treated branch")


def test_the_run_continues_with_the_better_settings(forked: tuple[Path, list[str], int]) -> None:
    run_dir, _, step = forked
    events = [event for event in read_run(run_dir).events if "treatment" in event.kind]
    assert [event.kind for event in events] == [
        "treatment-proposed",
        "treatment-applied",
        "treatment-kept",
    ]
    assert "fork of 5 pairs: mismatch/first_ratio_off falls" in events[-1].body["verdict"]
    after = [each for each in read_run(run_dir).steps if each.step > step]
    off = [each.values["mismatch/first_ratio_off"].value for each in after]  # type: ignore[union-attr]
    assert off == [0.0] * 4


def test_the_run_repeats_the_branch_of_its_own_seed(forked: tuple[Path, list[str], int]) -> None:
    run_dir, _, step = forked
    branch = run_dir / "forks" / f"step-{step:06d}" / "treated-1"
    rewards = [
        [each.values["reward/mean"] for each in read_run(path).steps if each.step > step]
        for path in (run_dir, branch)
    ]
    assert rewards[0] == rewards[1]
    assert not (branch / "checkpoints").exists()


def test_pairs_differ_in_their_seed_and_arms_in_the_treatment(
    forked: tuple[Path, list[str], int],
) -> None:
    run_dir, _, step = forked
    folder = run_dir / "forks" / f"step-{step:06d}"
    rewards = {
        path.name: [each.values["reward/mean"].value for each in read_run(path).steps]  # type: ignore[union-attr]
        for path in folder.iterdir()
        if path.is_dir()
    }
    assert len(rewards) == 10
    pairs = itertools.combinations((f"untreated-{pair}" for pair in range(1, 6)), 2)
    assert all(rewards[one] != rewards[other] for one, other in pairs)
    # The first step of both arms samples the same responses: only the settings differ.
    assert all(rewards[f"treated-{n}"][0] == rewards[f"untreated-{n}"][0] for n in range(1, 6))


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    run_dir = tmp_path_factory.mktemp("short") / "run"
    Trainer(config_of(2), run_dir).run()
    return run_dir


@pytest.fixture
def plan(short_run: Path, tmp_path: Path) -> Callable[..., ForkPlan]:
    """A fork of a copy of the run of two steps."""
    shutil.copytree(short_run, tmp_path / "run")

    def make(**changes: object) -> ForkPlan:
        return ForkPlan(tmp_path / "run", 2, 5, 4, changes, seed=0)  # type: ignore[arg-type]

    return make


def test_a_missing_checkpoint_is_one_line(plan: Callable[..., ForkPlan]) -> None:
    fork = plan(clip_high=0.3)
    shutil.rmtree(fork.run_dir / "checkpoints")
    with pytest.raises(RunError, match="a fork cannot copy the checkpoint: No such file"):
        train_branches(fork, 1, lambda _: None)


def test_a_damaged_checkpoint_is_one_line(plan: Callable[..., ForkPlan]) -> None:
    fork = plan(clip_high=0.3)
    (fork.run_dir / "checkpoints/step-000002/state.json").write_bytes(b"{")
    with pytest.raises(RunError, match="a fork cannot copy the checkpoint: it is damaged"):
        train_branches(fork, 1, lambda _: None)


def test_a_branch_that_dies_ends_the_fork_with_its_last_line(
    plan: Callable[..., ForkPlan],
) -> None:
    fork = plan(clip_high=0.3)
    (fork.run_dir / "checkpoints/step-000002/model.safetensors").write_bytes(b"none")
    with pytest.raises(RunError, match="a branch of the fork failed: ") as caught:
        train_branches(fork, 2, lambda _: None)
    assert "\n" not in str(caught.value)


def test_a_branch_without_steps_has_no_levels(plan: Callable[..., ForkPlan]) -> None:
    fork = plan(clip_high=0.3)
    assert levels_of([fork.run_dir], fork) == [{}]


def test_fork_needs_remedies_to_try() -> None:
    from grpodoctor.cli.treated_training import TrainApply, TreatmentOptions

    with pytest.raises(ConfigError, match="--fork requires remedies to try"):
        TreatmentOptions(TrainApply.NONE, fork=True)
