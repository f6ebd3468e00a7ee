"""The branches of a fork: processes that continue copies of one checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from grpodoctor.errors import GrpodoctorError, RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.support.files.atomic_files import write_bytes
from grpodoctor.trials.process_pool import Died, in_processes
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import scalar


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork costs and where it is kept."""

    run_dir: Path
    step: int
    """Step of the checkpoint that all branches continue."""
    pairs: int
    branch_steps: int
    changes: Mapping[str, Setting]
    """The treatment."""
    seed: int
    """Seed of the run, and of the first pair."""

    @property
    def folder(self) -> Path:
        """The directory of the branches."""
        return self.run_dir / "forks" / f"step-{self.step:06d}"

    @property
    def steps(self) -> int:
        """Training steps of all branches."""
        return 2 * self.pairs * self.branch_steps

    def cost(self, seconds_per_step: float, jobs: int) -> str:
        """The cost in one sentence."""
        minutes = self.steps * seconds_per_step / jobs / 60
        return (
            f"{self.pairs} treated and {self.pairs} untreated branches of {self.branch_steps} "
            f"steps: {self.steps} steps, about {minutes:.1f} minutes with {jobs} at a time"
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a fork."""

    path: Path
    seed: int
    steps: int
    """Total training steps, those before the fork included."""
    is_treated: bool


def train_branches(
    plan: ForkPlan, jobs: int, on_branch: Callable[[int], None]
) -> tuple[list[Path], list[Path]]:
    """Train all branches; return the run directories of the treated and of the untreated ones.

    Args:
        plan: the fork.
        jobs: branches at a time.
        on_branch: receives the number of branches that have ended.

    Raises:
        RunError: if the checkpoint is missing or damaged, or a branch dies.
    """
    branches = [
        Branch(
            plan.folder / f"{'treated' if is_treated else 'untreated'}-{pair + 1}",
            plan.seed + pair,
            plan.step + plan.branch_steps,
            is_treated,
        )
        for pair in range(plan.pairs)
        for is_treated in (True, False)
    ]
    for branch in branches:
        _prepare(plan, branch.path, plan.changes if branch.is_treated else {})
    with closing(in_processes(_train, branches, jobs)) as outcomes:
        for ended, (branch, outcome) in enumerate(outcomes, start=1):
            reason = outcome.reason if isinstance(outcome, Died) else outcome
            if reason:
                raise RunError(
                    f"a branch of the fork failed: {reason}",
                    where=str(branch.path),
                    remedy="the run is intact: continue it with --resume, without --fork",
                )
            on_branch(ended)
    treated = [branch.path for branch in branches if branch.is_treated]
    return treated, [branch.path for branch in branches if not branch.is_treated]


def _train(branch: Branch) -> str:
    """Continue the checkpoint in a branch; return why it failed, or an empty text."""
    from grpodoctor.trainer.loop import Trainer
    from grpodoctor.trainer.model.checkpoint import saved_config

    try:
        settings = [f"seed={branch.seed}", f"steps={branch.steps}"]
        config = saved_config(branch.path, settings)
        Trainer(config, branch.path, resume=True).run()
    except Exception as error:  # noqa: BLE001 - no error of a branch may end the run
        what = error.what if isinstance(error, GrpodoctorError) else str(error)
        return f"{type(error).__name__}: {what}".splitlines()[0][:300]
    return ""


def _prepare(plan: ForkPlan, branch: Path, changes: Mapping[str, Setting]) -> None:
    """Copy the checkpoint into a branch, with the treatment in its configuration.

    Raises:
        RunError: if the checkpoint is missing or damaged, or cannot be copied.
    """
    from grpodoctor.trainer.config.knobs import apply_change
    from grpodoctor.trainer.config.train_config import load_config

    name = Path("checkpoints") / f"step-{plan.step:06d}"
    try:
        shutil.rmtree(branch, ignore_errors=True)
        shutil.copytree(plan.run_dir / name, branch / name)
        state = orjson.loads((branch / name / "state.json").read_bytes())
        config = load_config(state["config"])
        if changes:
            config = apply_change(config, changes)
        state["config"] = config.model_dump(mode="json")
        write_bytes(branch / name / "state.json", orjson.dumps(state))
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise RunError(
            f"a fork cannot copy the checkpoint: {reason}",
            where=str(plan.run_dir / name),
            remedy="continue without --fork, from an earlier checkpoint",
        ) from error


def levels_of(branches: Sequence[Path], plan: ForkPlan) -> list[dict[str, float]]:
    """The mean of each metric over the second half of each branch.

    Raises:
        RunError: if a branch has no steps.
    """
    first = plan.step + plan.branch_steps // 2 + 1
    return [_levels(branch, first) for branch in branches]


def _levels(branch: Path, first_step: int) -> dict[str, float]:
    sums: dict[str, list[float]] = {}
    for record in read_run(branch).steps:
        for name, reading in record.values.items() if record.step >= first_step else ():
            if (value := scalar(reading)) is not None:
                sums.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in sums.items()}


def remove_checkpoints(branches: Sequence[Path]) -> None:
    """Remove the weights of branches whose comparison is done; their records stay."""
    for branch in branches:
        with suppress(OSError):
            shutil.rmtree(branch / "checkpoints")
